//! Makes TCP sockets again. Both ends of a connection are put together in repair mode, with the
//! sequence numbers and what was received; what was not received is sent when both live again.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use super::super::model::{Files, Kind};
use super::super::place::Place;
use super::super::sys;
use super::tcp::{NO_QUEUE, RECEIVE_QUEUE, REPAIR_OFF, SEND_QUEUE, State, Stream, TCP, Tcp};
use super::tcp::{queue, repair};
use super::{Options, udp, within};

// From linux/tcp.h: codes of TCP_REPAIR_OPTIONS.
const SEGMENT: u32 = 2;
const SCALES: u32 = 3;
const SELECTIVE: u32 = 4;
const STAMPS: u32 = 8;

/// Makes all TCP sockets.
pub(in super::super) fn rebuild(
    files: &Files,
    place: &dyn Place,
) -> io::Result<BTreeMap<usize, OwnedFd>> {
    let descriptions = files.descriptions.iter().enumerate();
    let all: BTreeMap<usize, &Tcp> = descriptions
        .filter_map(|(index, description)| match &description.kind {
            Kind::Tcp(tcp) => Some((index, tcp)),
            _ => None,
        })
        .collect();
    if all.is_empty() {
        return Ok(BTreeMap::new());
    }
    within(place.network(), || make(&all))
}

fn new(tcp: &Tcp) -> io::Result<OwnedFd> {
    let socket = sys::socket(tcp.domain, libc::SOCK_STREAM, 0)?;
    tcp.options.before_bind(&socket)?;
    Ok(socket)
}

fn make(all: &BTreeMap<usize, &Tcp>) -> io::Result<BTreeMap<usize, OwnedFd>> {
    let mut made = BTreeMap::new();
    // Listening ones first: a port that connections use already would not be given to them.
    for (&index, tcp) in all {
        if let State::Listening(backlog) = tcp.state {
            let socket = new(tcp)?;
            sys::address(&socket, sys::With::Bind, &tcp.own)?;
            sys::listen(&socket, backlog)?;
            made.insert(index, socket);
        }
    }
    let mut closed = Vec::new();
    for (&index, tcp) in all {
        let socket = match &tcp.state {
            State::Listening(_) | State::Waiting => continue,
            State::Idle => {
                let socket = new(tcp)?;
                if udp::port(&tcp.own) != 0 {
                    sys::address(&socket, sys::With::Bind, &tcp.own)?;
                }
                socket
            }
            State::Reset(received) => reset(tcp, received)?,
            State::Connected(stream) => {
                if stream.other.is_none() {
                    closed.push(connection(
                        &gone(tcp, stream),
                        &far_end(stream),
                        stream.room,
                    )?);
                }
                let other = stream.other.and_then(|other| all.get(&other));
                let room = match other.map(|other| &other.state) {
                    Some(State::Connected(other)) => other.room,
                    _ => 1 << 16,
                };
                connection(tcp, stream, room)?
            }
        };
        made.insert(index, socket);
    }
    let connected = |tcp: &Tcp| matches!(tcp.state, State::Connected(_));
    for socket in &closed {
        repair(socket, REPAIR_OFF)?;
    }
    for (index, tcp) in all {
        if connected(tcp) {
            repair(&made[index], REPAIR_OFF)?;
        }
    }
    for (index, tcp) in all {
        if let State::Connected(stream) = &tcp.state {
            resume(&made[index], stream)?;
        }
    }
    drop(closed);
    for (&index, tcp) in all {
        if tcp.state == State::Waiting {
            let socket = sys::socket(tcp.domain, libc::SOCK_STREAM, 0)?;
            sys::setsockopt(&socket, libc::SOL_SOCKET, libc::SO_REUSEADDR, &[1_i32])?;
            sys::address(&socket, sys::With::Bind, &tcp.own)?;
            sys::address(&socket, sys::With::Connect, &tcp.peer)?;
            made.insert(index, socket);
        }
    }
    for (index, tcp) in all {
        tcp.options.finish(&made[index])?;
    }
    Ok(made)
}

/// The closed other end of a connection, as a socket.
fn gone(tcp: &Tcp, stream: &Stream) -> Tcp {
    Tcp {
        own: tcp.peer.clone(),
        peer: tcp.own.clone(),
        state: State::Connected(Box::new(far_end(stream))),
        ..tcp.clone()
    }
}

