//! One process at a time: a lock on a file of the store that says who holds it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::{Error, Result};

/// The lock; released when dropped, and by the kernel when the process dies.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: Flock<File>,
    read_only: bool,
}

impl StoreLock {
    pub(super) fn take(dir: &Path) -> Result<Self> {
        let path = dir.join("lock");
        let step = || format!("open '{}'", path.display());
        let writable = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let (file, read_only) = match writable {
            Ok(file) => (file, false),
            Err(error) if error.raw_os_error() == Some(Errno::EROFS as i32) => {
                let file = File::open(&path).map_err(|error| Error::io(step(), error))?;
                (file, true)
            }
            Err(error) => return Err(Error::io(step(), error)),
        };
        let mut locked = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => locked,
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut text = String::new();
                // An empty or unreadable file only costs the message its number.
                let _ = file.read_to_string(&mut text);
                let pid = text.trim().parse().unwrap_or(0);
                return Err(Error::StoreBusy {
                    path: dir.to_path_buf(),
                    pid,
                });
            }
            Err((_, errno)) => return Err(Error::io(format!("lock '{}'", path.display()), errno)),
        };
        if !read_only {
            let write = |file: &mut File| {
                file.set_len(0)?;
                file.rewind()?;
                write!(file, "{}", std::process::id())
            };
            // The pid is for messages; a full disk must not keep the store from being opened.
            if let Err(error) = write(&mut locked) {
                log::warn!("cannot write the pid into '{}': {error}", path.display());
            }
        }
        Ok(Self {
            _file: locked,
            read_only,
        })
    }

    pub(super) fn read_only(&self) -> bool {
        self.read_only
    }
}
