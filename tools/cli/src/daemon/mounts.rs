//! What is mounted where.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use branchpoint_fs::fuse::Mount;
use branchpoint_fs::id::CheckpointId;
use parking_lot::{Mutex, MutexGuard};

use crate::mountinfo::{self, MountEntry};
use crate::protocol::path::ShownPath;
use crate::protocol::reply::Mounted;

/// What a mount shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    /// The head of a branch.
    Branch(String),
    /// A checkpoint, read-only.
    Checkpoint(CheckpointId),
}

/// One mount.
#[derive(Debug)]
pub(crate) struct Entry {
    dir: PathBuf,
    shows: Mutex<Shows>,
    /// Empty once it is unmounted. Locked while something happens to the mount as a whole.
    mount: Mutex<Option<Mount>>,
}

impl Entry {
    /// Returns the mount point.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns what it shows.
    pub(crate) fn shows(&self) -> Shows {
        self.shows.lock().clone()
    }

    /// Notes that it shows something else from now on.
    pub(crate) fn set_shows(&self, shows: Shows) {
        *self.shows.lock() = shows;
    }

    /// Waits until nothing happens to the mount, then gives it out.
    pub(crate) fn mount(&self) -> MutexGuard<'_, Option<Mount>> {
        self.mount.lock()
    }

    /// Returns the description that is sent to clients.
    pub(crate) fn describe(&self) -> Mounted {
        let ShownPath {
            text: dir,
            base64: dir_base64,
        } = ShownPath::of(&self.dir);
        let (branch, checkpoint) = match self.shows() {
            Shows::Branch(name) => (Some(name), None),
            Shows::Checkpoint(id) => (None, Some(id.to_string())),
        };
        let read_only = checkpoint.is_some();
        Mounted {
            branch,
            checkpoint,
            dir,
            dir_base64,
            read_only,
            elapsed_us: None,
        }
    }
}

/// All mounts of the daemon.
#[derive(Debug, Default)]
pub(crate) struct Mounts {
    table: Mutex<Vec<Arc<Entry>>>,
}

impl Mounts {
    /// Notes a mount.
    pub(crate) fn add(&self, dir: PathBuf, shows: Shows, mount: Mount) -> Arc<Entry> {
        let entry = Arc::new(Entry {
            dir,
            shows: Mutex::new(shows),
            mount: Mutex::new(Some(mount)),
        });
        self.table.lock().push(Arc::clone(&entry));
        entry
    }

    /// Forgets a mount.
    pub(crate) fn remove(&self, entry: &Arc<Entry>) {
        self.table.lock().retain(|known| !Arc::ptr_eq(known, entry));
    }

    /// Returns all mounts, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.table.lock().clone()
    }

    /// Returns the mount of a branch.
    pub(crate) fn of_branch(&self, name: &str) -> Option<Arc<Entry>> {
        let wanted = Shows::Branch(name.to_owned());
        self.table
            .lock()
            .iter()
            .find(|entry| *entry.shows.lock() == wanted)
            .cloned()
    }

    /// Returns the mount at a directory; the youngest, should one hide another.
    pub(crate) fn at(&self, dir: &Path) -> Option<Arc<Entry>> {
        self.table
            .lock()
            .iter()
            .rev()
            .find(|entry| entry.dir == dir)
            .cloned()
    }

    /// Forgets the mounts that somebody removed behind the daemon's back, with `umount` for
    /// example. Their sessions have ended; what they had written is in the store.
    pub(crate) fn prune(&self) {
        let Ok(present) = mountinfo::read() else {
            return;
        };
        let is_present = |entry: &Arc<Entry>| {
            let same = |known: &MountEntry| known.is_ours() && known.dir == entry.dir;
            // A mount that is being worked on is somebody else's business.
            entry.mount.is_locked() || present.iter().any(same)
        };
        let gone: Vec<Arc<Entry>> = {
            let mut table = self.table.lock();
            let gone = table
                .iter()
                .filter(|entry| !is_present(entry))
                .cloned()
                .collect();
            table.retain(is_present);
            gone
        };
        for entry in gone {
            log::info!("'{}' was unmounted by somebody else", entry.dir.display());
            // Joins the session's threads; outside of the lock because that may take a moment.
            drop(entry.mount.lock().take());
        }
    }
}
