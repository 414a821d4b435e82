//! The annex: a second directory of every view, beside the root, that no mount shows.
//!
//! What belongs to a checkpoint and is no file of the tree lies there: the image of the processes and,
//! one object each, their address spaces (byte offset = virtual address). They are versioned, found,
//! verified and collected as files are, because they are files; operations on whole trees (diff, merge,
//! apply, export) begin at the root and never see them.

use nix::errno::Errno;

use crate::attr::{Attr, Caller, FileKind, Timestamp};
use crate::error::{Error, Result};
use crate::id::{BLOCK_BYTES, Ino, LayerId};
use crate::layout::record::InodeRecord;
use crate::tree;
use crate::view::View;
use crate::view::edit::Edit;

impl View {
    /// Returns the object called `name`; [`None`] if there is none.
    ///
    /// # Errors
    /// Those of the store.
    pub fn annex_find(&self, name: &[u8]) -> Result<Option<Attr>> {
        match self.lookup(Ino::ANNEX, name) {
            Ok(attr) => Ok(Some(attr)),
            // ESTALE: nothing was ever put in the annex of this line.
            Err(Error::Posix(Errno::ENOENT | Errno::ESTALE)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns all objects by name.
    ///
    /// # Errors
    /// Those of the store.
    pub fn annex_list(&self) -> Result<Vec<(Vec<u8>, Ino)>> {
        match tree::children(self, Ino::ANNEX) {
            Ok(entries) => Ok(entries
                .into_iter()
                .map(|entry| (entry.name, entry.ino))
                .collect()),
            Err(Error::Posix(Errno::ESTALE)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Makes an empty object. [`View::write`] fills it, [`View::read`] reads it.
    ///
    /// # Errors
    /// EEXIST, and as [`View::mknod`].
    pub fn annex_create(&self, name: &[u8]) -> Result<Ino> {
        self.ensure_annex()?;
        let attr = self.mknod(
            Caller::ROOT,
            Ino::ANNEX,
            name,
            FileKind::Regular,
            0o600,
            0,
            0,
        )?;
        Ok(attr.ino)
    }

    /// Removes everything from the annex, as far as this head is concerned.
    ///
    /// # Errors
    /// Those of the store.
    pub fn annex_clear(&self) -> Result<()> {
        for (name, _) in self.annex_list()? {
            self.unlink(Ino::ANNEX, &name)?;
        }
        Ok(())
    }

    fn ensure_annex(&self) -> Result<()> {
        let op = self.changing()?;
        let _locks = self.locks.exclusive(&[Ino::ANNEX]);
        match op.inode(Ino::ANNEX) {
            Ok(_) => Ok(()),
            Err(Error::Posix(Errno::ESTALE)) => {
                let mut edit = Edit::new(&op);
                let record = empty_annex(op.head, edit.now);
                edit.put_inode(record);
                edit.commit()
            }
            Err(error) => Err(error),
        }
    }
}

fn empty_annex(born: LayerId, now: Timestamp) -> InodeRecord {
    InodeRecord {
        attr: Attr {
            ino: Ino::ANNEX,
            kind: FileKind::Directory,
            perm: 0o700,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: BLOCK_BYTES,
            blocks: BLOCK_BYTES / 512,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        },
        parent: Ino::ANNEX,
        name: Vec::new(),
        born,
        in_base: false,
        has_xattrs: false,
        target: Vec::new(),
        cuts: Vec::new(),
    }
}
