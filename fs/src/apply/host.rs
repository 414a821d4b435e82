//! Changing a directory of the host. No path leads out of it, and no symbolic link is followed.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;

use super::plan::shown;
use crate::error::{Error, Result};
use crate::tree;

/// A directory that is changed.
pub(super) struct Host {
    root: OwnedFd,
}

/// A name in an open directory.
pub(super) struct Spot {
    dir: OwnedFd,
    /// The path below the root, for messages.
    shown: String,
    /// A path of the name that goes through the descriptor.
    pub(super) path: PathBuf,
}

/// Keeps every other apply away from a directory until the lock is dropped. The kernel does it, so it
/// holds between daemons and ends with a killed one.
pub(super) fn lock(dir: &Path) -> Result<Flock<OwnedFd>> {
    // A descriptor of its own: the lock belongs to it, so two applies of one process exclude each other.
    Flock::lock(open_dir(dir)?, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => Error::TargetBusy {
            path: dir.to_owned(),
        },
        errno => Error::io(format!("lock '{}'", dir.display()), errno),
    })
}

fn open_dir(dir: &Path) -> Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(dir, flags, Mode::empty())
        .map_err(|errno| Error::io(format!("open '{}'", dir.display()), errno))
}

impl Host {
    pub(super) fn open(dir: &Path) -> Result<Host> {
        let root = open_dir(dir)?;
        Ok(Host { root })
    }

    /// Opens the directory in which `path` is.
    pub(super) fn spot(&self, path: &[u8]) -> Result<Spot> {
        let (dir, name) = tree::split(path);
        let failed =
            |errno: Errno| Error::io(format!("open the directory of '{}'", shown(path)), errno);
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let dir = if dir.is_empty() { b"." } else { dir };
        let dir = openat2(&self.root, Path::new(std::ffi::OsStr::from_bytes(dir)), how)
            .map_err(failed)?;
        let name = if name.is_empty() { b"." } else { name };
        let path_of = |name: &[u8]| {
            PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()))
                .join(std::ffi::OsStr::from_bytes(name))
        };
        Ok(Spot {
            path: path_of(name),
            shown: shown(path),
            dir,
        })
    }
}

impl Spot {
    /// Returns the path of another name in the same directory.
    pub(super) fn beside(&self, name: &str) -> PathBuf {
        self.path.with_file_name(name)
    }

    /// Returns the error for a step that failed here.
    pub(super) fn failed(&self, step: &str, error: impl Into<std::io::Error>) -> Error {
        Error::io(format!("{step} '{}'", self.shown), error)
    }

    /// Removes what is here, if anything is.
    pub(super) fn clear(&self, is_dir: bool) -> Result<()> {
        let removed = match is_dir {
            true => fs::remove_dir(&self.path),
            false => fs::remove_file(&self.path),
        };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(self.failed("remove", error))
            }
            _ => Ok(()),
        }
    }

    /// Puts `from`, in the same directory, here.
    pub(super) fn take(&self, from: &Path) -> Result<()> {
        fs::rename(from, &self.path).map_err(|error| self.failed("rename to", error))?;
        // A rename between two names of one file does nothing.
        match fs::remove_file(from) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(self.failed("rename to", error))
            }
            _ => self.sync(),
        }
    }

    /// Puts the names in the directory on the disk.
    pub(super) fn sync(&self) -> Result<()> {
        let dir = self.dir.try_clone().map_err(|e| self.failed("sync", e))?;
        File::from(dir)
            .sync_all()
            .map_err(|error| self.failed("sync the directory of", error))
    }
}
