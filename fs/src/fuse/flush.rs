//! Getting into the view what the kernel still holds in its cache.
//!
//! The kernel writes an inode's pages when a descriptor is closed and when a mapping goes away. What
//! can be missing is what programs wrote through descriptors and mappings that they still have. `sync`
//! and `syncfs` start writing that back and do not wait for it on FUSE, so the waiting is done here:
//!
//! 1. The kernel's lists of inodes with unwritten pages or times tell whether there is anything to
//!    do; mostly there is not, and a look costs a few microseconds.
//! 2. Otherwise `syncfs` starts the writing. When the lists are empty, everything is queued for the
//!    daemon; when then no request is outstanding, everything has arrived.
//! 3. Where the lists cannot be read, or never get empty because some program writes on and on, every
//!    file that is open for writing or mapped shared and writable is fsynced, which waits.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::fuse::device::{Device, Gauge};
use crate::fuse::holders;
use crate::fuse::mount::Mount;
use crate::fuse::session::Session;
use crate::fuse::slot::Slot;

/// How long the lists may take to get empty. Queueing what a mount may hold unwritten takes less; if
/// it takes longer, somebody writes on and on.
const QUEUE_TIMEOUT: Duration = Duration::from_millis(50);

/// How long the queue may take to be worked off, if other programs keep adding to it.
const WORK_TIMEOUT: Duration = Duration::from_millis(500);

/// How long to try without giving up the processor. A request takes 10–50 µs.
const BUSY_WAIT: Duration = Duration::from_micros(200);

impl Mount {
    /// Waits until everything that programs have written so far, through mappings as well, is in the
    /// view. Must not be called from a thread that serves this mount.
    ///
    /// Fails if the view refused some of it (a full disk, say): the kernel has dropped that.
    pub fn flush(&self) -> Result<()> {
        let _one_at_a_time = self.settled.lock();
        self.flush_settled()
    }

    /// [`Mount::flush`] for whoever holds the lock already.
    pub(super) fn flush_settled(&self) -> Result<()> {
        let session = &self.session;
        session.flushing(&self.slot, || {
            if session.drained() {
                return;
            }
            if let Some(root) = session.open_root() {
                let _ = nix::unistd::syncfs(&root);
            }
            session.sync_writable_files(holders::processes());
        })
    }
}

impl Session {
    /// Flushes one slot of many, for the processes that use it. The others' unwritten pages are
    /// nobody's business here and must not be waited for, so after a look at the lists this goes straight
    /// to step 3.
    pub(super) fn flush_slot(&self, slot: &Slot, processes: &[u32]) -> Result<()> {
        self.flushing(slot, || {
            if !self.gauge.as_ref().is_some_and(is_clean) {
                let proc = |id: &u32| Path::new("/proc").join(id.to_string());
                self.sync_writable_files(processes.iter().map(proc));
            }
        })
    }

    /// Runs `work` and fails if writes of `slot` failed meanwhile.
    fn flushing(&self, slot: &Slot, work: impl FnOnce()) -> Result<()> {
        let failed_before = slot.failed_writes();
        work();
        let failed = slot.failed_writes() - failed_before;
        if failed > 0 {
            let what = format!(
                "store {failed} writes of programs on '{}'",
                self.dir.display()
            );
            let source = std::io::Error::other("the view refused them; see the log");
            return Err(Error::io(what, source));
        }
        Ok(())
    }

    /// Steps 1 and 2. Returns whether nothing is left, for certain.
    fn drained(&self) -> bool {
        let Some(gauge) = &self.gauge else {
            return false;
        };
        if is_clean(gauge) {
            return true;
        }
        // Opened for this moment only: a descriptor kept would make the mount busy.
        let Some(root) = self.open_root() else {
            return false;
        };
        let queued = within(QUEUE_TIMEOUT, || {
            let empty = matches!(gauge.dirty_inodes(), Ok(0));
            if !empty {
                // Costs nothing if the writing is under way.
                let _ = nix::unistd::syncfs(&root);
            }
            empty
        });
        queued && within(WORK_TIMEOUT, || matches!(gauge.requests(), Ok(0)))
    }

    /// Step 3, for the files of these processes.
    fn sync_writable_files(&self, processes: impl Iterator<Item = PathBuf>) {
        let thread = nix::unistd::gettid().as_raw().cast_unsigned();
        self.service.as_flusher(thread, || {
            holders::for_each_writable(processes, self.device, &mut |file| {
                // An error here was counted where the write failed.
                let _ = file.sync_data();
            });
        });
    }

    /// Opens the root, unless something else covers it by now.
    fn open_root(&self) -> Option<File> {
        let same = Device::of(&self.dir).is_ok_and(|device| device == self.device);
        same.then(|| File::open(&self.dir).ok()).flatten()
    }
}

/// Asks again and again until `done` says yes; returns whether it did in time.
fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        match start.elapsed() {
            waited if waited > limit => return false,
            waited if waited > BUSY_WAIT => std::thread::sleep(Duration::from_micros(100)),
            _ => std::thread::yield_now(),
        }
    }
    true
}

/// Returns whether the kernel holds nothing of the mount. The order matters: an inode leaves the lists
/// after its writes were queued.
fn is_clean(gauge: &Gauge) -> bool {
    matches!(gauge.dirty_inodes(), Ok(0)) && matches!(gauge.requests(), Ok(0))
}
