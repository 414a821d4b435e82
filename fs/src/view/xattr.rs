//! Extended attributes.

use nix::errno::Errno;

use crate::attr::{Caller, XattrMode};
use crate::error::{Error, Result};
use crate::id::Ino;
use crate::kv::{Step, Table};
use crate::layout::key::{self, ChangeOf};
use crate::layout::record::InodeRecord;
use crate::view::acl::{self, Acl};
use crate::view::edit::Edit;
use crate::view::op::Op;
use crate::view::{NAME_BYTES_MAX, View};

/// The largest value, as in the kernel.
const VALUE_BYTES_MAX: usize = 65_536;

/// First byte of a stored value; a tombstone is empty, and a value may be.
const PRESENT: u8 = 1;

impl View {
    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// ENODATA if there is none, EOPNOTSUPP for a namespace that is not kept.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let op = self.reading()?;
        check_name(name)?;
        let version = op.inode(ino)?;
        get(&op, &version.record, name)?.ok_or(Error::Posix(Errno::ENODATA))
    }

    /// Sets an extended attribute. An access ACL changes the mode with it.
    ///
    /// # Errors
    /// EEXIST, ENODATA as `mode` says; E2BIG, ERANGE, EOPNOTSUPP; EINVAL for a malformed ACL.
    pub fn setxattr(
        &self,
        caller: Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let op = self.changing()?;
        check_name(name)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(Errno::E2BIG.into());
        }
        let _locks = self.locks.exclusive(&[ino]);
        let mut edit = Edit::new(&op);
        let mut record = edit.inode(ino)?;
        let present = get(&op, &record, name)?.is_some();
        match mode {
            XattrMode::Create if present => return Err(Errno::EEXIST.into()),
            XattrMode::Replace if !present => return Err(Errno::ENODATA.into()),
            _ => {}
        }
        record.attr.ctime = edit.now;
        if name == acl::ACCESS || name == acl::DEFAULT {
            let acl = Acl::decode(value).ok_or(Errno::EINVAL)?;
            if name == acl::ACCESS {
                let setgid_lost = caller.uid != 0 && caller.gid != record.attr.gid;
                record.attr.perm = acl.perm(record.attr.perm);
                if setgid_lost {
                    record.attr.perm &= !libc::S_ISGID;
                }
                if acl.is_plain() {
                    // The mode says it all.
                    if present {
                        edit.remove_xattr(&mut record, name)?;
                    }
                    edit.put_inode(record);
                    return edit.commit();
                }
            }
        }
        record.has_xattrs = true;
        edit.put_xattr(ino, name, value);
        edit.put_inode(record);
        edit.commit()
    }

    /// Returns the names of all extended attributes.
    ///
    /// # Errors
    /// ESTALE.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let op = self.reading()?;
        let version = op.inode(ino)?;
        let mut names = Vec::new();
        if version.record.has_xattrs {
            let prefix = key::xattrs_from(ino);
            let mut visit = |thing: &[u8], _, value: &[u8]| {
                if !value.is_empty() {
                    names.push(key::parse_xattr(thing)?.1.to_vec());
                }
                Ok(true)
            };
            op.store
                .scan_versions(Table::Xattrs, &prefix, &prefix, op.head, &mut visit)?;
        }
        Ok(names)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// ENODATA if there is none.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let op = self.changing()?;
        check_name(name)?;
        let _locks = self.locks.exclusive(&[ino]);
        let mut edit = Edit::new(&op);
        let mut record = edit.inode(ino)?;
        edit.remove_xattr(&mut record, name)?;
        record.attr.ctime = edit.now;
        edit.put_inode(record);
        edit.commit()
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
        return Err(Errno::ERANGE.into());
    }
    let kept = [&b"user."[..], b"trusted.", b"security."];
    let known = kept
        .iter()
        .any(|space| name.starts_with(space) && name.len() > space.len());
    if known || name == acl::ACCESS || name == acl::DEFAULT {
        Ok(())
    } else {
        Err(Errno::EOPNOTSUPP.into())
    }
}

/// Returns the value of an attribute that `record` may have.
pub(super) fn get(op: &Op<'_>, record: &InodeRecord, name: &[u8]) -> Result<Option<Vec<u8>>> {
    if !record.has_xattrs {
        return Ok(None);
    }
    let thing = key::xattr(record.attr.ino, op.store.hash(name), name);
    let found = op.store.newest(Table::Xattrs, &thing, op.head)?;
    Ok(found.and_then(|(_, mut value)| {
        let present = !value.is_empty();
        present.then(|| value.split_off(1))
    }))
}

impl Edit<'_> {
    /// Sets an attribute; the caller sees to `has_xattrs`.
    pub(super) fn put_xattr(&mut self, ino: Ino, name: &[u8], value: &[u8]) {
        let thing = key::xattr(ino, self.op.store.hash(name), name);
        let mut stored = Vec::with_capacity(1 + value.len());
        stored.push(PRESENT);
        stored.extend_from_slice(value);
        self.put_thing(ChangeOf::Xattr, &thing, stored);
    }

    /// Removes an attribute; ENODATA if there is none.
    pub(super) fn remove_xattr(&mut self, record: &mut InodeRecord, name: &[u8]) -> Result<()> {
        if get(self.op, record, name)?.is_none() {
            return Err(Errno::ENODATA.into());
        }
        let thing = key::xattr(record.attr.ino, self.op.store.hash(name), name);
        if record.born == self.op.head {
            self.erase_thing(ChangeOf::Xattr, &thing);
        } else {
            self.put_thing(ChangeOf::Xattr, &thing, Vec::new());
        }
        Ok(())
    }

    /// Takes back all attributes that the head itself holds of an inode that goes away.
    pub(super) fn erase_own_xattrs(&mut self, ino: Ino) -> Result<()> {
        let prefix = key::change(self.op.head, ChangeOf::Xattr, &key::xattrs_from(ino));
        let mut things = Vec::new();
        self.op
            .store
            .kv()
            .scan(Table::Changes, &prefix, &mut |found, _| {
                if !found.starts_with(&prefix) {
                    return Ok(Step::Stop);
                }
                things.push(key::parse_change(found)?.2.to_vec());
                Ok(Step::Next)
            })?;
        for thing in things {
            self.erase_thing(ChangeOf::Xattr, &thing);
        }
        Ok(())
    }
}
