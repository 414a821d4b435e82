//! Socket options: those that differ from what a new socket has are set again.

use std::io;
use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use super::super::sys;
use super::super::trouble::{Trouble, way};

/// Options of a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Level, name and value.
    pub numbers: Vec<(i32, i32, i32)>,
    /// `SO_LINGER`.
    pub linger: [i32; 2],
    /// `SO_RCVTIMEO` and `SO_SNDTIMEO`, seconds and microseconds.
    pub timeouts: [[i64; 2]; 2],
    /// Receive and send buffer in bytes, as the kernel counts them.
    pub buffers: [i32; 2],
    /// Which of the two the program has fixed.
    pub fixed: i32,
}

// From asm-generic/socket.h and linux/tcp.h, where the libc crate has them not.
const SO_BUF_LOCK: i32 = 72;
const SO_PASSPIDFD: i32 = 76;
const SO_PASSRIGHTS: i32 = 83;
const SO_GET_FILTER: i32 = 26;
const TCP_CORK: i32 = 3;

/// Options that say what a socket may be bound to: set before it is.
const EARLY: [(i32, i32); 6] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_IPV6, libc::IPV6_V6ONLY),
    (libc::SOL_IP, libc::IP_FREEBIND),
    (libc::SOL_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
];

const ANY: [i32; 18] = [
    libc::SO_DONTROUTE,
    libc::SO_BROADCAST,
    libc::SO_KEEPALIVE,
    libc::SO_OOBINLINE,
    libc::SO_NO_CHECK,
    libc::SO_PRIORITY,
    libc::SO_PASSCRED,
    libc::SO_RCVLOWAT,
    libc::SO_TIMESTAMP,
    libc::SO_PASSSEC,
    libc::SO_TIMESTAMPNS,
    libc::SO_MARK,
    libc::SO_RXQ_OVFL,
    libc::SO_PEEK_OFF,
    libc::SO_BUSY_POLL,
    libc::SO_ZEROCOPY,
    SO_PASSPIDFD,
    SO_PASSRIGHTS,
];

const IP: [i32; 7] = [
    libc::IP_TOS,
    libc::IP_TTL,
    libc::IP_MTU_DISCOVER,
    libc::IP_PKTINFO,
    libc::IP_RECVERR,
    libc::IP_MULTICAST_TTL,
    libc::IP_MULTICAST_LOOP,
];

const IP6: [i32; 5] = [
    libc::IPV6_RECVPKTINFO,
    libc::IPV6_TCLASS,
    libc::IPV6_UNICAST_HOPS,
    libc::IPV6_MTU_DISCOVER,
    libc::IPV6_RECVERR,
];

const TCP: [i32; 11] = [
    libc::TCP_NODELAY,
    libc::TCP_KEEPIDLE,
    libc::TCP_KEEPINTVL,
    libc::TCP_KEEPCNT,
    libc::TCP_SYNCNT,
    libc::TCP_LINGER2,
    libc::TCP_WINDOW_CLAMP,
    libc::TCP_USER_TIMEOUT,
    libc::TCP_FASTOPEN,
    libc::TCP_NOTSENT_LOWAT,
    TCP_CORK,
];

/// Streams have no multicast, though they answer when they are asked about it.
fn wanted(levels: &[i32], (level, name): (i32, i32)) -> bool {
    let multicast =
        level == libc::SOL_IP && [libc::IP_MULTICAST_TTL, libc::IP_MULTICAST_LOOP].contains(&name);
    levels.contains(&level) && !(multicast && levels.contains(&libc::IPPROTO_TCP))
}

fn all(levels: &[i32]) -> impl Iterator<Item = (i32, i32)> {
    let early = EARLY
        .into_iter()
        .filter(|(level, _)| *level == libc::SOL_SOCKET || levels.contains(level));
    let any = ANY.into_iter().map(|name| (libc::SOL_SOCKET, name));
    let ip = IP.into_iter().map(|name| (libc::SOL_IP, name));
    let ip6 = IP6.into_iter().map(|name| (libc::SOL_IPV6, name));
    let tcp = TCP.into_iter().map(|name| (libc::IPPROTO_TCP, name));
    let late = ip.chain(ip6).chain(tcp);
    let late = late
        .filter(|option| wanted(levels, *option))
        .collect::<Vec<_>>();
    early.chain(any).chain(late)
}

