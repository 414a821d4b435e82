//! The few system calls that have no safe form in the libraries we use.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd, OwnedFd, RawFd};

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

/// Returns the size of a terminal in lines and characters; nothing if it is none.
pub(crate) fn terminal_size(terminal: BorrowedFd<'_>) -> Option<(u16, u16)> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the request stores a winsize, for which there is room.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (result == 0).then_some((size.ws_row, size.ws_col))
}

/// Returns the number of the terminal of which this is the master end.
pub(crate) fn terminal_number(master: BorrowedFd<'_>) -> io::Result<u32> {
    let mut number: libc::c_uint = 0;
    // SAFETY: the request stores an unsigned int, for which there is room.
    let result = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number) };
    if result == 0 {
        Ok(number)
    } else {
        Err(io::Error::last_os_error())
    }
}
