//! pidfd.

use std::io;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use super::model::Description;
use super::place::Place;
use super::sys;

/// A pidfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process or thread inside the box, `None` if it was gone already.
    pub pid: Option<i32>,
}

pub(super) fn rebuild(
    place: &dyn Place,
    state: Process,
    description: &Description,
) -> io::Result<OwnedFd> {
    // PIDFD_NONBLOCK and PIDFD_THREAD are O_NONBLOCK and O_EXCL.
    let flags = description.flags & (libc::O_NONBLOCK | libc::O_EXCL);
    match state.pid {
        Some(inside) => {
            let gone = || io::Error::from_raw_os_error(libc::ESRCH);
            sys::pidfd_open(place.pid(inside).ok_or_else(gone)?, flags)
        }
        None => sys::dead_process(),
    }
}
