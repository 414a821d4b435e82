//! TCP: listening sockets, and connections on loopback with what is queued in both directions.
//!
//! A connection is read in repair mode, where the kernel shows sequence numbers and both queues.
//! What one end has sent and the other has received lies in two queues until it is acknowledged: it is
//! kept once, with the receiver, and the sender begins behind it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};

use super::super::capture::{Taken, Work};
use super::super::model::Kind;
use super::super::sys;
use super::super::trouble::{Trouble, way};
use super::{Options, options, udp};

/// A TCP socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tcp {
    /// `AF_INET` or `AF_INET6`.
    pub domain: i32,
    /// Its `sockaddr`.
    pub own: Vec<u8>,
    /// `sockaddr` of its peer, empty without one.
    pub peer: Vec<u8>,
    /// What it does.
    pub state: State,
    /// Its options.
    pub options: Options,
}

/// What a TCP socket does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Nothing, perhaps bound.
    Idle,
    /// It listens with this backlog.
    Listening(i32),
    /// It is connected to a socket of the tree, or to one that is closed.
    Connected(Box<Stream>),
    /// It waits to be accepted by a listening socket of the tree.
    Waiting,
    /// It was connected to somebody outside: what it has received, before the connection is reset.
    Reset(Vec<u8>),
}

/// One end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// The other end: which of [`super::Files::descriptions`], `None` if it is closed.
    pub other: Option<usize>,
    /// Bytes that were received and not read.
    pub received: Vec<u8>,
    /// Sequence number behind them.
    pub received_to: u32,
    /// Bytes that the other end has not received.
    pub unsent: Vec<u8>,
    /// Sequence number of the first of them.
    pub sent_to: u32,
    /// Largest segment.
    pub segment: u32,
    /// Scales of the send and the receive window, if there are any.
    pub scales: Option<(u8, u8)>,
    /// Whether selective acknowledgements are allowed.
    pub selective: bool,
    /// The clock of its time stamps, if it sends them.
    pub stamp: Option<u32>,
    /// How many bytes it can still receive.
    pub room: u32,
    /// Largest window that the other end has shown.
    pub largest: u32,
    /// Whether it has said that it sends no more.
    pub sent_end: bool,
    /// Whether the other end has.
    pub received_end: bool,
}

// From linux/tcp.h and linux/sockios.h.
pub(super) const TCP: i32 = libc::IPPROTO_TCP;
pub(super) const RECEIVE_QUEUE: i32 = 1;
pub(super) const SEND_QUEUE: i32 = 2;
pub(super) const NO_QUEUE: i32 = 0;
/// Leaves repair mode without sending anything.
pub(super) const REPAIR_OFF: i32 = -1;

const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const TIME_WAIT: u8 = 6;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
const LISTEN: u8 = 10;
const CLOSING: u8 = 11;

/// What is needed of `struct tcp_info`.
struct Info {
    state: u8,
    options: u8,
    scales: u8,
    /// Of a listening socket: backlog, and how many wait.
    backlog: u32,
    waiting: u32,
    /// Bytes of data that it has ever sent.
    sent: u64,
}

fn info(file: impl AsFd) -> io::Result<Info> {
    let bytes = sys::getsockopt_bytes(file, TCP, libc::TCP_INFO)?;
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let word = |at: usize| {
        let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        word.map_or(0, u32::from_ne_bytes)
    };
    Ok(Info {
        state: byte(0),
        options: byte(5),
        scales: byte(6),
        waiting: word(24),
        backlog: word(28),
        sent: u64::from(word(200)) | u64::from(word(204)) << 32,
    })
}

/// The first look; connections are read by [`complete`].
pub(super) fn capture(taken: &Taken, domain: i32) -> Result<Tcp, Trouble> {
    let levels = [libc::SOL_IP, libc::SOL_IPV6, TCP];
    let info = info(&taken.file)?;
    Ok(Tcp {
        domain,
        own: sys::name(&taken.file, sys::Which::Own)?,
        peer: sys::name(&taken.file, sys::Which::Peer).unwrap_or_default(),
        state: match info.state {
            LISTEN => State::Listening(i32::try_from(info.backlog).unwrap_or(i32::MAX)),
            CLOSE => State::Idle,
            _ => State::Connected(Box::default()),
        },
        options: options::capture(taken.file.as_fd(), &levels)?,
    })
}

type Address = (Option<[u8; 16]>, u16);

fn address(name: &[u8]) -> Address {
    (udp::ip(name), udp::port(name))
}

