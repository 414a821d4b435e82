//! What any transport calls: the operations of the protocol, free of the transport's types.
//!
//! A request names its file by [`Node`]; the service finds the slot, enters its gate, calls the view
//! and says what the kernel may keep. Errors stay the crate's; [`Error::errno`] turns them into
//! numbers in the transport.
//!
//! [`Error::errno`]: crate::error::Error::errno

mod attributes;
mod data;
mod names;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use parking_lot::RwLockReadGuard;

pub(super) use data::WriteOrigin;
pub(super) use names::NewFile;

use crate::attr::{Attr, Caller};
use crate::error::{Error, Result};
use crate::fuse::node::{Node, SlotId};
use crate::fuse::refresh::Refresher;
use crate::fuse::slot::{Gate, Slot, Slots};
use crate::id::Ino;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    /// On whose behalf.
    pub(super) caller: Caller,
    /// The asking thread, as the kernel numbers it; 0 for the kernel itself.
    pub(super) thread: u32,
}

/// Answer to everything that finds or makes a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// What the kernel is to call it.
    pub(super) node: u64,
    /// Its attributes.
    pub(super) attr: Attr,
    /// Whether the kernel may keep the name.
    pub(super) keep: bool,
}

/// The operations of a session on its slots.
#[derive(Debug)]
pub(super) struct Service {
    slots: Slots,
    /// Writes from the kernel's cache that failed, ever: the program may be gone by then.
    failed_writes: AtomicU64,
    /// Set once the session runs.
    refresher: OnceLock<Refresher>,
    /// Thread that only wants pages written when it calls fsync, not the disk to have them.
    flusher: AtomicU32,
}

impl Service {
    /// Makes the service of a session that shows `slot` only.
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        Self {
            slots: Slots::single(slot),
            failed_writes: AtomicU64::new(0),
            flusher: AtomicU32::new(0),
            refresher: OnceLock::new(),
        }
    }

    /// From now on, lets the kernel know when a file takes more or less space.
    pub(super) fn refresh_with(&self, refresher: Refresher) {
        let _ = self.refresher.set(refresher);
    }

    /// Returns how many writes from the kernel's cache have failed so far.
    pub(super) fn failed_writes(&self) -> u64 {
        self.failed_writes.load(Ordering::Acquire)
    }

    /// Makes fsync calls of `thread` mean "to the view", not "to the disk"; 0 ends it.
    pub(super) fn set_flusher(&self, thread: u32) {
        self.flusher.store(thread, Ordering::Release);
    }

    /// Runs `operation` on the view of `node`.
    fn with<T>(
        &self,
        node: Node,
        operation: impl FnOnce(RwLockReadGuard<'_, Gate>, Ino) -> Result<T>,
    ) -> Result<T> {
        let slot = self.slots.get(node.slot)?;
        operation(slot.enter(), node.ino)
    }

    /// Like [`Service::with`] for operations on the file itself, where "no such inode" means that
    /// the kernel's knowledge is stale.
    fn with_file<T>(
        &self,
        node: Node,
        operation: impl FnOnce(RwLockReadGuard<'_, Gate>, Ino) -> Result<T>,
    ) -> Result<T> {
        self.with(node, operation).map_err(|error| match error {
            Error::Posix(Errno::ENOENT) => Error::Posix(Errno::ESTALE),
            other => other,
        })
    }

    /// Hands `attr` to the kernel under a name that it may keep, and counts that it knows the inode.
    fn entry(gate: &Gate, slot: SlotId, attr: Attr) -> Result<Entry> {
        let entry = Self::entry_counted(slot, attr)?;
        gate.view.remember(attr.ino, 1);
        Ok(entry)
    }

    /// The same for an inode that the view has counted already.
    fn entry_counted(slot: SlotId, attr: Attr) -> Result<Entry> {
        let node = Node {
            slot,
            ino: attr.ino,
        }
        .raw()
        .ok_or(Errno::EOVERFLOW)?;
        Ok(Entry {
            node,
            attr,
            keep: true,
        })
    }

    /// Returns the inode of `other`, which must be seen through the same slot as `node`.
    fn same_slot(node: Node, other: Node) -> Result<Ino> {
        if node.slot == other.slot {
            Ok(other.ino)
        } else {
            Err(Errno::EXDEV.into())
        }
    }
}
