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

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use parking_lot::{Mutex, RwLockReadGuard};

pub(super) use data::WriteOrigin;
pub(super) use names::NewFile;

use crate::attr::{Attr, Caller};
use crate::error::{Error, Result};
use crate::fuse::hub::Hub;
use crate::fuse::node::{Node, SlotId};
use crate::fuse::refresh::Refresher;
use crate::fuse::slot::{Gate, Slot};
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

/// What a session shows.
#[derive(Debug)]
enum Slots {
    /// One view, in the first slot.
    One(Arc<Slot>),
    /// Many views, in slots of a closed directory.
    Many(Arc<Hub>),
}

/// The operations of a session on its slots.
#[derive(Debug)]
pub(super) struct Service {
    slots: Slots,
    /// Set once the session runs.
    refresher: OnceLock<Refresher>,
    /// Threads that only want pages written when they call fsync, not the disk to have them.
    flushers: Mutex<Vec<u32>>,
    /// How many those are, which is mostly none.
    flushers_count: AtomicUsize,
}

impl Service {
    /// Makes the service of a session that shows `slot` only.
    pub(super) fn of_one(slot: Arc<Slot>) -> Self {
        Self::new(Slots::One(slot))
    }

    /// Makes the service of a session with the slots of `hub`.
    pub(super) fn of_many(hub: Arc<Hub>) -> Self {
        Self::new(Slots::Many(hub))
    }

    fn new(slots: Slots) -> Self {
        Self {
            slots,
            refresher: OnceLock::new(),
            flushers: Mutex::default(),
            flushers_count: AtomicUsize::new(0),
        }
    }

    /// From now on, lets the kernel know when a file takes more or less space.
    pub(super) fn refresh_with(&self, refresher: Refresher) {
        let _ = self.refresher.set(refresher);
    }

    /// Makes fsync calls of `thread` mean "to the view", not "to the disk", while `work` runs.
    pub(super) fn as_flusher(&self, thread: u32, work: impl FnOnce()) {
        self.flushers.lock().push(thread);
        self.flushers_count.fetch_add(1, Ordering::AcqRel);
        work();
        self.flushers_count.fetch_sub(1, Ordering::AcqRel);
        self.flushers.lock().retain(|other| *other != thread);
    }

    fn is_flusher(&self, thread: u32) -> bool {
        self.flushers_count.load(Ordering::Acquire) > 0 && self.flushers.lock().contains(&thread)
    }

    /// Returns a slot; one that is gone is stale to the kernel.
    fn slot(&self, id: SlotId) -> Result<Arc<Slot>> {
        match &self.slots {
            Slots::One(slot) if id == SlotId::FIRST => Ok(Arc::clone(slot)),
            Slots::One(_) => Err(Errno::ESTALE.into()),
            Slots::Many(hub) => hub.get(id),
        }
    }

    /// Returns the closed directory if `node` is it.
    fn hub(&self, node: Node) -> Option<&Hub> {
        match &self.slots {
            Slots::Many(hub) if node.slot == SlotId::FIRST => Some(hub),
            _ => None,
        }
    }

    /// Runs `operation` on the view of `node`.
    fn with<T>(
        &self,
        node: Node,
        operation: impl FnOnce(RwLockReadGuard<'_, Gate>, Ino) -> Result<T>,
    ) -> Result<T> {
        let slot = self.slot(node.slot)?;
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
