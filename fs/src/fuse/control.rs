//! The hidden directory of a slot, in which any file can be reached by its inode number.
//!
//! It is in no listing. On a mount of one view, only the thread that is settling a switch finds it (see
//! [`switch`](super::switch)): to everybody else the name does not exist. In a session with slots it
//! is reached from the closed directory (see [`slots`](super::slots)). The kernel keeps none of its
//! entries, so nothing of it is left once what was opened there is closed.

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::attr::{Attr, FileKind};
use crate::error::Result;
use crate::fuse::device::Device;
use crate::fuse::hub;
use crate::fuse::node::{Node, SlotId};
use crate::fuse::service::{Context, Entry};
use crate::fuse::slot::Gate;
use crate::fuse::sys;
use crate::id::Ino;

/// Name of the directory in the root.
const NAME: &str = ".branchpoint-inodes";

/// Opens the directory on the mount at `root` with `device`. Only the settling thread can.
pub(super) fn open(root: &Path, device: Device) -> Option<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let dir = nix::fcntl::open(&root.join(NAME), flags, Mode::empty()).ok()?;
    // Another mount may cover this one.
    let found = sys::identity_of(&dir).ok()?;
    (found.device == (device.major, device.minor) && found.ino == Node::CONTROL.0).then_some(dir)
}

/// Answers a lookup in a slot if it concerns the directory; `None` leaves it to the view.
pub(super) fn lookup(
    gate: &Gate,
    context: Context,
    parent: Node,
    name: &[u8],
) -> Option<Result<Option<Entry>>> {
    let settles = gate
        .settling
        .as_ref()
        .is_some_and(|s| s.thread == context.thread);
    if parent.ino == Node::CONTROL {
        // Elsewhere than on a mount of one view, whoever got as far as here may be here.
        let allowed = settles || parent.slot != SlotId::FIRST;
        return Some(if allowed {
            inode(gate, parent.slot, name).map(Some)
        } else {
            Ok(None)
        });
    }
    if settles && parent.ino == Ino::ROOT && name == NAME.as_bytes() {
        let node = Node {
            slot: parent.slot,
            ino: Node::CONTROL,
        };
        return Some(Ok(Some(Entry {
            node: node.raw()?,
            attr: attr(0),
            keep: false,
        })));
    }
    None
}

/// Returns the attributes of the directory, which is `owner`'s.
pub(super) fn attr(owner: u32) -> Attr {
    hub::closed_directory(Node::CONTROL, owner)
}

fn inode(gate: &Gate, slot: SlotId, name: &[u8]) -> Result<Entry> {
    let ino = std::str::from_utf8(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .map(Ino);
    let ino = ino.ok_or(Errno::ENOENT)?;
    let attr = gate.view.getattr(ino)?;
    if attr.kind == FileKind::Directory {
        // The kernel knows one place for each directory, and would move it here.
        return Err(Errno::ENOENT.into());
    }
    let node = Node { slot, ino }.raw().ok_or(Errno::EOVERFLOW)?;
    gate.view.remember(ino, 1);
    Ok(Entry {
        node,
        attr,
        keep: false,
    })
}
