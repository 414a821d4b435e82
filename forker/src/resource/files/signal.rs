//! signalfd. It is not bound to a process: it shows the pending signals of whoever reads it.

use std::io;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use super::model::Description;
use super::sys;

/// A signalfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// Which signals, bit 0 for signal 1.
    pub mask: u64,
}

pub(super) fn rebuild(state: Signal, description: &Description) -> io::Result<OwnedFd> {
    let nonblock = description.flags & libc::O_NONBLOCK;
    sys::signalfd(state.mask, libc::SFD_CLOEXEC | nonblock)
}
