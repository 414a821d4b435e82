//! The system calls that no library at hand wraps.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

// From linux/mount.h; the libc crate has none of these.
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// Mounts a filesystem of the kernel's own (debugfs and the like) without attaching it anywhere:
/// only the holder of the descriptor sees it, and it is gone when that is closed.
pub(super) fn detached_mount(kind: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: `kind` is a valid C string; the call keeps no pointer.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) };
    let context = owned(context)?;
    let raw: RawFd = context.as_raw_fd();
    let (no_key, no_value) = (std::ptr::null::<u8>(), std::ptr::null::<u8>());
    // SAFETY: `context` is open; this command takes no key and no value.
    let created = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            raw,
            FSCONFIG_CMD_CREATE,
            no_key,
            no_value,
            0,
        )
    };
    if created < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `context` is open; the other arguments are plain numbers.
    let mount = unsafe { libc::syscall(libc::SYS_fsmount, raw, FSMOUNT_CLOEXEC, 0) };
    owned(mount)
}

/// What `statx` says of a path without asking the filesystem behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// Device number, in two halves.
    pub(super) device: (u32, u32),
    /// Inode number.
    pub(super) ino: u64,
    /// Type and permission bits.
    pub(super) mode: u32,
    /// Size in bytes.
    pub(super) size: u64,
    /// Last modification, seconds and nanoseconds.
    pub(super) mtime: (i64, u32),
}

/// Returns the identity of what `path` names, from the kernel's memory: a daemon that does not
/// answer cannot block this.
pub(super) fn identity(path: &Path) -> io::Result<Identity> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    statx(libc::AT_FDCWD, &path, libc::AT_NO_AUTOMOUNT)
}

/// The same of what a descriptor refers to.
pub(super) fn identity_of(file: &impl AsRawFd) -> io::Result<Identity> {
    statx(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

fn statx(dir: RawFd, path: &CStr, flags: libc::c_int) -> io::Result<Identity> {
    let mut out = MaybeUninit::<libc::statx>::zeroed();
    let (flags, mask) = (flags | libc::AT_STATX_DONT_SYNC, libc::STATX_BASIC_STATS);
    // SAFETY: `path` is a valid C string and `out` has room for the structure.
    let done = unsafe { libc::statx(dir, path.as_ptr(), flags, mask, out.as_mut_ptr()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, and every bit pattern is valid for this structure of integers.
    let out = unsafe { out.assume_init() };
    Ok(Identity {
        device: (out.stx_dev_major, out.stx_dev_minor),
        ino: out.stx_ino,
        mode: u32::from(out.stx_mode),
        size: out.stx_size,
        mtime: (out.stx_mtime.tv_sec, out.stx_mtime.tv_nsec),
    })
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let raw = RawFd::try_from(result).map_err(io::Error::other)?;
    // SAFETY: the system call just returned this descriptor, so it is open and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
