//! eventfd.

use std::io;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use super::model::Description;
use super::sys;

/// An eventfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its counter.
    pub count: u64,
    /// Whether a read takes one rather than all.
    pub semaphore: bool,
}

pub(super) fn rebuild(state: Event, description: &Description) -> io::Result<OwnedFd> {
    let semaphore = if state.semaphore {
        libc::EFD_SEMAPHORE
    } else {
        0
    };
    let nonblock = description.flags & libc::O_NONBLOCK;
    // Never blocks: the counter is below the one value that the kernel does not take.
    let file = sys::eventfd(libc::EFD_CLOEXEC | libc::EFD_NONBLOCK | semaphore)?;
    if state.count > 0 {
        nix::unistd::write(&file, &state.count.to_ne_bytes())?;
    }
    sys::fcntl(&file, libc::F_SETFL, nonblock)?;
    Ok(file)
}
