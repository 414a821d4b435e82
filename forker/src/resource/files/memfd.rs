//! Memory files (`memfd_create`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::sys::uio::{pread, pwrite};
use nix::unistd::{Whence, ftruncate, lseek64};
use serde::{Deserialize, Serialize};

use super::capture::Taken;
use super::model::Description;
use super::sys;

// From linux/memfd.h and linux/fcntl.h.
const MFD_CLOEXEC: u32 = 1;
const MFD_ALLOW_SEALING: u32 = 2;
const MFD_HUGETLB: u32 = 4;
const F_SEAL_SEAL: i32 = 1;

const CHUNK: usize = 1 << 20;

/// A memory file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memfd {
    /// Inode number: its identity while it lived.
    pub ino: u64,
    /// Name, as `memfd_create` got it.
    pub name: Vec<u8>,
    /// Size in bytes.
    pub size: i64,
    /// Permission bits.
    pub mode: u32,
    /// `F_SEAL_*`.
    pub seals: i32,
    /// Size of its huge pages, 0 for ordinary ones.
    pub huge: u64,
    /// What it holds outside of its holes: offset and bytes.
    pub content: Vec<(i64, Vec<u8>)>,
}

const PREFIX: &[u8] = b"/memfd:";
const SUFFIX: &[u8] = b" (deleted)";

/// The device number of the kernel's own mount of memory files.
fn device() -> io::Result<u64> {
    Ok(fstat(sys::memfd(b"", MFD_CLOEXEC)?.as_fd())?.st_dev)
}

/// The name, if this is a memory file and not a deleted file that looks like one.
pub(super) fn name(taken: &Taken) -> io::Result<Option<Vec<u8>>> {
    let name = taken.link.strip_prefix(PREFIX);
    let Some(name) = name.and_then(|name| name.strip_suffix(SUFFIX)) else {
        return Ok(None);
    };
    if taken.stat.st_dev == device()? {
        return Ok(Some(name.to_vec()));
    }
    // Each huge page size has its own kernel mount.
    let magic = nix::sys::statfs::fstatfs(taken.file.as_fd())?;
    let huge = magic.filesystem_type() == nix::sys::statfs::HUGETLBFS_MAGIC;
    Ok(huge.then(|| name.to_vec()))
}

pub(super) fn capture(taken: &Taken, name: Vec<u8>) -> io::Result<Memfd> {
    let stat = &taken.stat;
    let magic = nix::sys::statfs::fstatfs(taken.file.as_fd())?;
    let huge = magic.filesystem_type() == nix::sys::statfs::HUGETLBFS_MAGIC;
    let mut memfd = Memfd {
        ino: stat.st_ino,
        name,
        size: stat.st_size,
        mode: stat.st_mode & 0o7777,
        seals: sys::fcntl(&taken.file, libc::F_GET_SEALS, 0)?,
        huge: if huge {
            u64::try_from(magic.block_size()).unwrap_or(0)
        } else {
            0
        },
        content: Vec::new(),
    };
    // A description of our own: the position belongs to the tree, and its may not be readable.
    let path = format!("/proc/self/fd/{}", taken.file.as_raw_fd());
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let file = open(path.as_str(), flags, Mode::empty())?;
    let mut at = 0;
    while at < memfd.size {
        let start = match lseek64(&file, at, Whence::SeekData) {
            Err(nix::Error::ENXIO) => break,
            other => other?,
        };
        let end = lseek64(&file, start, Whence::SeekHole)?;
        at = start;
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let mut bytes = vec![0_u8; left];
            let got = pread(&file, &mut bytes, at)?;
            if got == 0 {
                break;
            }
            bytes.truncate(got);
            if bytes.iter().any(|&byte| byte != 0) {
                memfd.content.push((at, bytes));
            }
            at += i64::try_from(got).map_err(io::Error::other)?;
        }
        at = end;
    }
    Ok(memfd)
}

/// Makes the file with its content; it is sealed by [`seal`], after whoever needs writable
/// mappings of it has made them.
pub(super) fn rebuild(state: &Memfd) -> io::Result<OwnedFd> {
    let mut flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    if state.huge > 0 {
        flags |= MFD_HUGETLB | state.huge.trailing_zeros() << 26;
    }
    let file = sys::memfd(&state.name, flags)?;
    fchmod(&file, Mode::from_bits_truncate(state.mode))?;
    ftruncate(&file, state.size)?;
    for (at, bytes) in &state.content {
        let (mut at, mut rest) = (*at, bytes.as_slice());
        while !rest.is_empty() {
            let done = pwrite(&file, rest, at)?;
            if done == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = rest.get(done..).unwrap_or_default();
            at += i64::try_from(done).map_err(io::Error::other)?;
        }
    }
    Ok(file)
}

/// Puts the saved seals on it.
pub(super) fn seal(file: impl AsFd, state: &Memfd) -> io::Result<()> {
    let have = sys::fcntl(file.as_fd(), libc::F_GET_SEALS, 0)?;
    // The seal against seals comes last, as one call sets them all at once.
    let wanted = state.seals & !have;
    if wanted != 0 {
        sys::fcntl(file, libc::F_ADD_SEALS, wanted)?;
    } else if state.seals & F_SEAL_SEAL != 0 && have & F_SEAL_SEAL == 0 {
        sys::fcntl(file, libc::F_ADD_SEALS, F_SEAL_SEAL)?;
    }
    Ok(())
}

/// Opens one more description of it.
pub(super) fn open_again(file: &OwnedFd, description: &Description) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let kept = libc::O_ACCMODE | libc::O_APPEND | libc::O_NONBLOCK | libc::O_PATH;
    let flags = OFlag::from_bits_retain(description.flags & kept | libc::O_CLOEXEC);
    let opened = open(path.as_str(), flags, Mode::empty())?;
    if description.position != 0 && !flags.contains(OFlag::O_PATH) {
        lseek64(&opened, description.position, Whence::SeekSet)?;
    }
    Ok(opened)
}
