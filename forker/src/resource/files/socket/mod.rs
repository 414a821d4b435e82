//! Sockets: what all kinds have in common.

pub(super) mod netlink;
mod options;
pub(super) mod tcp;
mod tcp_make;
pub(super) mod udp;
pub(super) mod unix;
mod unix_diag;
mod unix_make;
mod unix_path;

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sched::{CloneFlags, setns};
use nix::sys::stat::fstat;

pub use options::Options;
pub use unix_path::Path as UnixPath;

pub(super) use tcp_make::rebuild as rebuild_tcp;
pub(super) use unix_make::rebuild as rebuild_unix;

use super::capture::{Taken, Work};
use super::model::Kind;
use super::sys;
use super::trouble::{Trouble, way};

/// The network namespace that a tree lives in.
#[derive(Debug)]
pub(super) struct Network {
    namespace: OwnedFd,
    ino: u64,
    unix: Option<unix_diag::Sockets>,
}

impl Network {
    /// That of a process.
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        let namespace: OwnedFd = std::fs::File::open(format!("/proc/{pid}/ns/net"))?.into();
        let ino = fstat(namespace.as_fd())?.st_ino;
        Ok(Self {
            namespace,
            ino,
            unix: None,
        })
    }

    /// All unix sockets in it, asked for once.
    fn unix(&mut self) -> io::Result<&unix_diag::Sockets> {
        let sockets = match self.unix.take() {
            Some(sockets) => sockets,
            None => within(Some(&self.namespace), unix_diag::list)?,
        };
        Ok(self.unix.insert(sockets))
    }
}

/// Runs `work` in a network namespace, on a thread of its own.
pub(super) fn within<T: Send>(
    namespace: Option<impl AsFd + Send>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if let Some(namespace) = namespace {
                setns(namespace, CloneFlags::CLONE_NEWNET)?;
            }
            work()
        });
        let died = || Err(io::Error::other("the thread that makes sockets died"));
        thread.join().unwrap_or_else(|_| died())
    })
}

fn option(taken: &Taken, name: i32) -> io::Result<i32> {
    sys::getsockopt(&taken.file, libc::SOL_SOCKET, name)
}

/// Captures a socket; TCP connections are completed when all sockets are known.
pub(super) fn capture(
    work: &mut Work,
    index: usize,
    network: &mut Option<Network>,
) -> Result<Kind, Trouble> {
    let taken = &work.taken[index];
    let network = match network {
        Some(network) => network,
        None => network.insert(Network::of(work.pids.any().unwrap_or(0))?),
    };
    let namespace = sys::ioctl_file(&taken.file, SIOCGSKNS, 0)?;
    if fstat(namespace.as_fd())?.st_ino != network.ino {
        return Err(Trouble::refuse(
            "the socket belongs to another network namespace than the box's",
            way("open the socket inside the box"),
        ));
    }
    let domain = option(taken, libc::SO_DOMAIN)?;
    let (kind, protocol) = (
        option(taken, libc::SO_TYPE)?,
        option(taken, libc::SO_PROTOCOL)?,
    );
    match (domain, kind, protocol) {
        (libc::AF_UNIX, _, _) => unix::capture(work, index, kind, network).map(Kind::Unix),
        (libc::AF_INET | libc::AF_INET6, _, libc::IPPROTO_TCP) => {
            Ok(Kind::Tcp(tcp::capture(taken, domain)?))
        }
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP) => {
            let (udp, foreign) = udp::capture(taken, domain)?;
            if foreign > 0 {
                let reason = format!("{foreign} queued datagrams from elsewhere are lost");
                work.degraded(index, "UDP socket", reason, "have the sender repeat them");
            }
            Ok(Kind::Udp(udp))
        }
        (libc::AF_NETLINK, _, _) => {
            let (netlink, queued) = netlink::capture(taken, kind, protocol)?;
            if queued {
                let reason = "messages of the kernel that were not read yet are lost".to_owned();
                work.degraded(index, "netlink socket", reason, "ask the kernel again");
            }
            Ok(Kind::Netlink(netlink))
        }
        _ => Err(Trouble::refuse(
            format!("sockets of family {domain}, type {kind}, protocol {protocol} cannot be kept"),
            way("close the socket before the checkpoint"),
        )),
    }
}

/// From linux/sockios.h: the network namespace of a socket.
const SIOCGSKNS: libc::Ioctl = 0x894c;

/// The data that can be peeked at, message by message, without taking it out.
///
/// `SO_PEEK_OFF` lets each look begin where the last one ended; it is put back at the end.
pub(super) fn peek_all(file: &OwnedFd, datagrams: bool) -> io::Result<Vec<sys::Message>> {
    const AT_ONCE: usize = 1 << 18;
    let level = libc::SOL_SOCKET;
    let before: i32 = sys::getsockopt(file, level, libc::SO_PEEK_OFF)?;
    sys::setsockopt(file, level, libc::SO_PEEK_OFF, &[0_i32])?;
    let mut messages = Vec::new();
    let result = loop {
        match sys::receive(file, AT_ONCE, libc::MSG_PEEK) {
            // Nothing at all means the end; only a datagram can be empty.
            Ok(Some(message)) if !datagrams && message.is_empty() => break Ok(()),
            Ok(Some(message)) if message.flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 => {
                break Err(io::Error::other("a message is too long to be read"));
            }
            Ok(Some(message)) => messages.push(message),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    sys::setsockopt(file, level, libc::SO_PEEK_OFF, &[before])?;
    result.map(|()| messages)
}
