//! Terminals.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::check;

/// Returns the number of the terminal whose master end this is.
///
/// # Errors
/// `ENOTTY` if it is none.
pub(crate) fn number(master: impl AsFd) -> io::Result<u32> {
    let mut number: libc::c_uint = 0;
    // SAFETY: the request stores one unsigned integer.
    let result =
        unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TIOCGPTN, &raw mut number) };
    check(result.into())?;
    Ok(number)
}

/// Lets the other end be opened.
///
/// # Errors
/// `ENOTTY` if it is no master end.
pub(crate) fn unlock(master: impl AsFd) -> io::Result<()> {
    let locked: libc::c_int = 0;
    // SAFETY: the request reads one integer.
    let result = unsafe {
        libc::ioctl(
            master.as_fd().as_raw_fd(),
            libc::TIOCSPTLCK,
            &raw const locked,
        )
    };
    check(result.into()).map(drop)
}

/// Opens the end for programs of the terminal whose master end this is.
///
/// # Errors
/// `EIO` while it is locked.
pub(crate) fn peer(master: impl AsFd) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the request takes flags by value and returns a new descriptor.
    let raw = unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TIOCGPTPEER, flags) };
    check(raw.into())?;
    Ok(super::clone::own_fd(raw))
}

/// Makes the terminal the controlling one of this process, a session leader.
///
/// # Errors
/// `EPERM` if it is no leader or has one already.
pub(crate) fn take_control(terminal: impl AsFd) -> io::Result<()> {
    // SAFETY: the request takes an integer by value.
    let result = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSCTTY, 0) };
    check(result.into()).map(drop)
}

/// Sets the size; the foreground group is told by the kernel.
///
/// # Errors
/// `ENOTTY` if it is no terminal.
pub(crate) fn resize(terminal: impl AsFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the request reads a winsize.
    let result = unsafe {
        libc::ioctl(
            terminal.as_fd().as_raw_fd(),
            libc::TIOCSWINSZ,
            &raw const size,
        )
    };
    check(result.into()).map(drop)
}
