//! Taking names away.

use nix::errno::Errno;

use crate::attr::FileKind;
use crate::error::Result;
use crate::id::Ino;
use crate::kv::Table;
use crate::layout::key::{self, ChangeOf};
use crate::layout::record::InodeRecord;
use crate::view::View;
use crate::view::edit::Edit;
use crate::view::listing;
use crate::view::op::{Name, Op};

impl View {
    /// Removes the name of something that is not a directory.
    ///
    /// # Errors
    /// ENOENT, EISDIR, ENOTDIR.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove(parent, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY, EINVAL for `.`.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match name {
            b"." => return Err(Errno::EINVAL.into()),
            b".." => return Err(Errno::ENOTEMPTY.into()),
            _ => {}
        }
        self.remove(parent, name, true)
    }

    fn remove(&self, parent: Ino, name: &[u8], directory: bool) -> Result<()> {
        let op = self.changing()?;
        op.directory(parent)?;
        loop {
            let child = op.name(parent, name)?.require()?;
            let _locks = self.locks.exclusive(&[parent, child.ino]);
            let place = op.name(parent, name)?;
            if place.require()?.ino != child.ino {
                continue;
            }
            match (child.kind == FileKind::Directory, directory) {
                (true, false) => return Err(Errno::EISDIR.into()),
                (false, true) => return Err(Errno::ENOTDIR.into()),
                _ => {}
            }
            let mut edit = Edit::new(&op);
            let gone = drop_name(&mut edit, &place, parent, name)?;
            edit.touch_dir(parent, -i32::from(directory))?;
            if gone {
                self.end_inode(&mut edit, child.ino)?;
            }
            return edit.commit();
        }
    }
}

/// Takes one name from the inode it stands for. Returns whether that was the last one. A directory
/// must be empty.
pub(super) fn drop_name(
    edit: &mut Edit<'_>,
    place: &Name,
    parent: Ino,
    name: &[u8],
) -> Result<bool> {
    let ino = place.require()?.ino;
    let mut record = edit.inode(ino)?;
    let is_dir = record.attr.kind == FileKind::Directory;
    if is_dir {
        edit.op.directory(ino)?;
        if !listing::is_empty(edit.op, ino)? {
            return Err(Errno::ENOTEMPTY.into());
        }
    }
    edit.remove_name(place);
    record.attr.ctime = edit.now;
    record.attr.nlink = if is_dir {
        0
    } else {
        record.attr.nlink.saturating_sub(1)
    };
    let gone = record.attr.nlink == 0;
    if !gone {
        forget_name(edit, &mut record, parent, name)?;
    }
    edit.put_inode(record);
    Ok(gone)
}

/// Takes a name out of an inode's own list of names; the caller sets the link count.
pub(super) fn forget_name(
    edit: &mut Edit<'_>,
    record: &mut InodeRecord,
    parent: Ino,
    name: &[u8],
) -> Result<()> {
    let ino = record.attr.ino;
    if record.parent == parent && record.name == name {
        // Another name becomes the first one. A file of the base may have names that nobody has
        // seen yet; then the old one stays as a hint that leads nowhere.
        if let Some((parent, name)) = another_name(edit.op, ino)? {
            edit.put_thing(ChangeOf::Link, &key::link(ino, parent, &name), Vec::new());
            record.parent = parent;
            record.name = name;
        }
    } else {
        edit.put_thing(ChangeOf::Link, &key::link(ino, parent, name), Vec::new());
    }
    Ok(())
}

fn another_name(op: &Op<'_>, ino: Ino) -> Result<Option<(Ino, Vec<u8>)>> {
    let prefix = key::inode(ino);
    let mut found = None;
    op.store.scan_versions(
        Table::Links,
        &prefix,
        &prefix,
        op.head,
        &mut |thing, _, value| {
            if value.is_empty() {
                return Ok(true);
            }
            let (_, parent, name) = key::parse_link(thing)?;
            found = Some((parent, name.to_vec()));
            Ok(false)
        },
    )?;
    Ok(found)
}
