//! Descriptors of processes, and the signals sent through them.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::check;

/// `PIDFD_SIGNAL_PROCESS_GROUP` (Linux 6.9).
const PROCESS_GROUP: libc::c_uint = 1 << 2;

/// Returns a descriptor of the process `pid`.
///
/// # Errors
/// `ESRCH` if there is none.
pub(crate) fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: two integers.
    let raw = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    Ok(super::clone::own_fd(i32::try_from(raw).unwrap_or(-1)))
}

/// Sends `signal` to one process.
///
/// # Errors
/// `ESRCH` if it has ended.
pub(crate) fn signal(process: impl AsFd, signal: i32) -> io::Result<()> {
    send(process, signal, 0)
}

/// Sends `signal` to the process group whose leader the process is.
///
/// # Errors
/// `ESRCH` if nobody of it is left; `EINVAL` on kernels before 6.9.
pub(crate) fn signal_group(process: impl AsFd, signal: i32) -> io::Result<()> {
    send(process, signal, PROCESS_GROUP)
}

fn send(process: impl AsFd, signal: i32, flags: libc::c_uint) -> io::Result<()> {
    let info: *const libc::siginfo_t = ptr::null();
    // SAFETY: integers and a null pointer, which the call allows.
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_fd().as_raw_fd(),
            signal,
            info,
            flags,
        )
    })
    .map(drop)
}

/// Waits until a child has ended and takes its corpse away.
///
/// # Errors
/// `ECHILD` if it is no child of this process.
pub(crate) fn reap(child: &OwnedFd) -> io::Result<()> {
    loop {
        match waitid(Id::PIDFd(child.as_fd()), WaitPidFlag::WEXITED) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
