//! Inodes that have lost their last name.

use std::sync::Arc;

use crate::error::Result;
use crate::id::Ino;
use crate::kv::Table;
use crate::layout::key::{self, ChangeOf};
use crate::view::View;
use crate::view::edit::Edit;

impl View {
    /// Ends an inode that lost its last name in this edit: now, or, if somebody outside still
    /// uses it, when they let go of it.
    pub(super) fn end_inode(&self, edit: &mut Edit<'_>, ino: Ino) -> Result<()> {
        if self.knows(ino) {
            edit.put_thing(ChangeOf::Orphan, &key::inode(ino), Vec::new());
            return Ok(());
        }
        erase_inode(edit, ino)
    }

    /// Called when nobody outside refers to `ino` any more.
    pub(super) fn remove_if_orphan(&self, ino: Ino) {
        if self.read_only {
            return;
        }
        let remove = || -> Result<()> {
            let Ok(op) = self.changing() else {
                return Ok(());
            };
            let _locks = self.locks.exclusive(&[ino]);
            let version = op.inode(ino)?;
            if version.record.attr.nlink > 0 || self.knows(ino) {
                return Ok(());
            }
            let mut edit = Edit::new(&op);
            erase_inode(&mut edit, ino)?;
            edit.erase_thing(ChangeOf::Orphan, &key::inode(ino));
            edit.commit()
        };
        if let Err(error) = remove()
            && error.errno() != nix::errno::Errno::ESTALE
        {
            // The space is lost until the layer is collected, nothing else.
            log::warn!("cannot remove inode {ino}, which has no name left: {error}");
        }
    }

    /// Removes what a crash left behind: inodes without names that nobody can hold any more. A mount
    /// that is about to show this view still holds what it holds of `others`; that is removed when it
    /// lets go.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn remove_orphans(&self, others: &[Arc<View>]) -> Result<()> {
        let mut left = Vec::new();
        {
            let op = self.reading()?;
            let from = key::change(op.head, ChangeOf::Orphan, &[]);
            op.store.kv().scan(Table::Changes, &from, &mut |found, _| {
                if !found.starts_with(&from) {
                    return Ok(crate::kv::Step::Stop);
                }
                left.push(key::leading_ino(Table::Changes, &found[from.len()..])?);
                Ok(crate::kv::Step::Next)
            })?;
        }
        left.retain(|ino| !others.iter().any(|other| other.knows(*ino)));
        for ino in left {
            self.remove_if_orphan(ino);
        }
        Ok(())
    }
}

fn erase_inode(edit: &mut Edit<'_>, ino: Ino) -> Result<()> {
    let record = edit.inode(ino)?;
    if record.attr.kind == crate::attr::FileKind::Regular {
        edit.erase_own_blocks(ino, 0)?;
    }
    if record.has_xattrs {
        edit.erase_own_xattrs(ino)?;
    }
    edit.remove_inode(ino);
    Ok(())
}
