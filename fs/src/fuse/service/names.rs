//! Operations that find, make and remove names, and list directories.

use nix::errno::Errno;

use crate::attr::{Attr, DirEntry, FileKind, RenameMode};
use crate::error::{Error, Result};
use crate::fuse::control;
use crate::fuse::hub;
use crate::fuse::node::Node;
use crate::fuse::service::{Context, Entry, Service};

/// What a new file is to be.
#[derive(Clone, Copy, Debug)]
pub(in crate::fuse) struct NewFile {
    /// Its kind.
    pub(in crate::fuse) kind: FileKind,
    /// Permission bits that were asked for.
    pub(in crate::fuse) perm: u32,
    /// The caller's mask, which a default access control list overrides.
    pub(in crate::fuse) umask: u32,
    /// Device number, for devices.
    pub(in crate::fuse) rdev: u32,
}

impl Service {
    /// Finds `name`; `None` if it does not exist.
    pub(in crate::fuse) fn lookup(
        &self,
        context: Context,
        parent: Node,
        name: &[u8],
    ) -> Result<Option<Entry>> {
        if let Some(hub) = self.hub(parent) {
            return hub.lookup(context, name).map(Some);
        }
        self.with(parent, |gate, ino| {
            if let Some(found) = control::lookup(&gate, context, parent, name) {
                return found;
            }
            match gate.view.lookup(ino, name) {
                Ok(attr) => Self::entry(&gate, parent.slot, attr).map(Some),
                Err(Error::Posix(Errno::ENOENT)) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    /// Drops `count` references of the kernel to `node`.
    pub(in crate::fuse) fn forget(&self, node: Node, count: u64) {
        if node.ino == Node::CONTROL {
            return;
        }
        if let Ok(slot) = self.slot(node.slot) {
            slot.enter().view.forget(node.ino, count);
        }
    }

    /// Makes a file of any kind except directories and symbolic links.
    pub(in crate::fuse) fn mknod(
        &self,
        context: Context,
        parent: Node,
        name: &[u8],
        file: NewFile,
    ) -> Result<Entry> {
        self.with(parent, |gate, ino| {
            let NewFile {
                kind,
                perm,
                umask,
                rdev,
            } = file;
            let attr = gate
                .view
                .mknod(context.caller, ino, name, kind, perm, umask, rdev)?;
            Self::entry(&gate, parent.slot, attr)
        })
    }

    /// Makes a file without a name, which is gone when the kernel forgets it unless it gets one.
    pub(in crate::fuse) fn create_unnamed(
        &self,
        context: Context,
        parent: Node,
        perm: u32,
        umask: u32,
    ) -> Result<Entry> {
        self.with(parent, |gate, ino| {
            let attr = gate.view.create_unnamed(context.caller, ino, perm, umask)?;
            Self::entry_counted(parent.slot, attr)
        })
    }

    /// Makes a directory.
    pub(in crate::fuse) fn mkdir(
        &self,
        context: Context,
        parent: Node,
        name: &[u8],
        perm: u32,
        umask: u32,
    ) -> Result<Entry> {
        self.with(parent, |gate, ino| {
            let attr = gate.view.mkdir(context.caller, ino, name, perm, umask)?;
            Self::entry(&gate, parent.slot, attr)
        })
    }

    /// Makes a symbolic link.
    pub(in crate::fuse) fn symlink(
        &self,
        context: Context,
        parent: Node,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry> {
        self.with(parent, |gate, ino| {
            let attr = gate.view.symlink(context.caller, ino, name, target)?;
            Self::entry(&gate, parent.slot, attr)
        })
    }

    /// Gives `node` another name.
    pub(in crate::fuse) fn link(&self, node: Node, parent: Node, name: &[u8]) -> Result<Entry> {
        let ino = Self::same_slot(parent, node)?;
        self.with(parent, |gate, parent_ino| {
            let attr = gate.view.link(ino, parent_ino, name)?;
            Self::entry(&gate, parent.slot, attr)
        })
    }

    /// Returns the target of a symbolic link.
    pub(in crate::fuse) fn readlink(&self, node: Node) -> Result<Vec<u8>> {
        self.with_file(node, |gate, ino| gate.view.readlink(ino))
    }

    /// Removes the name of something that is not a directory.
    pub(in crate::fuse) fn unlink(&self, parent: Node, name: &[u8]) -> Result<()> {
        self.with(parent, |gate, ino| gate.view.unlink(ino, name))
    }

    /// Removes an empty directory.
    pub(in crate::fuse) fn rmdir(&self, parent: Node, name: &[u8]) -> Result<()> {
        self.with(parent, |gate, ino| gate.view.rmdir(ino, name))
    }

    /// Renames.
    pub(in crate::fuse) fn rename(
        &self,
        context: Context,
        from: (Node, &[u8]),
        to: (Node, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let to_ino = Self::same_slot(from.0, to.0)?;
        self.with(from.0, |gate, from_ino| {
            gate.view
                .rename(context.caller, from_ino, from.1, to_ino, to.1, mode)
        })
    }

    /// Lists a directory after `cookie` until `visit` returns false.
    pub(in crate::fuse) fn readdir(
        &self,
        node: Node,
        cookie: u64,
        visit: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        if self.hub(node).is_some() || node.ino == Node::CONTROL {
            hub::list_nothing(node.ino, cookie, visit);
            return Ok(());
        }
        self.with_file(node, |gate, ino| gate.view.readdir(ino, cookie, visit))
    }

    /// The same with attributes and the node id of each entry. Each entry that `visit` takes counts as a lookup, except `.` and
    /// `..`, which the kernel does not keep.
    pub(in crate::fuse) fn readdir_plus(
        &self,
        node: Node,
        cookie: u64,
        visit: &mut dyn FnMut(u64, &DirEntry, &Attr) -> bool,
    ) -> Result<()> {
        if self.hub(node).is_some() || node.ino == Node::CONTROL {
            // Of `.` and `..` the kernel takes the names only.
            let attr = self.getattr(node)?;
            hub::list_nothing(node.ino, cookie, &mut |entry| visit(0, entry, &attr));
            return Ok(());
        }
        self.with_file(node, |gate, ino| {
            gate.view.readdir_plus(ino, cookie, &mut |entry, attr| {
                let Some(raw) = (Node {
                    slot: node.slot,
                    ino: entry.ino,
                })
                .raw() else {
                    return true;
                };
                let taken = visit(raw, entry, attr);
                if taken && entry.name != b"." && entry.name != b".." {
                    gate.view.remember(entry.ino, 1);
                }
                taken
            })
        })
    }
}
