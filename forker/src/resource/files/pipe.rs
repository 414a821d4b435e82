//! Pipes and FIFOs, with what lies in them.
//!
//! The content is copied by `tee`, which takes nothing out. Descriptions of one pipe are found by
//! device and inode number.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{OFlag, SpliceFFlags, open, tee};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{pipe2, read, write};
use serde::{Deserialize, Serialize};

use super::capture::Taken;
use super::model::Description;
use super::place::{Outside, Place, Source};
use super::regular;
use super::sys;
use super::trouble::{Trouble, way};

/// A pipe or FIFO.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pipe {
    /// Device and inode number: its identity while it lived.
    pub id: (u64, u64),
    /// `None` for a pipe without a name.
    pub fifo: Option<Fifo>,
    /// Capacity in bytes.
    pub capacity: i32,
    /// What lies in it: one piece, or one for each packet.
    pub content: Vec<Vec<u8>>,
    /// Whether it is written in packets (`O_DIRECT`).
    pub packets: bool,
    /// The caller's name for the end that is held outside of the tree.
    pub outside: Option<String>,
}

/// Where a FIFO lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fifo {
    /// Path beneath the tree's root, `None` if no path leads to it any more.
    pub path: Option<Vec<u8>>,
    /// Inode number.
    pub ino: u64,
}

/// Whether a description can read or write.
fn mode(flags: i32) -> (bool, bool) {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        _ => (true, true),
    }
}

/// Opens the same pipe anew.
fn again(file: BorrowedFd<'_>, flags: i32) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlag::from_bits_retain(flags | libc::O_CLOEXEC);
    Ok(open(path.as_str(), flags, Mode::empty())?)
}

/// Captures the pipe behind all these descriptions of it.
pub(super) fn capture(source: &dyn Source, ends: &[&Taken]) -> Result<Pipe, Trouble> {
    let Some(first) = ends.first() else {
        return Err(io::Error::other("a pipe without ends").into());
    };
    let named = first.link.first() == Some(&b'/');
    let mut pipe = Pipe {
        id: (first.stat.st_dev, first.stat.st_ino),
        capacity: sys::fcntl(&first.file, libc::F_GETPIPE_SZ, 0)?,
        packets: ends.iter().any(|end| end.info.flags & libc::O_DIRECT != 0),
        ..Pipe::default()
    };
    if named {
        let file = regular::capture(source, first)?;
        pipe.fifo = Some(Fifo {
            path: file.path,
            ino: file.ino,
        });
    } else {
        pipe.outside = outside(source, ends)?;
    }
    // What the tree wrote to somebody outside is on its way to them, and none of the tree's.
    if pipe.outside.is_none() || ends.iter().any(|end| mode(end.info.flags).0) {
        pipe.content = content(first, &pipe)?;
    }
    let held: usize = pipe.content.iter().map(Vec::len).sum();
    if usize::try_from(pipe.capacity).is_ok_and(|room| held > room) {
        return Err(Trouble::refuse(
            "the pipe holds more than its capacity (pages given by vmsplice)",
            way("let the reader catch up before the checkpoint"),
        ));
    }
    Ok(pipe)
}

/// The caller's name for the other end, where the tree holds only one and the other is open.
fn outside(source: &dyn Source, ends: &[&Taken]) -> Result<Option<String>, Trouble> {
    let (mut reads, mut writes) = (false, false);
    for end in ends {
        let (can_read, can_write) = mode(end.info.flags);
        reads |= can_read;
        writes |= can_write;
    }
    let Some(first) = ends.first() else {
        return Ok(None);
    };
    if let Some(name) = source.outside(Outside::Pipe(first.stat.st_ino)) {
        return Ok(Some(name));
    }
    if reads && writes {
        return Ok(None);
    }
    let wanted = PollFlags::POLLIN | PollFlags::POLLOUT;
    let mut polled = [PollFd::new(first.file.as_fd(), wanted)];
    poll(&mut polled, PollTimeout::ZERO)?;
    let state = polled.first().and_then(PollFd::revents);
    let alone = PollFlags::POLLHUP | PollFlags::POLLERR;
    if state.unwrap_or(PollFlags::empty()).intersects(alone) {
        return Ok(None);
    }
    Err(Trouble::refuse(
        "the other end of the pipe is held outside of the box",
        way("run the program with its input and output in the box, or through a session"),
    ))
}

