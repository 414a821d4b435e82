//! Files, directories and symbolic links of a filesystem.
//!
//! A file is reopened by its path where that still leads to the same inode, and by its number through
//! the caller where it does not. Directories have one place each, so only by path; one that was
//! removed is made anew and removed again. Files of the kernel's own filesystems (`/proc`, `/sys`)
//! are reopened by path, whatever inode that gives.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::sys::statfs::fstatfs;
use nix::unistd::{Whence, lseek64};
use serde::{Deserialize, Serialize};

use super::capture::Taken;
use super::place::{Place, Source};
use super::trouble::{Trouble, way};
use super::{model::Description, sys};

/// A file of a filesystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Regular {
    /// Path beneath the tree's root, `None` if no path leads to it any more.
    pub path: Option<Vec<u8>>,
    /// Inode number.
    pub ino: u64,
    /// File type (`S_IFMT`).
    pub format: u32,
    /// Whether it is one of the kernel's own (`/proc`, `/sys`), where inode numbers mean nothing.
    pub kernels: bool,
}

// From linux/magic.h.
const PROC: i64 = 0x9fa0;
const SYSFS: i64 = 0x6265_6572;
const CGROUP2: i64 = 0x6367_7270;
const DEVPTS: i64 = 0x1cd1;

/// Flags that say how a file was found or made, not how it is open.
const OPENING: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_ASYNC;

/// Path of a description beneath the tree's root.
pub(super) fn path_beneath(source: &dyn Source, link: &[u8]) -> Vec<u8> {
    let root = format!("/proc/self/fd/{}", source.root().as_raw_fd());
    let root = nix::fcntl::readlink(root.as_str()).unwrap_or_default();
    let root = std::os::unix::ffi::OsStrExt::as_bytes(root.as_os_str());
    match link.strip_prefix(root) {
        Some(rest) if rest.first() == Some(&b'/') => rest.to_vec(),
        _ => link.to_vec(),
    }
}

/// Whether `path` leads to what `stat` describes.
pub(super) fn leads_to(source: &dyn Source, path: &[u8], stat: &FileStat) -> bool {
    sys::open_beneath(source.root(), path, libc::O_PATH | libc::O_NOFOLLOW, 0)
        .and_then(|found| Ok(fstat(found)?))
        .is_ok_and(|found| (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino))
}

pub(super) fn capture(source: &dyn Source, taken: &Taken) -> Result<Regular, Trouble> {
    let format = SFlag::S_IFMT.bits() & taken.stat.st_mode;
    let magic = fstatfs(taken.file.as_fd()).map_err(io::Error::from)?;
    let kernels = matches!(magic.filesystem_type().0, PROC | SYSFS | CGROUP2 | DEVPTS);
    let path = path_beneath(source, &taken.link);
    let mut regular = Regular {
        path: None,
        ino: taken.stat.st_ino,
        format,
        kernels,
    };
    if leads_to(source, &path, &taken.stat) {
        let view = fstat(source.root()).map_err(io::Error::from)?.st_dev;
        let kept = kernels || taken.stat.st_dev == view || format == libc::S_IFDIR;
        if !kept {
            let what = String::from_utf8_lossy(&path).into_owned();
            return Err(Trouble::refuse(
                format!("{what} is not in the view, so its content is not kept"),
                way("keep the file beneath the box's root filesystem"),
            ));
        }
        regular.path = Some(path);
        return Ok(regular);
    }
    if kernels {
        return Err(Trouble::refuse(
            format!("{} is gone", String::from_utf8_lossy(&taken.link)),
            way("close the descriptor"),
        ));
    }
    if format == libc::S_IFDIR {
        if taken.stat.st_nlink == 0 || taken.link.ends_with(b" (deleted)") {
            return Ok(regular);
        }
        return Err(Trouble::refuse(
            format!(
                "the directory {} is out of reach: something is mounted over it, or it lies outside",
                String::from_utf8_lossy(&taken.link)
            ),
            way("close the descriptor, or leave that directory"),
        ));
    }
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let found = source.open_inode(taken.stat.st_ino, flags);
    let found = found.and_then(|found| Ok(fstat(found)?));
    match found {
        Ok(found) if found.st_ino == taken.stat.st_ino => Ok(regular),
        _ => Err(Trouble::refuse(
            format!(
                "no path leads to {}, and it is not in the view",
                String::from_utf8_lossy(&taken.link)
            ),
            way("close the descriptor"),
        )),
    }
}

/// Opens it again, at the same position.
pub(super) fn rebuild(
    place: &dyn Place,
    state: &Regular,
    description: &Description,
) -> io::Result<OwnedFd> {
    let mut flags = description.flags & !OPENING | libc::O_CLOEXEC | libc::O_NOCTTY;
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        flags &= !libc::O_TMPFILE;
    }
    if state.format == libc::S_IFLNK {
        flags |= libc::O_NOFOLLOW;
    }
    if flags & libc::O_PATH != 0 {
        flags &= libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    }
    let file = match &state.path {
        Some(path) => sys::open_beneath(place.root(), path, flags, 0)?,
        None if state.format == libc::S_IFDIR => removed_directory(place, flags)?,
        None => place.open_inode(state.ino, flags)?,
    };
    let known = state.kernels || (state.path.is_none() && state.format == libc::S_IFDIR);
    if !known && fstat(file.as_fd())?.st_ino != state.ino {
        return Err(io::Error::other("another file has taken its place"));
    }
    if flags & libc::O_PATH == 0 && description.position != 0 {
        lseek64(file.as_fd(), description.position, Whence::SeekSet)?;
    }
    Ok(file)
}

/// A directory that is open and removed: always empty, so a new one is as good.
fn removed_directory(place: &dyn Place, flags: i32) -> io::Result<OwnedFd> {
    let name = format!(".branchpoint-{}", std::process::id());
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::sys::stat::mkdirat(place.root(), name.as_str(), mode)?;
    let opened = sys::open_beneath(place.root(), name.as_bytes(), flags, 0);
    let flag = nix::unistd::UnlinkatFlags::RemoveDir;
    nix::unistd::unlinkat(place.root(), name.as_str(), flag)?;
    opened
}
