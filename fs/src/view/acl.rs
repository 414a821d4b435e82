//! POSIX access control lists. The kernel enforces them; keeping the mode and the list in step and
//! handing a directory's default list on is ours.

use crate::error::Result;
use crate::id::Ino;
use crate::layout::record::InodeRecord;
use crate::view::edit::Edit;
use crate::view::op::Op;
use crate::view::xattr;

/// The attribute with the list that decides about access.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the list that new entries of a directory get.
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A list, as the kernel passes it in an extended attribute: a version and entries of tag (16
/// bits), permissions (16 bits) and id (32 bits).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acl(Vec<Entry>);

impl Acl {
    /// Returns the list that `value` encodes, if it is a valid one.
    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let (version, rest) = value.split_first_chunk::<4>()?;
        let (entries, tail) = rest.as_chunks::<ENTRY_BYTES>();
        if u32::from_le_bytes(*version) != VERSION || !tail.is_empty() {
            return None;
        }
        let entries: Vec<Entry> = entries
            .iter()
            .map(|[t0, t1, p0, p1, id @ ..]| Entry {
                tag: u16::from_le_bytes([*t0, *t1]),
                perm: u16::from_le_bytes([*p0, *p1]),
                id: u32::from_le_bytes(*id),
            })
            .collect();
        let count = |tag: u16| entries.iter().filter(|entry| entry.tag == tag).count();
        let known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
        let named = count(USER) + count(GROUP) > 0;
        let valid = entries
            .iter()
            .all(|entry| known.contains(&entry.tag) && entry.perm <= 7)
            && count(USER_OBJ) == 1
            && count(GROUP_OBJ) == 1
            && count(OTHER) == 1
            && count(MASK) <= 1
            && (!named || count(MASK) == 1);
        valid.then_some(Self(entries))
    }

    /// Returns the attribute's value.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            value.extend_from_slice(&entry.tag.to_le_bytes());
            value.extend_from_slice(&entry.perm.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }

    fn find(&self, tag: u16) -> Option<u32> {
        self.0
            .iter()
            .find(|entry| entry.tag == tag)
            .map(|entry| u32::from(entry.perm))
    }

    /// Returns `perm` with the lower nine bits as this list has them.
    pub(super) fn perm(&self, perm: u32) -> u32 {
        let owner = self.find(USER_OBJ).unwrap_or(0);
        let group = self
            .find(MASK)
            .or_else(|| self.find(GROUP_OBJ))
            .unwrap_or(0);
        let other = self.find(OTHER).unwrap_or(0);
        (perm & !0o777) | owner << 6 | group << 3 | other
    }

    /// Returns whether mode bits say the same.
    pub(super) fn is_plain(&self) -> bool {
        self.0.len() == 3
    }

    fn with(
        mut self,
        change: impl Fn(u16) -> Option<u32>,
        combine: impl Fn(u16, u16) -> u16,
    ) -> Self {
        let masked = self.find(MASK).is_some();
        for entry in &mut self.0 {
            // With a mask, the group bits of a mode are the mask's.
            let counts = entry.tag != GROUP_OBJ || !masked;
            if let Some(bits) = change(entry.tag).filter(|_| counts) {
                entry.perm = combine(entry.perm, u16::try_from(bits & 7).unwrap_or(0));
            }
        }
        self
    }

    /// Returns this default list as the access list of something made with `perm`.
    pub(super) fn for_new(&self, perm: u32) -> Self {
        self.clone()
            .with(|tag| bits_of(tag, perm), |old, new| old & new)
    }

    /// Returns this list after a chmod to `perm`.
    fn after_chmod(self, perm: u32) -> Self {
        self.with(|tag| bits_of(tag, perm), |_, new| new)
    }
}

fn bits_of(tag: u16, perm: u32) -> Option<u32> {
    match tag {
        USER_OBJ => Some(perm >> 6),
        GROUP_OBJ | MASK => Some(perm >> 3),
        OTHER => Some(perm),
        _ => None,
    }
}

/// Returns the list that new entries of `dir` get, if it has one.
pub(super) fn default_of(op: &Op<'_>, dir: &InodeRecord) -> Result<Option<Acl>> {
    Ok(xattr::get(op, dir, DEFAULT)?
        .as_deref()
        .and_then(Acl::decode))
}

/// Sets a list.
pub(super) fn put(edit: &mut Edit<'_>, ino: Ino, name: &[u8], value: Vec<u8>) {
    edit.put_xattr(ino, name, &value);
}

/// Keeps the access list in step with a mode that was just set.
pub(super) fn follow_mode(edit: &mut Edit<'_>, record: &InodeRecord) -> Result<()> {
    let list = xattr::get(edit.op, record, ACCESS)?
        .as_deref()
        .and_then(Acl::decode);
    if let Some(list) = list {
        let value = list.after_chmod(record.attr.perm).encode();
        edit.put_xattr(record.attr.ino, ACCESS, &value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Acl {
        Acl(entries
            .iter()
            .map(|(tag, perm, id)| Entry {
                tag: *tag,
                perm: *perm,
                id: *id,
            })
            .collect())
    }

    #[test]
    fn the_mask_is_the_group_bits_of_the_mode() {
        let acl = list(&[
            (USER_OBJ, 7, u32::MAX),
            (USER, 6, 1000),
            (GROUP_OBJ, 5, u32::MAX),
            (MASK, 6, u32::MAX),
            (OTHER, 1, u32::MAX),
        ]);
        assert_eq!(Acl::decode(&acl.encode()), Some(acl.clone()));
        assert_eq!(acl.perm(0o4000), 0o4761);
        let changed = acl.after_chmod(0o640);
        assert_eq!(changed.perm(0), 0o640);
        assert_eq!(changed.find(GROUP_OBJ), Some(5));
        assert_eq!(changed.find(USER), Some(6));
    }

    #[test]
    fn malformed_lists_are_refused() {
        assert_eq!(Acl::decode(&[]), None);
        assert_eq!(Acl::decode(&[2, 0, 0, 0]), None);
        let no_mask = list(&[
            (USER_OBJ, 7, 0),
            (USER, 7, 5),
            (GROUP_OBJ, 7, 0),
            (OTHER, 7, 0),
        ]);
        assert_eq!(Acl::decode(&no_mask.encode()), None);
    }
}
