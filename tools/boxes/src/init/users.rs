//! Who runs a command, by the box's own tables.

use std::fs;

/// User, group and further groups, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
}

/// Returns who `wanted` is (`user` or `user:group`, names or numbers), as `/etc/passwd` and `/etc/group` say.
pub(super) fn find(wanted: &str) -> Option<Identity> {
    let table = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    find_in(
        wanted,
        &table("/etc/passwd").unwrap_or_default(),
        &table("/etc/group").unwrap_or_default(),
    )
}

fn find_in(wanted: &str, passwd: &str, group: &str) -> Option<Identity> {
    let (user, wanted_group) = match wanted.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (wanted, None),
    };
    // name:password:uid:gid:…
    let entry = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let uid: u32 = fields.nth(1)?.parse().ok()?;
        let gid: u32 = fields.next()?.parse().ok()?;
        (name == user || user.parse() == Ok(uid)).then(|| (name.to_owned(), uid, gid))
    });
    let (name, uid, own_gid) = match entry {
        Some((name, uid, gid)) => (Some(name), uid, gid),
        None => (None, user.parse().ok()?, 0),
    };
    let gid = match wanted_group {
        Some(wanted) => group_named(wanted, group)?,
        None => own_gid,
    };
    let mut groups: Vec<u32> = name
        .map(|name| groups_with(&name, group))
        .unwrap_or_default();
    groups.push(gid);
    groups.sort_unstable();
    groups.dedup();
    Some(Identity { uid, gid, groups })
}

fn group_named(wanted: &str, group: &str) -> Option<u32> {
    let by_name = group.lines().find_map(|line| {
        // name:password:gid:members
        let mut fields = line.split(':');
        (fields.next()? == wanted).then(|| fields.nth(1)?.parse().ok())?
    });
    by_name.or_else(|| wanted.parse().ok())
}

fn groups_with(member: &str, group: &str) -> Vec<u32> {
    group
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':').skip(2);
            let gid = fields.next()?.parse().ok()?;
            let members = fields.next()?;
            members.split(',').any(|one| one == member).then_some(gid)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/:/bin/bash\nann:x:1000:1000::/srv/ann:/bin/sh\nodd\n";
    const GROUP: &str = "root:x:0:\nann:x:1000:\ndisk:x:6:bob,ann\nodd\n";

    #[test]
    fn names_and_numbers_are_found() {
        let ann = Identity {
            uid: 1000,
            gid: 1000,
            groups: vec![6, 1000],
        };
        assert_eq!(find_in("ann", PASSWD, GROUP), Some(ann.clone()));
        assert_eq!(find_in("1000", PASSWD, GROUP), Some(ann.clone()));
        let in_disk = find_in("ann:disk", PASSWD, GROUP).unwrap();
        assert_eq!((in_disk.gid, in_disk.groups), (6, vec![6]));
        let number = find_in("77:88", PASSWD, GROUP).unwrap();
        assert_eq!((number.uid, number.gid, number.groups), (77, 88, vec![88]));
        assert_eq!(find_in("nobody-here", PASSWD, GROUP), None);
        assert_eq!(find_in("ann:nothing", PASSWD, GROUP), None);
        assert_eq!(find_in("", PASSWD, GROUP), None);
    }
}