/// Reads all connections at one instant.
pub(in super::super) fn complete(work: &mut Work, kinds: &mut [Option<Kind>]) {
    let mut ends: BTreeMap<(Address, Address), usize> = BTreeMap::new();
    let mut listeners: BTreeMap<u16, u32> = BTreeMap::new();
    for (index, kind) in kinds.iter().enumerate() {
        let Some(Kind::Tcp(tcp)) = kind else {
            continue;
        };
        match tcp.state {
            State::Connected(_) => {
                ends.insert((address(&tcp.own), address(&tcp.peer)), index);
            }
            State::Listening(_) => {
                let waiting = info(&work.taken[index].file).map_or(0, |info| info.waiting);
                listeners.insert(udp::port(&tcp.own), waiting);
            }
            _ => {}
        }
    }
    let mut connections = Vec::new();
    for (&(own, peer), &index) in &ends {
        let other = ends.get(&(peer, own)).copied();
        let waiting = listeners.get(&peer.1).is_some_and(|&waiting| waiting > 0);
        let file = &work.taken[index].file;
        let settled = info(file).map_err(Trouble::from).and_then(|info| {
            let ended = [CLOSE_WAIT, LAST_ACK, CLOSING, TIME_WAIT].contains(&info.state);
            if other.is_some() || ended {
                return Ok(None);
            }
            if waiting && info.state == ESTABLISHED {
                return unsent(&info).map(|()| Some(State::Waiting));
            }
            Ok(Some(State::Reset(received(file)?)))
        });
        match settled {
            Ok(None) => connections.push((index, other)),
            Ok(Some(state)) => {
                if let State::Reset(_) = state {
                    let reason = "its peer is outside of the box; it comes back reset".to_owned();
                    let out = "let the program connect anew after a rollback";
                    work.degraded(index, "TCP socket", reason, out);
                }
                if let Some(Kind::Tcp(tcp)) = &mut kinds[index] {
                    tcp.state = state;
                }
            }
            Err(trouble) => work.trouble(index, "TCP socket", trouble),
        }
    }
    read_all(work, kinds, &connections);
}

/// A connection that is not accepted yet can be made anew only while nothing was sent through it.
fn unsent(info: &Info) -> Result<(), Trouble> {
    if info.sent == 0 {
        return Ok(());
    }
    Err(Trouble::refuse(
        "the connection is not accepted yet, and what was sent through it cannot be read",
        way("try again once the server has accepted it"),
    ))
}

/// What was received and not read.
fn received(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let count: i32 = sys::ioctl_get(file, libc::FIONREAD)?;
    peek(file, count)
}

fn peek(file: &OwnedFd, count: i32) -> io::Result<Vec<u8>> {
    let count = usize::try_from(count).map_err(io::Error::other)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let bytes = sys::receive(file, count, libc::MSG_PEEK)?.map(|message| message.data);
    match bytes {
        Some(bytes) if bytes.len() == count => Ok(bytes),
        _ => Err(io::Error::other("not all of a TCP queue could be read")),
    }
}

/// Both directions: first what each end has still to send, then what each has received, so that
/// nothing acknowledged in between is missed.
fn read_all(work: &mut Work, kinds: &mut [Option<Kind>], connections: &[(usize, Option<usize>)]) {
    let mut streams: BTreeMap<usize, Stream> = BTreeMap::new();
    let mut failures = Vec::new();
    let mut repaired = Vec::new();
    for &(index, other) in connections {
        match repair(&work.taken[index].file, 1) {
            Ok(()) => {
                repaired.push(index);
                let stream = Stream {
                    other,
                    ..Stream::default()
                };
                streams.insert(index, stream);
            }
            Err(error) => failures.push((index, error)),
        }
    }
    for step in [sending, receiving] {
        for (&index, stream) in &mut streams {
            if let Err(error) = step(&work.taken[index].file, stream) {
                failures.push((index, error));
            }
        }
    }
    for index in repaired {
        let file = &work.taken[index].file;
        let reuse = match &kinds[index] {
            Some(Kind::Tcp(tcp)) => tcp.options.value(libc::SOL_SOCKET, libc::SO_REUSEADDR),
            _ => 0,
        };
        // Repair mode has changed that option of the original.
        let undone = repair(file, REPAIR_OFF)
            .and_then(|()| sys::setsockopt(file, libc::SOL_SOCKET, libc::SO_REUSEADDR, &[reuse]));
        if let Err(error) = undone {
            failures.push((index, error));
        }
    }
    for (index, error) in failures {
        work.trouble(index, "TCP socket", error.into());
    }
    let ends: BTreeMap<usize, (u32, u32)> = streams
        .iter()
        .map(|(&index, stream)| (index, (stream.received_to, stream.room)))
        .collect();
    for (index, mut stream) in streams {
        let other = stream.other.and_then(|other| ends.get(&other));
        match other {
            Some(&(to, _)) if !skip(&mut stream, to) => {
                let why = "the queues of both ends of the connection do not fit together";
                let trouble = Trouble::refuse(why, way("try again"));
                work.trouble(index, "TCP socket", trouble);
            }
            Some(_) => {}
            // Nobody will ever read it.
            None => {
                let length = u32::try_from(stream.unsent.len()).unwrap_or(0);
                stream.sent_to = stream.sent_to.wrapping_add(length);
                stream.unsent.clear();
            }
        }
        if let Some(Kind::Tcp(tcp)) = &mut kinds[index] {
            tcp.state = State::Connected(Box::new(stream));
        }
    }
}

