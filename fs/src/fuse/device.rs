//! What the kernel knows about a mount: its device number, how far it reads ahead, what it has not
//! written back yet.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::fuse::sys;

/// Device number of a mount, which no other mount has while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// Major number; 0 for all filesystems without a disk.
    pub(super) major: u32,
    /// Minor number.
    pub(super) minor: u32,
}

impl Device {
    /// Returns the device of what `path` names.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let (major, minor) = sys::identity(path)?.device;
        Ok(Self { major, minor })
    }

    /// Sets a number of the mount's write-back control. Does without where that is not allowed: it
    /// only makes things faster.
    pub(super) fn tune(self, what: &str, value: u64) {
        let path = format!("/sys/class/bdi/{}:{}/{what}", self.major, self.minor);
        if let Err(error) = std::fs::write(&path, value.to_string()) {
            log::debug!("cannot set '{path}': {error}");
        }
    }
}

/// Tells exactly whether the kernel holds anything of a mount that the daemon has not got.
#[derive(Debug)]
pub(super) struct Gauge {
    /// The mount's page of statistics in debugfs.
    stats: File,
    /// Path of the mount's counter of requests below the root of fusectl.
    waiting: String,
}

impl Gauge {
    /// Opens the gauge of a mount; `None` where the kernel or the permissions do not allow it.
    pub(super) fn open(device: Device) -> Option<Self> {
        let Device { major, minor } = device;
        let stats = open_at(debugfs()?, &format!("bdi/{major}:{minor}/stats")).ok()?;
        // The directory is named by the number that the kernel has inside: major 0 adds nothing.
        let waiting = (major == 0).then(|| format!("{minor}/waiting"))?;
        let gauge = Self { stats, waiting };
        gauge.dirty_inodes().ok()?;
        gauge.requests().ok()?;
        Some(gauge)
    }

    /// Returns how many inodes have anything that was not handed to the daemon's queue. The lists
    /// behind this are exact, unlike the counts of pages on the same page.
    pub(super) fn dirty_inodes(&self) -> io::Result<u64> {
        let mut page = [0; 2048];
        let read = self.stats.read_at(&mut page, 0)?;
        let text = std::str::from_utf8(&page[..read]).map_err(io::Error::other)?;
        count_dirty(text).ok_or_else(|| io::Error::other("no lists of inodes in the statistics"))
    }

    /// Returns how many requests are queued or being answered.
    pub(super) fn requests(&self) -> io::Result<u64> {
        let root = fusectl().ok_or(io::ErrorKind::Unsupported)?;
        let mut text = [0; 32];
        let read = open_at(root, &self.waiting)?.read(&mut text)?;
        let text = std::str::from_utf8(&text[..read]).map_err(io::Error::other)?;
        text.trim().parse().map_err(io::Error::other)
    }
}

/// Ends the session of a mount, wherever it is attached.
pub(super) fn abort(device: Device) {
    let path = format!("{}/abort", device.minor);
    let end = || {
        let root = fusectl().ok_or(io::ErrorKind::Unsupported)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        File::from(openat(root.as_fd(), path.as_str(), flags, Mode::empty())?).write_all(b"1")
    };
    if let Err(error) = end() {
        log::error!("cannot end the session of mount {}: {error}", device.minor);
    }
}

/// Adds up the lists of inodes that await writing back.
fn count_dirty(page: &str) -> Option<u64> {
    let value = |name: &str| -> Option<u64> {
        let line = page.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(value("b_dirty:")? + value("b_io:")? + value("b_more_io:")?)
}

fn open_at(root: &OwnedFd, path: &str) -> io::Result<File> {
    let file = openat(
        root.as_fd(),
        path,
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    Ok(File::from(file))
}

fn debugfs() -> Option<&'static OwnedFd> {
    static ROOT: OnceLock<Option<OwnedFd>> = OnceLock::new();
    ROOT.get_or_init(|| sys::detached_mount(c"debugfs").ok())
        .as_ref()
}

fn fusectl() -> Option<&'static OwnedFd> {
    static ROOT: OnceLock<Option<OwnedFd>> = OnceLock::new();
    ROOT.get_or_init(|| sys::detached_mount(c"fusectl").ok())
        .as_ref()
}

#[cfg(test)]
mod tests {
    use super::count_dirty;

    #[test]
    fn lists_are_added_up() {
        let page = "BdiWriteback:       0 kB\nb_dirty:            3\nb_io:               1\n\
                    b_more_io:          2\nb_dirty_time:       9\n";
        assert_eq!(count_dirty(page), Some(6));
    }

    #[test]
    fn a_page_without_lists_is_no_answer() {
        assert_eq!(count_dirty("BdiWriteback: 0 kB\nb_dirty: 1\n"), None);
    }
}
