//! How a box's init is started.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::error::{Error, Result};
use crate::sys;
use crate::sys::clone::Child;

/// The program that becomes a box's init, held open, so that an upgrade of the file does not matter.
#[derive(Debug)]
pub struct Launcher {
    program: File,
    args: Vec<CString>,
}

impl Launcher {
    /// Returns a launcher for `program`, which must call [`init::main`](crate::init::main) when it is started with
    /// `args`, the first of which is its name.
    ///
    /// # Errors
    /// [`Error::System`] if the file cannot be opened or an argument holds a NUL byte.
    pub fn new(program: &Path, args: &[&str]) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(program)
            .map_err(|reason| Error::system(format!("open '{}'", program.display()), reason))?;
        let args = args
            .iter()
            .map(|arg| CString::new(std::ffi::OsStr::new(arg).as_bytes()))
            .collect::<Result<_, _>>()
            .map_err(|reason| {
                Error::system("name the init of a box", std::io::Error::other(reason))
            })?;
        Ok(Self {
            program: file,
            args,
        })
    }

    pub(super) fn spawn(&self, control: BorrowedFd<'_>, cgroup: BorrowedFd<'_>) -> Result<Child> {
        sys::clone::spawn(self.program.as_fd(), &self.args, control, cgroup)
            .map_err(|reason| Error::system("start the init of a box", reason))
    }
}
