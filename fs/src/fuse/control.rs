//! The hidden directory in which any inode can be reached by its number.
//!
//! It is in no listing, and only the thread that is settling a switch finds it (see
//! [`switch`](super::switch)): to everybody else the name does not exist. The kernel keeps none of its
//! entries, so nothing of it is left once the thread has closed what it opened there.

use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::attr::{Attr, FileKind, Timestamp};
use crate::error::Result;
use crate::fuse::device::Device;
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

/// Answers a lookup if it concerns the directory; `None` leaves it to the view.
pub(super) fn lookup(
    gate: &Gate,
    context: Context,
    parent: Ino,
    name: &[u8],
) -> Option<Result<Option<Entry>>> {
    let allowed = gate
        .settling
        .as_ref()
        .is_some_and(|s| s.thread == context.thread);
    if parent == Node::CONTROL {
        return Some(if allowed { inode(gate, name) } else { Ok(None) });
    }
    if allowed && parent == Ino::ROOT && name == NAME.as_bytes() {
        let node = Node {
            slot: SlotId::FIRST,
            ino: Node::CONTROL,
        }
        .raw()?;
        return Some(Ok(Some(Entry {
            node,
            attr: ATTR,
            keep: false,
        })));
    }
    None
}

/// Returns the attributes of the directory if `ino` is it.
pub(super) fn getattr(ino: Ino) -> Option<Attr> {
    (ino == Node::CONTROL).then_some(ATTR)
}

fn inode(gate: &Gate, name: &[u8]) -> Result<Option<Entry>> {
    let ino = std::str::from_utf8(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .map(Ino);
    let ino = ino.ok_or(Errno::ENOENT)?;
    let attr = gate.view.getattr(ino)?;
    let node = Node {
        slot: SlotId::FIRST,
        ino,
    }
    .raw()
    .ok_or(Errno::EOVERFLOW)?;
    gate.view.remember(ino, 1);
    Ok(Some(Entry {
        node,
        attr,
        keep: false,
    }))
}

const EPOCH: Timestamp = Timestamp { secs: 0, nanos: 0 };

const ATTR: Attr = Attr {
    ino: Node::CONTROL,
    kind: FileKind::Directory,
    perm: 0o700,
    nlink: 2,
    uid: 0,
    gid: 0,
    rdev: 0,
    size: 0,
    blocks: 0,
    atime: EPOCH,
    mtime: EPOCH,
    ctime: EPOCH,
    btime: EPOCH,
};
