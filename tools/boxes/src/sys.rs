//! The system calls that have no safe form in the libraries we use. Everything unsafe is below here.

pub(crate) mod clone;
pub(crate) mod creds;
pub(crate) mod mount;
pub(crate) mod net;
pub(crate) mod pidfd;
pub(crate) mod terminal;

use std::io;

/// Turns the result of a system call into a number or the reason why there is none.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
