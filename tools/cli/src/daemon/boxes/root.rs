//! The root directory of a box instance: a slot of the session that all boxes of the store share.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use branchpoint_fs::fuse::{AttachedSlot, MountOptions, SlotMount};
use branchpoint_fs::view::View;

use super::Boxes;
use crate::daemon::Daemon;
use crate::daemon::mounts::Entry;
use crate::failure::{Failure, FailureKind, Result};

/// The directory, in that of the boxes, where the session is mounted.
const SESSION: &str = "slots";

/// The root of an instance. Dropped when the instance has ended, it leaves nothing.
#[derive(Debug)]
pub(crate) struct Root {
    slot: AttachedSlot,
}

impl Root {
    /// Shows a branch for a box; nobody else may show it. The caller holds the branch's name.
    pub(super) fn of_branch(daemon: &Daemon, branch: &str) -> Result<Self> {
        if let Some(entry) = daemon.mounts.of_branch(branch) {
            return Err(mounted(branch, &entry));
        }
        if let Some(other) = daemon.boxes.on_branch(branch) {
            return Err(Failure::new(
                FailureKind::Busy,
                format!("box '{}' runs on branch '{branch}' already", other.name()),
            )
            .hint(own_branch(branch)));
        }
        Self::of_view(daemon, daemon.store.view(branch)?)
    }

    /// Shows a view that nothing else shows.
    pub(super) fn of_view(daemon: &Daemon, view: Arc<View>) -> Result<Self> {
        let slot = daemon.boxes.session(daemon)?.attach(view)?;
        Ok(Self { slot })
    }

    /// Opens the directory.
    pub(super) fn open(&self) -> Result<File> {
        let dir = self.slot.path();
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(&dir)
            .map_err(|reason| Failure::io(format!("open '{}'", dir.display()), &reason))
    }

    /// Waits until what these processes have written is in the view.
    pub(super) fn flush(&self, processes: &[u32]) -> branchpoint_fs::Result<()> {
        self.slot.flush(processes)
    }

    /// Opens a file by its number, whether a path leads to it or not.
    pub(super) fn open_inode(&self, ino: u64, flags: i32) -> io::Result<OwnedFd> {
        let path = self.slot.control().join(ino.to_string());
        let access = flags & libc::O_ACCMODE;
        let file = OpenOptions::new()
            .read(access != libc::O_WRONLY)
            .write(access != libc::O_RDONLY)
            .custom_flags(flags & !libc::O_ACCMODE)
            .open(path)?;
        Ok(file.into())
    }
}

impl Boxes {
    /// Returns the session of which every box has a slot.
    fn session(&self, daemon: &Daemon) -> Result<Arc<SlotMount>> {
        let mut session = self.slots.lock();
        if let Some(session) = session.as_ref() {
            return Ok(Arc::clone(session));
        }
        let dir = self.dir.join(SESSION);
        fs::create_dir_all(&dir)
            .map_err(|reason| Failure::io(format!("make '{}'", dir.display()), &reason))?;
        let made = SlotMount::new(&daemon.store, &dir, &MountOptions::default())?;
        Ok(Arc::clone(session.insert(made)))
    }

    /// Ends the session. No box runs any more.
    pub(super) fn end_session(&self) {
        let Some(session) = self.slots.lock().take() else {
            return;
        };
        if let Err(error) = session.unmount(true) {
            log::error!("the session of the boxes stays mounted: {error}");
        }
        drop(session);
        let dir = self.dir.join(SESSION);
        if let Err(reason) = fs::remove_dir(&dir) {
            log::warn!("'{}' stays: {reason}", dir.display());
        }
    }
}

fn mounted(branch: &str, entry: &Entry) -> Failure {
    let dir = entry.dir().display();
    Failure::new(
        FailureKind::Busy,
        format!("branch '{branch}' is mounted already, at '{dir}'"),
    )
    .hint(format!(
        "unmount it first (branchpoint unmount '{dir}'), or {}",
        own_branch(branch)
    ))
}

fn own_branch(branch: &str) -> String {
    format!(
        "start this box on a branch of its own: branchpoint box start --name NAME --from '{branch}'"
    )
}

/// Removes the directory of a session that a daemon that died has left; the mount on it is gone.
pub(super) fn clean(dir: &Path) {
    match fs::remove_dir(dir.join(SESSION)) {
        Err(reason) if reason.kind() != io::ErrorKind::NotFound => {
            log::warn!("'{}' stays: {reason}", dir.join(SESSION).display());
        }
        _ => {}
    }
}
