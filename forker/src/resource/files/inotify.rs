//! inotify: the watches under their numbers. Queued events cannot be read without taking them out,
//! so they are reported as lost.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};

use super::model::Description;
use super::place::{Place, Source};
use super::trouble::{Trouble, way};
use super::{regular, sys};
use crate::proc::fdinfo;

// From linux/inotify.h: _IOW('I', 0, __s32).
const SET_NEXT_WD: libc::Ioctl = 0x4004_4900;

/// What `inotify_add_watch` takes back of what `fdinfo` shows.
const MASK: u32 = 0xe000_0fff | libc::IN_EXCL_UNLINK;

/// An inotify instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inotify {
    /// Its watches.
    pub watches: Vec<Watch>,
}

/// One watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// Watch descriptor.
    pub wd: i32,
    /// What is watched for.
    pub mask: u32,
    /// Inode number.
    pub ino: u64,
    /// Path beneath the tree's root, `None` if no path is known.
    pub path: Option<Vec<u8>>,
}

/// Device number as the kernel keeps it, from what `stat` shows.
fn internal(device: u64) -> u64 {
    u64::from(libc::major(device)) << 20 | u64::from(libc::minor(device))
}

pub(super) fn capture(source: &dyn Source, watches: &[fdinfo::Watch]) -> Result<Inotify, Trouble> {
    let view = internal(fstat(source.root())?.st_dev);
    // Handles are opened through a real descriptor, not through an O_PATH one.
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let mount = sys::open_beneath(source.root(), b"/", flags, 0)?;
    let watches = watches.iter().map(|watch| {
        let (kind, handle) = &watch.handle;
        let found = sys::open_by_handle(mount.as_fd(), *kind, handle, libc::O_PATH);
        let path = found.ok().and_then(|found| path_of(source, &found, watch));
        if path.is_none() && watch.device != view {
            return Err(Trouble::refuse(
                format!("watch {} is on a file that no path leads to", watch.wd),
                way("remove the watch before the checkpoint"),
            ));
        }
        Ok(Watch {
            wd: watch.wd,
            mask: watch.mask,
            ino: watch.ino,
            path,
        })
    });
    Ok(Inotify {
        watches: watches.collect::<Result<_, _>>()?,
    })
}

fn path_of(source: &dyn Source, found: &OwnedFd, watch: &fdinfo::Watch) -> Option<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    let link = nix::fcntl::readlink(link.as_str()).ok()?;
    let link = std::os::unix::ffi::OsStringExt::into_vec(link);
    let path = regular::path_beneath(source, &link);
    let stat = fstat(found).ok()?;
    (stat.st_ino == watch.ino && regular::leads_to(source, &path, &stat)).then_some(path)
}

/// How many bytes of events wait to be read.
pub(super) fn queued(file: BorrowedFd<'_>) -> io::Result<i32> {
    sys::ioctl_get(file, libc::FIONREAD)
}

pub(super) fn rebuild(
    place: &dyn Place,
    state: &Inotify,
    description: &Description,
) -> io::Result<OwnedFd> {
    let nonblock = description.flags & libc::O_NONBLOCK;
    let file = sys::inotify(libc::IN_CLOEXEC | nonblock)?;
    for watch in &state.watches {
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let target = match &watch.path {
            Some(path) => sys::open_beneath(place.root(), path, flags, 0)?,
            None => place.open_inode(watch.ino, flags)?,
        };
        sys::ioctl_number(&file, SET_NEXT_WD, watch.wd)?;
        let path = format!("/proc/self/fd/{}", target.as_raw_fd());
        let wd = sys::inotify_add(&file, &path, watch.mask & MASK)?;
        if wd != watch.wd {
            return Err(io::Error::other(format!(
                "watch {} came back as {wd}",
                watch.wd
            )));
        }
    }
    Ok(file)
}
