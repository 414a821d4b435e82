//! A slot: the place through which one view is seen, with the gate at which another takes over.

use std::collections::HashMap;
use std::sync::Arc;

use nix::errno::Errno;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::error::Result;
use crate::fuse::node::SlotId;
use crate::id::Ino;
use crate::view::View;

/// One view in a session. Every operation runs under the gate's read lock, so whoever holds its
/// write lock knows that no operation is under way.
#[derive(Debug)]
pub(super) struct Slot {
    gate: RwLock<Gate>,
}

/// What lies behind the gate.
#[derive(Debug)]
pub(super) struct Gate {
    /// The view that is shown.
    pub(super) view: Arc<View>,
    /// Set while the kernel still holds pages of the view that was shown before.
    pub(super) settling: Option<Settling>,
}

/// The time between putting another view in place and the kernel having forgotten the old one.
#[derive(Debug)]
pub(super) struct Settling {
    /// The view whose pages may still arrive.
    pub(super) old: Arc<View>,
    /// Thread that brings the kernel's attributes in line, as the kernel numbers it.
    pub(super) thread: u32,
    /// Inodes whose cached pages are not yet known to be gone, with whether a write of such a page
    /// has arrived.
    stale: Mutex<HashMap<Ino, bool>>,
}

impl Settling {
    /// Starts settling: cached pages of `stale` belong to `old`.
    pub(super) fn new(old: Arc<View>, thread: u32, stale: impl Iterator<Item = Ino>) -> Self {
        Self {
            old,
            thread,
            stale: Mutex::new(stale.map(|ino| (ino, false)).collect()),
        }
    }

    /// Returns whether a page of `ino` that the kernel writes back may be one of the old view.
    pub(super) fn catches(&self, ino: Ino) -> bool {
        self.stale
            .lock()
            .get_mut(&ino)
            .map(|seen| *seen = true)
            .is_some()
    }

    /// Ends the suspicion against `ino`. Returns whether a write of it was caught.
    pub(super) fn release(&self, ino: Ino) -> bool {
        self.stale.lock().remove(&ino).unwrap_or(false)
    }
}

impl Slot {
    /// Makes a slot that shows `view`.
    pub(super) fn new(view: Arc<View>) -> Self {
        Self {
            gate: RwLock::new(Gate {
                view,
                settling: None,
            }),
        }
    }

    /// Enters the gate for one operation.
    pub(super) fn enter(&self) -> RwLockReadGuard<'_, Gate> {
        self.gate.read()
    }

    /// Returns the view that is shown.
    pub(super) fn view(&self) -> Arc<View> {
        self.gate.read().view.clone()
    }

    /// Waits until no operation is under way and runs `change` while none can start. `change` must
    /// not touch the mount: whoever serves it is waiting at the gate.
    pub(super) fn exchange<T>(&self, change: impl FnOnce(&mut Gate) -> Result<T>) -> Result<T> {
        change(&mut self.gate.write())
    }
}

/// The slots of a session.
#[derive(Debug)]
pub(super) struct Slots {
    list: RwLock<Vec<Option<Arc<Slot>>>>,
}

impl Slots {
    /// Makes the slots of a session that shows one view.
    pub(super) fn single(slot: Arc<Slot>) -> Self {
        Self {
            list: RwLock::new(vec![Some(slot)]),
        }
    }

    /// Returns a slot; one that is gone is stale to the kernel.
    pub(super) fn get(&self, id: SlotId) -> Result<Arc<Slot>> {
        let index = usize::try_from(id.0).map_err(|_| Errno::ESTALE)?;
        let slot = self.list.read().get(index).cloned().flatten();
        Ok(slot.ok_or(Errno::ESTALE)?)
    }
}
