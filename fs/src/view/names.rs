//! Looking things up and reading attributes.

use nix::errno::Errno;

use crate::attr::{Attr, FileKind};
use crate::error::Result;
use crate::id::Ino;
use crate::kv::Table;
use crate::layout::key;
use crate::view::View;

impl View {
    /// Returns what `name` in directory `parent` is.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENAMETOOLONG; ESTALE if the head has no such directory.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let op = self.reading()?;
        let dir = op.directory(parent)?;
        let ino = match name {
            b"." => parent,
            b".." => dir.record.parent,
            _ => op.name(parent, name)?.require()?.ino,
        };
        Ok(self.with_newer_atime(op.inode(ino)?.record.attr))
    }

    /// Returns the attributes of an inode.
    ///
    /// # Errors
    /// ESTALE if the head has no such inode; so do all operations on inodes.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        let op = self.reading()?;
        Ok(self.with_newer_atime(op.inode(ino)?.record.attr))
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL if it is something else.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let op = self.reading()?;
        let version = op.inode(ino)?;
        match version.record.attr.kind {
            FileKind::Symlink => Ok(version.record.target.clone()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Returns one path of an inode below the root, without leading slash; [`None`] if it has none.
    ///
    /// # Errors
    /// Those of the store.
    pub fn path_of(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        let op = self.reading()?;
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = op.inode(ino)?;
        if ino == Ino::ANNEX {
            return Ok(None);
        }
        while at.record.attr.ino != Ino::ROOT {
            if at.record.attr.nlink == 0 {
                return Ok(None);
            }
            let (parent, name) = (at.record.parent, at.record.name.clone());
            let here = op.name(parent, &name)?.record;
            if here.is_none_or(|record| record.ino != at.record.attr.ino) {
                return Ok(None);
            }
            if parent.is_annex() {
                return Ok(None);
            }
            parts.push(name);
            at = op.inode(parent)?;
        }
        parts.reverse();
        Ok(Some(parts.join(&b'/')))
    }

    /// Returns all names of an inode: pairs of directory and name, the first one first.
    ///
    /// # Errors
    /// Those of the store.
    pub fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Vec<u8>)>> {
        let op = self.reading()?;
        let version = op.inode(ino)?;
        let mut names = vec![(version.record.parent, version.record.name.clone())];
        let prefix = key::inode(ino);
        let mut visit = |thing: &[u8], _, value: &[u8]| {
            if !value.is_empty() {
                let (_, parent, name) = key::parse_link(thing)?;
                names.push((parent, name.to_vec()));
            }
            Ok(true)
        };
        op.store
            .scan_versions(Table::Links, &prefix, &prefix, op.head, &mut visit)?;
        Ok(names)
    }
}