/// Copies what lies in it without taking it out.
fn content(end: &Taken, pipe: &Pipe) -> io::Result<Vec<Vec<u8>>> {
    let source = again(end.file.as_fd(), libc::O_RDONLY | libc::O_NONBLOCK)?;
    let bytes: i32 = sys::ioctl_get(&source, libc::FIONREAD)?;
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let (copy, into) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    sys::fcntl(&into, libc::F_SETPIPE_SZ, pipe.capacity)?;
    let all = usize::try_from(pipe.capacity).unwrap_or(usize::MAX);
    tee(&source, &into, all, SpliceFFlags::SPLICE_F_NONBLOCK)?;
    drop(into);
    let mut pieces = Vec::new();
    let mut buffer = vec![0_u8; 1 << 16];
    loop {
        let got = read(&copy, &mut buffer)?;
        let Some(piece) = buffer.get(..got).filter(|piece| !piece.is_empty()) else {
            break;
        };
        match pieces.last_mut() {
            Some(last) if !pipe.packets => Vec::extend_from_slice(last, piece),
            _ => pieces.push(piece.to_vec()),
        }
    }
    let held: usize = pieces.iter().map(Vec::len).sum();
    if i32::try_from(held) != Ok(bytes) {
        return Err(io::Error::other(
            "not all of the pipe's content could be read",
        ));
    }
    Ok(pieces)
}

/// A pipe under construction: held open from both sides until all its descriptions are made.
#[derive(Debug)]
pub(super) struct Built {
    read: OwnedFd,
    write: OwnedFd,
    /// Whether the pipe made by us has given its own ends away already.
    given: (bool, bool),
}

/// Makes the pipe and fills it.
pub(super) fn rebuild(place: &dyn Place, state: &Pipe) -> io::Result<Built> {
    let (read, write) = match (&state.fifo, &state.outside) {
        (None, None) => pipe2(OFlag::O_CLOEXEC)?,
        (None, Some(name)) => {
            let end = place.outside(name, Outside::Pipe(state.id.1))?;
            (
                again(end.as_fd(), libc::O_RDONLY | libc::O_NONBLOCK)?,
                again(end.as_fd(), libc::O_WRONLY | libc::O_NONBLOCK)?,
            )
        }
        (Some(fifo), _) => {
            let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
            let both = match &fifo.path {
                Some(path) => sys::open_beneath(place.root(), path, flags, 0)?,
                None => place.open_inode(fifo.ino, flags)?,
            };
            let stat = fstat(both.as_fd())?;
            if stat.st_ino != fifo.ino || stat.st_mode & libc::S_IFMT != libc::S_IFIFO {
                return Err(io::Error::other("another file has taken the FIFO's place"));
            }
            (
                again(both.as_fd(), libc::O_RDONLY | libc::O_NONBLOCK)?,
                both,
            )
        }
    };
    let own = state.fifo.is_none() && state.outside.is_none();
    if sys::fcntl(&write, libc::F_GETPIPE_SZ, 0)? != state.capacity {
        sys::fcntl(&write, libc::F_SETPIPE_SZ, state.capacity)?;
    }
    let direct = if state.packets { libc::O_DIRECT } else { 0 };
    sys::fcntl(&write, libc::F_SETFL, libc::O_NONBLOCK | direct)?;
    for piece in &state.content {
        let mut rest = piece.as_slice();
        while !rest.is_empty() {
            let done = write_some(&write, rest)?;
            rest = rest.get(done..).unwrap_or_default();
        }
    }
    Ok(Built {
        read,
        write,
        given: (!own, !own),
    })
}

fn write_some(file: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    match write(file, bytes) {
        Ok(0) | Err(nix::Error::EAGAIN) => Err(io::Error::other(
            "the content does not fit into the new pipe",
        )),
        other => Ok(other?),
    }
}

/// Makes one description of it. The first of each end is the pipe's own, as `pipe` made it.
pub(super) fn end(built: &mut Built, description: &Description) -> io::Result<OwnedFd> {
    let flags = description.flags & (libc::O_ACCMODE | libc::O_NONBLOCK | libc::O_DIRECT);
    let (own, given) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (&built.read, &mut built.given.0),
        libc::O_WRONLY => (&built.write, &mut built.given.1),
        _ => return again(built.write.as_fd(), flags),
    };
    if *given {
        let file = again(own.as_fd(), flags & !libc::O_DIRECT | libc::O_NONBLOCK)?;
        sys::fcntl(&file, libc::F_SETFL, flags)?;
        return Ok(file);
    }
    *given = true;
    let file = own.try_clone()?;
    sys::fcntl(&file, libc::F_SETFL, flags)?;
    Ok(file)
}
