//! System calls that neither `std` nor `nix` offers.
//!
//! `statx` is needed for the creation time and for the mount's id, which no other call gives; extended
//! attributes for everything that `std` has never had.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// The largest list of names, and the largest value, that the kernel hands out.
const XATTR_BYTES_MAX: usize = 64 << 10;
/// Enough for nearly all files, so that one call does.
const XATTR_BYTES_FIRST: usize = 512;

/// Asks for the attributes `mask` of what `fd` refers to; `flags` are further `AT_STATX_*` flags.
pub(crate) fn statx(fd: impl AsFd, mask: u32, flags: i32) -> Result<libc::statx, Errno> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the descriptor is borrowed and so open, the path is a NUL-terminated constant, and the
    // kernel writes at most one `struct statx` to the buffer, which is of that type.
    let result = unsafe {
        libc::statx(
            fd.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            mask,
            stat.as_mut_ptr(),
        )
    };
    Errno::result(result)?;
    // SAFETY: the struct has only integers, for which the zeros from before the call are valid too.
    Ok(unsafe { stat.assume_init() })
}

/// Returns the extended attribute `name` of `path`, following a symbolic link at its end.
pub(crate) fn get_xattr(path: &CStr, name: &CStr) -> Result<Vec<u8>, Errno> {
    read_growing(|buffer| {
        // SAFETY: both strings are NUL-terminated, and the kernel writes at most `len` bytes to the
        // buffer, which has as many.
        unsafe {
            libc::getxattr(
                path.as_ptr(),
                name.as_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        }
    })
}

/// Returns the names of the extended attributes of `path`, each with a NUL behind it, following a symbolic
/// link at its end.
pub(crate) fn list_xattrs(path: &CStr) -> Result<Vec<u8>, Errno> {
    read_growing(|buffer| {
        // SAFETY: the path is NUL-terminated, and the kernel writes at most `len` bytes to the buffer,
        // which has as many.
        unsafe { libc::listxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) }
    })
}

/// Calls `read` with larger and larger buffers until the answer fits.
fn read_growing(mut read: impl FnMut(&mut [u8]) -> isize) -> Result<Vec<u8>, Errno> {
    let mut size = XATTR_BYTES_FIRST;
    loop {
        let mut buffer = vec![0; size];
        match Errno::result(read(&mut buffer)) {
            Ok(length) => {
                buffer.truncate(length.unsigned_abs());
                return Ok(buffer);
            }
            Err(Errno::ERANGE) if size < XATTR_BYTES_MAX => size = XATTR_BYTES_MAX,
            Err(errno) => return Err(errno),
        }
    }
}

/// Sets the extended attribute `name` of `path` itself, not of what a symbolic link leads to.
pub(crate) fn set_xattr(path: &CStr, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    // SAFETY: both strings are NUL-terminated, and the kernel reads `len` bytes of the value, which
    // has as many.
    let result = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    Errno::result(result).map(drop)
}

/// Removes the extended attribute `name` of `path` itself, not of what a symbolic link leads to.
pub(crate) fn remove_xattr(path: &CStr, name: &CStr) -> Result<(), Errno> {
    // SAFETY: both strings are NUL-terminated.
    let result = unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) };
    Errno::result(result).map(drop)
}
