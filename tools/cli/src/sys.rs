//! The few system calls that have no safe form in the libraries we use.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes over a descriptor that the kernel has just made for this process.
pub(crate) fn own_received_fd(raw: RawFd) -> OwnedFd {
    // SAFETY: called only with numbers out of a control message of `recvmsg`, which the kernel has
    // installed in this process for us; nobody else knows them, so nobody else closes them.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Closes every descriptor but the three standard ones. Only for a process that has just started:
/// what the shell left open must not be held by a daemon that outlives it.
pub(crate) fn close_inherited() -> io::Result<()> {
    let flags: libc::c_int = 0;
    // SAFETY: close_range takes three integers. No descriptor above 2 belongs to any object of
    // this process yet, which is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, flags) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
