//! Changing attributes.

use nix::errno::Errno;

use crate::attr::{Attr, Caller, FileKind, SetAttr, SetTime};
use crate::error::Result;
use crate::id::Ino;
use crate::layout::record::InodeRecord;
use crate::view::View;
use crate::view::acl;
use crate::view::edit::Edit;

const CAPABILITY: &[u8] = b"security.capability";

impl View {
    /// Changes attributes. The kernel has checked who may; set-user-id bits and capabilities that
    /// may not outlive a change of owner or content are dropped here.
    ///
    /// # Errors
    /// EISDIR, EINVAL for a size of what is no regular file; EFBIG; ESTALE.
    pub fn setattr(&self, caller: Caller, ino: Ino, change: &SetAttr) -> Result<Attr> {
        let op = self.changing()?;
        let _locks = self.locks.exclusive(&[ino]);
        if change.size.is_some() {
            op.regular(ino)?;
        }
        let mut edit = Edit::new(&op);
        let mut record = edit.inode(ino)?;
        if let Some(size) = change.size {
            if caller.uid != 0 {
                drop_privileges(&mut edit, &mut record)?;
            }
            edit.set_size(&mut record, size)?;
            record.attr.mtime = edit.now;
        }
        if change.uid.is_some() || change.gid.is_some() {
            record.attr.uid = change.uid.unwrap_or(record.attr.uid);
            record.attr.gid = change.gid.unwrap_or(record.attr.gid);
            if record.attr.kind != FileKind::Directory {
                drop_privileges(&mut edit, &mut record)?;
            }
        }
        if let Some(perm) = change.perm {
            record.attr.perm = perm & 0o7777;
            acl::follow_mode(&mut edit, &record)?;
        }
        let now = edit.now;
        let at = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        if let Some(time) = change.atime {
            record.attr.atime = at(time);
            // The one time that may go backwards: a newer one in memory must not win over it.
            self.atimes.lock().remove(&ino);
        }
        if let Some(time) = change.mtime {
            record.attr.mtime = at(time);
        }
        record.attr.ctime = change.ctime.unwrap_or(now);
        let attr = record.attr;
        edit.put_inode(record);
        edit.commit()?;
        Ok(attr)
    }
}

/// Drops set-user-id, set-group-id where the group may execute, and file capabilities.
pub(super) fn drop_privileges(edit: &mut Edit<'_>, record: &mut InodeRecord) -> Result<()> {
    record.attr.perm &= !libc::S_ISUID;
    if record.attr.perm & libc::S_IXGRP != 0 {
        record.attr.perm &= !libc::S_ISGID;
    }
    match edit.remove_xattr(record, CAPABILITY) {
        Err(error) if error.errno() == Errno::ENODATA => Ok(()),
        other => other,
    }
}
