//! Mounts by descriptor.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use super::check;

const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Returns a mount of the directory `dir` alone, without what is mounted below, attached nowhere yet.
///
/// # Errors
/// What the kernel says; `EINVAL` if the directory is in another mount namespace.
pub(crate) fn detached_copy(dir: impl AsFd) -> io::Result<OwnedFd> {
    let flags =
        OPEN_TREE_CLONE | libc::AT_EMPTY_PATH.cast_unsigned() | libc::O_CLOEXEC.cast_unsigned();
    // SAFETY: a descriptor that lives across the call, a constant string and an integer.
    let raw = check(unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            dir.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
        )
    })?;
    Ok(super::clone::own_fd(RawFd::try_from(raw).unwrap_or(-1)))
}

/// Attaches a detached mount at `path`.
///
/// # Errors
/// What the kernel says.
pub(crate) fn attach(tree: impl AsFd, path: &CStr) -> io::Result<()> {
    // SAFETY: a descriptor and two strings that live across the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// Adds attributes (`MOUNT_ATTR_*`) to a mount.
///
/// # Errors
/// What the kernel says.
pub(crate) fn add_attributes(tree: impl AsFd, attributes: u64) -> io::Result<()> {
    let attr = MountAttr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = libc::AT_EMPTY_PATH.cast_unsigned();
    // SAFETY: a descriptor, a constant string, and a structure of the size that is given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}
