//! Owners and modes, and what a change of them takes away.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use branchpoint_tests::rig::Rig;
use branchpoint_tests::sys::{as_user, get_xattr, set_xattr};
use nix::errno::Errno;

use crate::mode;

fn make(rig: &Rig, perm: u32, owner: u32) -> std::path::PathBuf {
    let path = rig.path("f");
    fs::write(&path, "some content").unwrap();
    chown(&path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(perm)).unwrap();
    assert_eq!(mode(&path), perm);
    path
}

fn write_as(uid: u32, path: &Path) {
    as_user(uid, uid, &[], || {
        let file = File::options().write(true).open(path).unwrap();
        std::io::Write::write_all(&mut &file, b"x").unwrap();
        file.sync_all().unwrap();
    });
}

#[test]
fn writing_by_another_clears_suid_and_sgid() {
    let Some(rig) = Rig::new() else { return };
    let path = make(&rig, 0o6777, 0);
    write_as(1000, &path);
    assert_eq!(mode(&path), 0o777);
}

#[test]
fn writing_by_root_keeps_suid() {
    let Some(rig) = Rig::new() else { return };
    let path = make(&rig, 0o6777, 0);
    fs::write(&path, "y").unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    assert_eq!(mode(&path), 0o6777);
}

#[test]
fn truncating_by_another_clears_suid() {
    let Some(rig) = Rig::new() else { return };
    let path = make(&rig, 0o6777, 0);
    as_user(1000, 1000, &[], || {
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(3)
            .unwrap();
    });
    assert_eq!(mode(&path), 0o777);
}

#[test]
fn changing_the_owner_clears_suid_but_not_of_directories() {
    let Some(rig) = Rig::new() else { return };
    let path = make(&rig, 0o6755, 0);
    chown(&path, Some(1000), None).unwrap();
    assert_eq!(mode(&path), 0o755);
    // Without execution by the group, sgid means mandatory locking, and stays.
    fs::set_permissions(&path, Permissions::from_mode(0o2644)).unwrap();
    chown(&path, None, Some(7)).unwrap();
    assert_eq!(mode(&path), 0o2644);
    fs::create_dir(rig.path("d")).unwrap();
    fs::set_permissions(rig.path("d"), Permissions::from_mode(0o2755)).unwrap();
    chown(rig.path("d"), Some(1000), Some(1000)).unwrap();
    assert_eq!(mode(&rig.path("d")), 0o2755);
}

#[test]
fn capabilities_go_with_a_write() {
    let Some(rig) = Rig::new() else { return };
    let path = make(&rig, 0o755, 0);
    // Version 2: cap_net_raw, effective.
    let mut value = vec![1, 0, 0, 2];
    value.extend([0, 0x20, 0, 0]);
    value.resize(20, 0);
    let name = b"security.capability";
    set_xattr(&path, name, &value, branchpoint_fs::attr::XattrMode::Either).unwrap();
    assert_eq!(get_xattr(&path, name).unwrap(), value);
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    write_as(1000, &path);
    assert_eq!(get_xattr(&path, name), Err(Errno::ENODATA));
}

#[test]
fn only_the_owner_changes_the_mode() {
    let Some(rig) = Rig::new() else { return };
    let path = make(&rig, 0o644, 1000);
    let change = |uid, perm| {
        as_user(uid, uid, &[], || {
            fs::set_permissions(&path, Permissions::from_mode(perm))
        })
    };
    crate::fails(change(1001, 0o777), libc::EPERM);
    change(1000, 0o600).unwrap();
    assert_eq!(mode(&path), 0o600);
    let give = as_user(1000, 1000, &[], || chown(&path, Some(1001), None));
    crate::fails(give, libc::EPERM);
}
