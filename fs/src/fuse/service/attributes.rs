//! Attributes, extended attributes and the numbers of the whole filesystem.

use crate::attr::{Attr, SetAttr, SetTime, Statfs, XattrMode};
use crate::error::Result;
use crate::fuse::control;
use crate::fuse::hub;
use crate::fuse::node::Node;
use crate::fuse::service::{Context, Service};

impl Service {
    /// Returns the attributes of `node`.
    pub(in crate::fuse) fn getattr(&self, node: Node) -> Result<Attr> {
        if let Some(hub) = self.hub(node) {
            return Ok(hub.attr());
        }
        if node.ino == Node::CONTROL {
            return Ok(control::attr(nix::unistd::geteuid().as_raw()));
        }
        self.with_file(node, |gate, ino| gate.view.getattr(ino))
    }

    /// Changes the attributes of `node`.
    pub(in crate::fuse) fn setattr(
        &self,
        context: Context,
        node: Node,
        change: &SetAttr,
    ) -> Result<Attr> {
        self.with_file(node, |gate, ino| {
            if let Some(settling) = &gate.settling {
                // The switch tells the kernel by a truncation what size the file has now.
                if settling.thread == context.thread {
                    return gate.view.getattr(ino);
                }
                // Time stamps that belong to the old view's pages go where those pages go.
                if is_time_of_cached_writes(change) && settling.catches(ino) {
                    let _ = settling.old.setattr(context.caller, ino, change);
                    return gate.view.getattr(ino);
                }
            }
            if is_time_of_cached_writes(change) {
                let attr = gate.view.getattr(ino)?;
                // The kernel tells the new change time of a file after each unlink, in a message of
                // its own. Nobody can look up a file without names again, so there is no point in
                // storing it.
                if attr.nlink == 0 && change.mtime == Some(SetTime::At(attr.mtime)) {
                    return Ok(Attr {
                        ctime: change.ctime.unwrap_or(attr.ctime),
                        ..attr
                    });
                }
            }
            gate.view.setattr(context.caller, ino, change)
        })
    }

    /// Returns an extended attribute.
    pub(in crate::fuse) fn getxattr(&self, node: Node, name: &[u8]) -> Result<Vec<u8>> {
        self.with_file(node, |gate, ino| gate.view.getxattr(ino, name))
    }

    /// Sets an extended attribute.
    pub(in crate::fuse) fn setxattr(
        &self,
        context: Context,
        node: Node,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.with_file(node, |gate, ino| {
            gate.view.setxattr(context.caller, ino, name, value, mode)
        })
    }

    /// Returns the names of the extended attributes, each with a NUL at its end.
    pub(in crate::fuse) fn listxattr(&self, node: Node) -> Result<Vec<u8>> {
        self.with_file(node, |gate, ino| {
            let mut list = Vec::new();
            for name in gate.view.listxattr(ino)? {
                list.extend_from_slice(&name);
                list.push(0);
            }
            Ok(list)
        })
    }

    /// Removes an extended attribute.
    pub(in crate::fuse) fn removexattr(&self, node: Node, name: &[u8]) -> Result<()> {
        self.with_file(node, |gate, ino| gate.view.removexattr(ino, name))
    }

    /// Returns the numbers of the filesystem.
    pub(in crate::fuse) fn statfs(&self, node: Node) -> Result<Statfs> {
        if self.hub(node).is_some() {
            return Ok(hub::NO_SPACE);
        }
        self.with(node, |gate, _| gate.view.statfs())
    }
}

/// Returns whether `change` is what the kernel sends when it writes back an inode: the times of
/// last modification and change that it kept itself, and nothing else.
fn is_time_of_cached_writes(change: &SetAttr) -> bool {
    let SetAttr {
        perm,
        uid,
        gid,
        size,
        atime,
        mtime,
        ctime,
    } = change;
    perm.is_none()
        && uid.is_none()
        && gid.is_none()
        && size.is_none()
        && atime.is_none()
        && matches!(mtime, Some(SetTime::At(_)))
        && ctime.is_some()
}