fn number(file: impl AsFd, (level, name): (i32, i32)) -> Option<i32> {
    sys::getsockopt(file, level, name).ok()
}

/// Reads all options of a socket of these levels.
pub(super) fn capture(file: impl AsFd, levels: &[i32]) -> Result<Options, Trouble> {
    let file = file.as_fd();
    let any = libc::SOL_SOCKET;
    if sys::getsockopt_bytes(file, any, SO_GET_FILTER).is_ok_and(|filter| !filter.is_empty()) {
        return Err(Trouble::refuse(
            "a packet filter is attached to the socket",
            way("detach it with SO_DETACH_FILTER"),
        ));
    }
    let numbers = all(levels)
        .filter_map(|option| number(file, option).map(|value| (option.0, option.1, value)))
        .collect();
    let timeout = |name| sys::getsockopt::<[i64; 2]>(file, any, name);
    let buffer = |name| sys::getsockopt::<i32>(file, any, name);
    Ok(Options {
        numbers,
        linger: sys::getsockopt(file, any, libc::SO_LINGER)?,
        timeouts: [timeout(libc::SO_RCVTIMEO)?, timeout(libc::SO_SNDTIMEO)?],
        buffers: [buffer(libc::SO_RCVBUF)?, buffer(libc::SO_SNDBUF)?],
        fixed: buffer(SO_BUF_LOCK).unwrap_or(0),
    })
}

impl Options {
    /// The value of an option, 0 if the socket has it not.
    pub(super) fn value(&self, level: i32, name: i32) -> i32 {
        let found = self
            .numbers
            .iter()
            .find(|one| (one.0, one.1) == (level, name));
        found.map_or(0, |one| one.2)
    }

    fn set(&self, file: impl AsFd, wanted: impl Fn((i32, i32)) -> bool) -> io::Result<()> {
        for &(level, name, value) in &self.numbers {
            let option = (level, name);
            if wanted(option) && number(file.as_fd(), option) != Some(value) {
                let set = sys::setsockopt(file.as_fd(), level, name, &[value]);
                set.map_err(|error| {
                    let what = format!("socket option {level}/{name} = {value}: {error}");
                    io::Error::new(error.kind(), what)
                })?;
            }
        }
        Ok(())
    }

    /// Those that decide about binding.
    pub(super) fn before_bind(&self, file: impl AsFd) -> io::Result<()> {
        self.set(file, |option| EARLY.contains(&option))
    }

    /// Makes room for whatever has to be put into the queues.
    pub(super) fn make_room(file: impl AsFd) -> io::Result<()> {
        let much = [1_i32 << 27];
        sys::setsockopt(file, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &much)
    }

    /// All the others; last of all, when the queues are filled.
    pub(super) fn finish(&self, file: impl AsFd) -> io::Result<()> {
        let (file, any) = (file.as_fd(), libc::SOL_SOCKET);
        self.set(file, |_| true)?;
        if self.linger[0] != 0 {
            sys::setsockopt(file, any, libc::SO_LINGER, &self.linger)?;
        }
        for (name, value) in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO]
            .into_iter()
            .zip(self.timeouts)
        {
            if value != [0, 0] {
                sys::setsockopt(file, any, name, &value)?;
            }
        }
        let names = [
            (libc::SO_RCVBUF, libc::SO_RCVBUFFORCE),
            (libc::SO_SNDBUF, libc::SO_SNDBUFFORCE),
        ];
        for ((name, force), value) in names.into_iter().zip(self.buffers) {
            if sys::getsockopt::<i32>(file, any, name)? != value {
                // The kernel doubles what it is given.
                sys::setsockopt(file, any, force, &[value / 2])?;
            }
        }
        // Having set a size, we have also fixed it.
        match sys::setsockopt(file, any, SO_BUF_LOCK, &[self.fixed]) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
            other => other,
        }
    }
}
