//! What a process image says about descriptors. Pids are those inside the box.

use serde::{Deserialize, Serialize};

use super::socket::{netlink, tcp, udp, unix};
use super::{
    device, epoll, event, inotify, memfd, pipe, process, regular, signal, terminal, timer,
};
use crate::proc::locks::Lock;

/// All descriptors of a process tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// Tables of descriptors; processes made with `CLONE_FILES` share one.
    pub tables: Vec<Table>,
    /// Open file descriptions, each once.
    pub descriptions: Vec<Description>,
    /// Pipes and FIFOs, to which several descriptions can lead.
    pub pipes: Vec<pipe::Pipe>,
    /// Terminals likewise.
    pub terminals: Vec<terminal::Terminal>,
    /// Memory files likewise.
    pub memfds: Vec<memfd::Memfd>,
    /// Controlling terminals of sessions.
    pub sessions: Vec<terminal::Session>,
}

/// One table of descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// The processes that use it.
    pub pids: Vec<i32>,
    /// Its descriptors by number.
    pub slots: Vec<Slot>,
    /// POSIX locks of its owner, each with the descriptor that it is taken through.
    pub locks: Vec<(i32, Lock)>,
}

/// One descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// Its number.
    pub fd: i32,
    /// Whether it is closed by `exec`.
    pub cloexec: bool,
    /// Which of [`Files::descriptions`] it refers to.
    pub description: usize,
}

/// One open file description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Where it was seen first: process and number (-1 in the queue of a socket).
    pub seen: (i32, i32),
    /// Access mode and status flags (`O_*`).
    pub flags: i32,
    /// Position in bytes, or the directory's own cookie.
    pub position: i64,
    /// Whom signals about it go to.
    pub owner: Option<Owner>,
    /// `flock` and OFD locks, which belong to it.
    pub locks: Vec<Lock>,
    /// What it is.
    pub kind: Kind,
}

/// Who is told by a signal that a descriptor is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// `F_OWNER_TID`, `F_OWNER_PID` or `F_OWNER_PGRP`.
    pub kind: i32,
    /// Thread, process or group, 0 for nobody.
    pub pid: i32,
    /// Signal number of `F_SETSIG`, 0 for `SIGIO`.
    pub signal: i32,
}

/// What an open file description is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kind {
    /// A file, directory or symbolic link of a filesystem.
    Regular(regular::Regular),
    /// `/dev/null` and its like.
    Device(device::Device),
    /// An end of a pipe or FIFO: which of [`Files::pipes`].
    Pipe(usize),
    /// An end of a terminal.
    Terminal(terminal::End),
    /// A memory file: which of [`Files::memfds`].
    Memfd(usize),
    /// An eventfd.
    Event(event::Event),
    /// A timerfd.
    Timer(timer::Timer),
    /// A signalfd.
    Signal(signal::Signal),
    /// An inotify instance.
    Inotify(inotify::Inotify),
    /// An epoll set.
    Epoll(epoll::Epoll),
    /// A pidfd.
    Process(process::Process),
    /// A unix socket.
    Unix(unix::Unix),
    /// A TCP socket.
    Tcp(tcp::Tcp),
    /// A UDP socket.
    Udp(udp::Udp),
    /// A netlink socket.
    Netlink(netlink::Netlink),
}

impl Kind {
    /// How a report names it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Regular(_) => "file",
            Self::Device(_) => "device",
            Self::Pipe(_) => "pipe",
            Self::Terminal(_) => "terminal",
            Self::Memfd(_) => "memfd",
            Self::Event(_) => "eventfd",
            Self::Timer(_) => "timerfd",
            Self::Signal(_) => "signalfd",
            Self::Inotify(_) => "inotify",
            Self::Epoll(_) => "epoll",
            Self::Process(_) => "pidfd",
            Self::Unix(_) => "unix socket",
            Self::Tcp(_) => "TCP socket",
            Self::Udp(_) => "UDP socket",
            Self::Netlink(_) => "netlink socket",
        }
    }
}