/// Leaves out what the other end has received already.
fn skip(stream: &mut Stream, received_to: u32) -> bool {
    let have = received_to.wrapping_sub(stream.sent_to);
    match usize::try_from(have) {
        Ok(have) if have <= stream.unsent.len() => {
            stream.unsent.drain(..have);
            stream.sent_to = received_to;
            true
        }
        _ => false,
    }
}

pub(super) fn repair(file: impl AsFd, mode: i32) -> io::Result<()> {
    sys::setsockopt(file, TCP, libc::TCP_REPAIR, &[mode])
}

pub(super) fn queue(file: impl AsFd, queue: i32) -> io::Result<()> {
    sys::setsockopt(file, TCP, libc::TCP_REPAIR_QUEUE, &[queue])
}

fn sending(file: &OwnedFd, stream: &mut Stream) -> io::Result<()> {
    let info = info(file)?;
    queue(file, SEND_QUEUE)?;
    let result = (|| {
        let end: u32 = sys::getsockopt(file, TCP, libc::TCP_QUEUE_SEQ)?;
        let mut count: i32 = sys::ioctl_get(file, libc::TIOCOUTQ)?;
        // The end takes a number of its own, and counts as queued until it is acknowledged.
        let (mut sent_end, mut pending_end) = (false, false);
        match info.state {
            FIN_WAIT1 | CLOSING | LAST_ACK => (sent_end, pending_end) = (true, true),
            FIN_WAIT2 | TIME_WAIT => sent_end = true,
            _ => {}
        }
        if pending_end && count > 0 {
            count -= 1;
        }
        stream.sent_end = sent_end;
        stream.unsent = peek(file, count)?;
        stream.sent_to = end
            .wrapping_sub(u32::from(sent_end))
            .wrapping_sub(count.cast_unsigned());
        Ok(())
    })();
    queue(file, NO_QUEUE)?;
    stream.segment = sys::getsockopt(file, TCP, libc::TCP_MAXSEG)?;
    stream.selective = info.options & 2 != 0;
    stream.scales = (info.options & 4 != 0).then_some((info.scales & 15, info.scales >> 4));
    if info.options & 1 != 0 {
        stream.stamp = Some(sys::getsockopt(file, TCP, libc::TCP_TIMESTAMP)?);
    }
    result
}

fn receiving(file: &OwnedFd, stream: &mut Stream) -> io::Result<()> {
    let state = info(file)?.state;
    if state == SYN_SENT {
        return Err(io::Error::other("it is still being connected"));
    }
    queue(file, RECEIVE_QUEUE)?;
    let result = (|| {
        let end: u32 = sys::getsockopt(file, TCP, libc::TCP_QUEUE_SEQ)?;
        stream.received_end = [CLOSE_WAIT, LAST_ACK, CLOSING, TIME_WAIT].contains(&state);
        stream.received_to = end.wrapping_sub(u32::from(stream.received_end));
        stream.received = received(file)?;
        Ok(())
    })();
    queue(file, NO_QUEUE)?;
    // snd_wl1, snd_wnd, max_window, rcv_wnd, rcv_wup.
    let window: [u32; 5] = sys::getsockopt(file, TCP, libc::TCP_REPAIR_WINDOW)?;
    let edge = window[4].wrapping_add(window[3]);
    let room = edge.wrapping_sub(stream.received_to).cast_signed();
    stream.room = u32::try_from(room).unwrap_or(0);
    stream.largest = window[2];
    result
}
