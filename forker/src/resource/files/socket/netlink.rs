//! Netlink sockets of the simple kinds: their address is all their state.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};

use super::super::capture::Taken;
use super::super::place::Place;
use super::super::sys;
use super::super::trouble::{Trouble, way};
use super::{Options, options, within};

/// A netlink socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netlink {
    /// `SOCK_RAW` or `SOCK_DGRAM`.
    pub kind: i32,
    /// `NETLINK_*`.
    pub protocol: i32,
    /// Its `sockaddr`, which holds its port and its first 32 groups.
    pub own: Vec<u8>,
    /// Its options.
    pub options: Options,
}

/// Families whose sockets only ask and listen.
const SIMPLE: [i32; 4] = [
    libc::NETLINK_ROUTE,
    NETLINK_SOCK_DIAG,
    libc::NETLINK_KOBJECT_UEVENT,
    libc::NETLINK_GENERIC,
];
const NETLINK_SOCK_DIAG: i32 = 4;

/// Reads a socket; whether messages wait in it.
pub(super) fn capture(taken: &Taken, kind: i32, protocol: i32) -> Result<(Netlink, bool), Trouble> {
    if !SIMPLE.contains(&protocol) {
        return Err(Trouble::refuse(
            format!("netlink sockets of protocol {protocol} cannot be kept"),
            way("close the socket before the checkpoint"),
        ));
    }
    let queued = sys::receive(&taken.file, 1, libc::MSG_PEEK)?.is_some();
    let netlink = Netlink {
        kind,
        protocol,
        own: sys::name(&taken.file, sys::Which::Own)?,
        options: options::capture(taken.file.as_fd(), &[])?,
    };
    Ok((netlink, queued))
}

pub(in super::super) fn rebuild(place: &dyn Place, state: &Netlink) -> io::Result<OwnedFd> {
    within(place.network(), || {
        let socket = sys::socket(libc::AF_NETLINK, state.kind, state.protocol)?;
        let bound = state
            .own
            .get(4..)
            .is_some_and(|rest| rest.iter().any(|&byte| byte != 0));
        if bound {
            sys::address(&socket, sys::With::Bind, &state.own)?;
        }
        state.options.finish(&socket)?;
        Ok(socket)
    })
}
