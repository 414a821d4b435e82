//! Descriptors of processes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A descriptor of a process, close-on-exec.
///
/// # Errors
/// There is no such process.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: two plain numbers.
    let answer = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    let raw = RawFd::try_from(answer).map_err(io::Error::other)?;
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Sends a signal to exactly this process.
///
/// # Errors
/// It is gone.
pub fn signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: plain numbers and a null pointer, which stands for an ordinary signal.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