fn far_end(stream: &Stream) -> Stream {
    Stream {
        received: Vec::new(),
        received_to: stream.sent_to,
        sent_to: stream.received_to,
        scales: stream.scales.map(|(send, receive)| (receive, send)),
        room: 1 << 16,
        sent_end: stream.received_end,
        ..stream.clone()
    }
}

/// One end, in repair mode; `room` is how much the other end can receive.
fn connection(tcp: &Tcp, stream: &Stream, room: u32) -> io::Result<OwnedFd> {
    let socket = new(tcp)?;
    let much = [1_i32 << 27];
    sys::setsockopt(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &much)?;
    Options::make_room(&socket)?;
    repair(&socket, 1)?;
    let count = u32::try_from(stream.received.len()).map_err(io::Error::other)?;
    queue(&socket, SEND_QUEUE)?;
    sys::setsockopt(&socket, TCP, libc::TCP_QUEUE_SEQ, &[stream.sent_to])?;
    queue(&socket, RECEIVE_QUEUE)?;
    let begin = stream.received_to.wrapping_sub(count);
    sys::setsockopt(&socket, TCP, libc::TCP_QUEUE_SEQ, &[begin])?;
    sys::address(&socket, sys::With::Bind, &tcp.own)?;
    sys::address(&socket, sys::With::Connect, &tcp.peer)?;
    let mut options = vec![[SEGMENT, stream.segment]];
    if let Some((send, receive)) = stream.scales {
        options.push([SCALES, u32::from(send) | u32::from(receive) << 16]);
    }
    if stream.selective {
        options.push([SELECTIVE, 0]);
    }
    if stream.stamp.is_some() {
        options.push([STAMPS, 0]);
    }
    sys::setsockopt(&socket, TCP, libc::TCP_REPAIR_OPTIONS, &options)?;
    if let Some(stamp) = stream.stamp {
        sys::setsockopt(&socket, TCP, libc::TCP_TIMESTAMP, &[stamp])?;
    }
    queue(&socket, RECEIVE_QUEUE)?;
    send_all(&socket, &stream.received)?;
    queue(&socket, NO_QUEUE)?;
    let largest = stream.largest.max(room);
    let window = [
        stream.received_to,
        room,
        largest,
        stream.room,
        stream.received_to,
    ];
    sys::setsockopt(&socket, TCP, libc::TCP_REPAIR_WINDOW, &window)?;
    Ok(socket)
}

fn send_all(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    const AT_ONCE: usize = 1 << 15;
    for mut piece in bytes.chunks(AT_ONCE) {
        while !piece.is_empty() {
            let sent = sys::send(socket, piece, &[], &[], None)?;
            piece = piece.get(sent..).unwrap_or_default();
        }
    }
    Ok(())
}

/// What follows when both ends live.
fn resume(socket: &OwnedFd, stream: &Stream) -> io::Result<()> {
    send_all(socket, &stream.unsent)?;
    if stream.sent_end {
        sys::shutdown(socket, libc::SHUT_WR)?;
    }
    Ok(())
}

/// A socket that has received something and whose connection was then reset.
fn reset(tcp: &Tcp, received: &[u8]) -> io::Result<OwnedFd> {
    let loopback = if tcp.domain == libc::AF_INET {
        let mut address = vec![0; 16];
        address.splice(4..8, [127, 0, 0, 1]);
        address
    } else {
        let mut address = vec![0; 28];
        address.splice(23..24, [1]);
        address
    };
    let mut any = loopback;
    let family = u16::try_from(tcp.domain).map_err(io::Error::other)?;
    any.splice(0..2, family.to_ne_bytes());
    let listener = sys::socket(tcp.domain, libc::SOCK_STREAM, 0)?;
    sys::address(&listener, sys::With::Bind, &any)?;
    sys::listen(&listener, 1)?;
    let socket = new(tcp)?;
    let there = sys::name(&listener, sys::Which::Own)?;
    sys::address(&socket, sys::With::Connect, &there)?;
    let peer = sys::accept(&listener)?;
    Options::make_room(&peer)?;
    send_all(&peer, received)?;
    // Closed with a linger time of zero, it sends a reset.
    let linger = [1_i32, 0];
    sys::setsockopt(&peer, libc::SOL_SOCKET, libc::SO_LINGER, &linger)?;
    Ok(socket)
}
