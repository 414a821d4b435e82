//! Unix sockets: pairs, listening with who waits, datagrams, names, queues with passed descriptors.
//!
//! Two things change: the file of a bound socket is made anew (the kernel binds to no file that exists)
//! and so has another inode number, and `SO_PEERCRED` of an old connection shows the user and group
//! it showed, but no process.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use super::super::capture::{Taken, Work};
use super::super::model::Kind;
use super::super::place::{Outside, Source};
use super::super::sys;
use super::super::trouble::{Trouble, way};
use super::unix_path::{self, Path};
use super::{Network, Options, options, peek_all};

/// A unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unix {
    /// Inode number: its identity while it lived.
    pub ino: u64,
    /// `SOCK_STREAM`, `SOCK_DGRAM` or `SOCK_SEQPACKET`.
    pub kind: i32,
    /// Its `sockaddr`; two bytes if it has no name.
    pub name: Vec<u8>,
    /// Where its file lies, if its name is a path and it was bound itself.
    pub path: Option<Path>,
    /// Whom it talks to.
    pub peer: Peer,
    /// Name of whom it is connected to, for datagrams.
    pub peer_name: Vec<u8>,
    /// Which directions are shut down: 1 receiving, 2 sending.
    pub shutdown: u8,
    /// User and group that `SO_PEERCRED` shows.
    pub peer_ids: Option<(u32, u32)>,
    /// Its options.
    pub options: Options,
    /// What it has received and not read.
    pub queue: Vec<Message>,
}

/// Whom a unix socket talks to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Peer {
    /// Nobody.
    None,
    /// A socket of the tree, by its inode number.
    Socket(u64),
    /// One that is closed.
    Closed,
    /// A listening socket that has not accepted it yet, by its inode number.
    Waiting(u64),
    /// It listens.
    Listening {
        /// Its backlog.
        backlog: u32,
        /// Sockets that wait to be accepted, in order; 0 for one that is closed.
        waiting: Vec<u64>,
    },
    /// One that the caller holds under this name.
    Outside(String),
}

/// A message in the queue of a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The bytes.
    pub data: Vec<u8>,
    /// `sockaddr` of the sender, at most two bytes without a name.
    pub from: Vec<u8>,
    /// Descriptions that are passed with it.
    pub files: Vec<usize>,
    /// Process inside the box, user and group of the sender, if the socket asks for them.
    pub sender: Option<(i32, u32, u32)>,
}

pub(super) fn capture(
    work: &mut Work,
    index: usize,
    kind: i32,
    network: &mut Network,
) -> Result<Unix, Trouble> {
    let taken = &work.taken[index];
    let ino = taken.stat.st_ino;
    let all = network.unix()?;
    let entry = all.get(&ino).cloned().ok_or_else(|| {
        Trouble::refuse(
            "the kernel does not list this unix socket",
            way("open the socket inside the box"),
        )
    })?;
    let waits_at = all
        .iter()
        .find(|(_, other)| other.waiting.iter().any(|&one| u64::from(one) == ino))
        .map(|(listener, _)| *listener);
    let peer = if entry.listening {
        Peer::Listening {
            backlog: entry.backlog,
            waiting: entry.waiting.iter().map(|&one| one.into()).collect(),
        }
    } else if let Some(listener) = waits_at {
        unsent(taken)?;
        Peer::Waiting(listener)
    } else {
        match entry.peer {
            None => Peer::None,
            Some(0) => Peer::Closed,
            Some(peer) => Peer::Socket(peer.into()),
        }
    };
    let connected = !matches!(peer, Peer::None | Peer::Listening { .. });
    let name = sys::name(&taken.file, sys::Which::Own)?;
    let peer_name = match connected {
        true => sys::name(&taken.file, sys::Which::Peer).unwrap_or_default(),
        false => Vec::new(),
    };
    let ids: libc::ucred = sys::getsockopt(&taken.file, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    let mut unix = Unix {
        ino,
        kind,
        path: unix_path::capture(taken, &name)?,
        name,
        peer,
        peer_name,
        shutdown: entry.shutdown,
        peer_ids: (ids.uid != u32::MAX).then_some((ids.uid, ids.gid)),
        options: options::capture(taken.file.as_fd(), &[])?,
        queue: Vec::new(),
    };
    if !entry.listening {
        unix.queue = queue(work, index, kind)?;
    }
    Ok(unix)
}

/// A connection that is not accepted yet can be made anew only while nothing was sent through it.
fn unsent(taken: &Taken) -> Result<(), Trouble> {
    let sent: i32 = sys::ioctl_get(&taken.file, libc::TIOCOUTQ)?;
    if sent == 0 {
        return Ok(());
    }
    Err(Trouble::refuse(
        "the connection is not accepted yet, and what was sent through it cannot be read",
        way("try again once the server has accepted it"),
    ))
}

fn queue(work: &mut Work, index: usize, kind: i32) -> Result<Vec<Message>, Trouble> {
    let pid = work.taken[index].seen.0;
    let (mut queue, mut passed) = (Vec::new(), false);
    for message in peek_all(&work.taken[index].file, kind == libc::SOCK_DGRAM)? {
        let mut files = Vec::new();
        passed |= !message.files.is_empty();
        for file in message.files {
            files.push(work.in_flight(file, pid)?);
        }
        queue.push(Message {
            data: message.data,
            from: message.from,
            files,
            sender: message
                .sender
                .map(|(pid, uid, gid)| (work.pids.inside(pid).unwrap_or(0), uid, gid)),
        });
    }
    if passed && kind == libc::SOCK_STREAM {
        // A look does not stop where a piece with descriptors begins, only where it ends.
        let reason = "descriptors passed in its queue come with the first of the unread bytes \
                      up to theirs";
        let out = "let the receiver read before the checkpoint";
        work.degraded(index, "unix socket", reason.to_owned(), out);
    }
    Ok(queue)
}

/// Looks after sockets whose peer is outside, when all sockets of the tree are known.
pub(in super::super) fn settle(work: &mut Work, kinds: &mut [Option<Kind>], source: &dyn Source) {
    let known: BTreeMap<u64, (Peer, bool)> = kinds
        .iter()
        .filter_map(|kind| match kind {
            Some(Kind::Unix(unix)) => {
                Some((unix.ino, (unix.peer.clone(), unix.name.len() > FAMILY)))
            }
            _ => None,
        })
        .collect();
    for (index, kind) in kinds.iter_mut().enumerate() {
        let Some(Kind::Unix(unix)) = kind else {
            continue;
        };
        let Peer::Socket(peer) = unix.peer else {
            continue;
        };
        let datagrams = unix.kind == libc::SOCK_DGRAM;
        if let Some((back, named)) = known.get(&peer) {
            if datagrams && !named && *back != Peer::Socket(unix.ino) {
                let why = "it sends to a socket without a name that does not send back";
                let out = "close it before the checkpoint";
                work.trouble(index, "unix socket", Trouble::refuse(why, way(out)));
            }
            continue;
        }
        if let Some(name) = source.outside(Outside::Unix(peer)) {
            unix.peer = Peer::Outside(name);
            continue;
        }
        let (after, reason) = if datagrams {
            (
                Peer::None,
                "its peer is outside of the box; it comes back unconnected",
            )
        } else {
            (
                Peer::Closed,
                "its peer is outside of the box; it comes back closed by the peer",
            )
        };
        unix.peer = after;
        let out = "let the program connect anew after a rollback";
        work.degraded(index, "unix socket", reason.to_owned(), out);
    }
}

/// Length of an address without a name.
pub(super) const FAMILY: usize = 2;
