//! A slot: the place through which one view is seen, with the gate at which another takes over.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::error::Result;
use crate::id::Ino;
use crate::view::View;

/// One view in a session. Every operation runs under the gate's read lock, so whoever holds its
/// write lock knows that no operation is under way.
#[derive(Debug)]
pub(super) struct Slot {
    gate: RwLock<Gate>,
    /// Writes from the kernel's cache that failed, ever: the program may be gone by then.
    failed_writes: AtomicU64,
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
            failed_writes: AtomicU64::new(0),
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

    /// Returns how many writes from the kernel's cache have failed so far.
    pub(super) fn failed_writes(&self) -> u64 {
        self.failed_writes.load(Ordering::Acquire)
    }

    /// Counts a failed write from the kernel's cache.
    pub(super) fn count_failed_write(&self) {
        self.failed_writes.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until no operation is under way and runs `change` while none can start. `change` must
    /// not touch the mount: whoever serves it is waiting at the gate.
    pub(super) fn exchange<T>(&self, change: impl FnOnce(&mut Gate) -> Result<T>) -> Result<T> {
        change(&mut self.gate.write())
    }
}
