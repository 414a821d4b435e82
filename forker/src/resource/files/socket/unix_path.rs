//! The file of a unix socket that is bound to a path.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::fcntl::{AtFlags, renameat};
use nix::sys::stat::{Mode, UtimensatFlags, fstat, fstatat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, unlinkat};
use serde::{Deserialize, Serialize};

use super::super::capture::Taken;
use super::super::sys;

/// The file of a bound unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// Path beneath the tree's root.
    pub path: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Whether the path leads to it no longer.
    pub removed: bool,
}

/// From linux/un.h: opens the file that a socket is bound to.
const SIOCUNIXFILE: libc::Ioctl = 0x89e0;

/// Whether an address is a path.
pub(super) fn is_path(name: &[u8]) -> bool {
    name.get(2).is_some_and(|&first| first != 0)
}

/// Finds the file, if the name is a path.
pub(super) fn capture(taken: &Taken, name: &[u8]) -> io::Result<Option<Path>> {
    if !is_path(name) {
        return Ok(None);
    }
    // An accepted socket has the name of its listener, but no file.
    let Ok(file) = sys::ioctl_file(&taken.file, SIOCUNIXFILE, 0) else {
        return Ok(None);
    };
    let link = nix::fcntl::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()).as_str())?;
    let (link, stat) = (link.into_vec(), fstat(&file)?);
    let removed = stat.st_nlink == 0;
    let path = link.strip_suffix(b" (deleted)").filter(|_| removed);
    Ok(Some(Path {
        path: path.unwrap_or(&link).to_vec(),
        mode: stat.st_mode & 0o7777,
        owner: (stat.st_uid, stat.st_gid),
        removed,
    }))
}

/// Binds `socket` to `name`. The calling thread has the tree's root as its own.
///
/// The kernel binds to no file that exists: what lies there is put aside, and comes back or goes
/// when the new one is there.
pub(super) fn bind(socket: &OwnedFd, name: &[u8], place: Option<&Path>) -> io::Result<()> {
    let Some(place) = place else {
        return sys::address(socket, sys::With::Bind, name);
    };
    let path = std::path::Path::new(OsStr::from_bytes(&place.path));
    let (Some(dir), Some(file)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let dir: OwnedFd = std::fs::File::open(dir)?.into();
    let before = fstat(&dir)?;
    let aside = format!(".branchpoint-{}-{}", std::process::id(), socket.as_raw_fd());
    let was_there = renameat(&dir, file, &dir, aside.as_str()).is_ok();
    start_from(name, &place.path)?;
    let bound = sys::address(socket, sys::With::Bind, name);
    let result = bound.and_then(|()| settle(&dir, file, place));
    if was_there {
        if place.removed || result.is_err() {
            renameat(&dir, aside.as_str(), &dir, file)?;
        } else {
            unlinkat(&dir, aside.as_str(), UnlinkatFlags::NoRemoveDir)?;
        }
    }
    let time = |seconds, nanoseconds| TimeSpec::new(seconds, nanoseconds);
    utimensat(
        dir.as_fd(),
        ".",
        &time(before.st_atime, before.st_atime_nsec),
        &time(before.st_mtime, before.st_mtime_nsec),
        UtimensatFlags::FollowSymlink,
    )?;
    result
}

/// A name can be relative to where its process was when it bound the socket.
pub(super) fn start_from(name: &[u8], path: &[u8]) -> io::Result<()> {
    let text = name.get(2..).unwrap_or_default();
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.first() == Some(&b'/') {
        return Ok(());
    }
    let text = text.strip_prefix(b"./").unwrap_or(text);
    let base = path.strip_suffix(text).unwrap_or(b"/");
    nix::unistd::chdir(OsStr::from_bytes(base))?;
    Ok(())
}

fn settle(dir: &OwnedFd, file: &OsStr, place: &Path) -> io::Result<()> {
    if place.removed {
        unlinkat(dir, file, UnlinkatFlags::NoRemoveDir)?;
        return Ok(());
    }
    let (uid, gid) = place.owner;
    let flag = AtFlags::AT_SYMLINK_NOFOLLOW;
    fchownat(
        dir,
        file,
        Some(Uid::from_raw(uid)),
        Some(Gid::from_raw(gid)),
        flag,
    )?;
    if fstatat(dir, file, flag)?.st_mode & 0o7777 != place.mode {
        let mode = Mode::from_bits_truncate(place.mode);
        let follow = nix::sys::stat::FchmodatFlags::FollowSymlink;
        nix::sys::stat::fchmodat(dir, file, mode, follow)?;
    }
    Ok(())
}
