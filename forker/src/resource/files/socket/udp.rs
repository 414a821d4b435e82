//! UDP sockets with the datagrams that were not read.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};

use super::super::capture::Taken;
use super::super::model::{Files, Kind};
use super::super::place::Place;
use super::super::sys;
use super::super::trouble::Trouble;
use super::{Options, options, peek_all, within};

/// A UDP socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Udp {
    /// `AF_INET` or `AF_INET6`.
    pub domain: i32,
    /// Its `sockaddr`.
    pub own: Vec<u8>,
    /// `sockaddr` of whom it is connected to.
    pub peer: Option<Vec<u8>>,
    /// Its options.
    pub options: Options,
    /// Queued datagrams: `sockaddr` of the sender and bytes.
    pub queue: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The port in a `sockaddr` of either family.
pub(super) fn port(address: &[u8]) -> u16 {
    let bytes = address.get(2..4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u16::from_be_bytes)
}

/// The IP address in a `sockaddr` of either family, that of version 4 as a mapped one.
pub(super) fn ip(address: &[u8]) -> Option<[u8; 16]> {
    let word = |at: usize| address.get(at..at + 4);
    if address.first_chunk().copied().map(u16::from_ne_bytes) == Some(AF_INET) {
        let mut mapped = [0; 16];
        mapped.get_mut(10..12)?.fill(0xff);
        mapped.get_mut(12..)?.copy_from_slice(word(4)?);
        return Some(mapped);
    }
    address.get(8..24)?.try_into().ok()
}

const AF_INET: u16 = 2;

/// Whether an address is on the loopback interface, or any.
pub(super) fn is_local(address: &[u8]) -> bool {
    let Some(ip) = ip(address) else {
        return false;
    };
    let ip = std::net::Ipv6Addr::from(ip);
    match ip.to_ipv4_mapped() {
        Some(ip) => ip.is_loopback() || ip.is_unspecified(),
        None => ip.is_loopback() || ip.is_unspecified(),
    }
}

/// Reads a socket; how many of its datagrams came from elsewhere and cannot be sent again.
pub(super) fn capture(taken: &Taken, domain: i32) -> Result<(Udp, usize), Trouble> {
    let levels = [libc::SOL_IP, libc::SOL_IPV6];
    let options = options::capture(taken.file.as_fd(), &levels)?;
    let (mut queue, mut foreign) = (Vec::new(), 0);
    for message in peek_all(&taken.file, true)? {
        if is_local(&message.from) {
            queue.push((message.from, message.data));
        } else {
            foreign += 1;
        }
    }
    let udp = Udp {
        domain,
        own: sys::name(&taken.file, sys::Which::Own)?,
        peer: sys::name(&taken.file, sys::Which::Peer).ok(),
        options,
        queue,
    };
    Ok((udp, foreign))
}

/// Makes all UDP sockets, with their queues.
pub(in super::super) fn rebuild(
    files: &Files,
    place: &dyn Place,
) -> io::Result<BTreeMap<usize, OwnedFd>> {
    let descriptions = files.descriptions.iter().enumerate();
    let all: BTreeMap<usize, &Udp> = descriptions
        .filter_map(|(index, description)| match &description.kind {
            Kind::Udp(udp) => Some((index, udp)),
            _ => None,
        })
        .collect();
    if all.is_empty() {
        return Ok(BTreeMap::new());
    }
    within(place.network(), || {
        let mut made = BTreeMap::new();
        for (&index, udp) in &all {
            let socket = sys::socket(udp.domain, libc::SOCK_DGRAM, 0)?;
            udp.options.before_bind(&socket)?;
            if port(&udp.own) != 0 {
                sys::address(&socket, sys::With::Bind, &udp.own)?;
            }
            made.insert(index, socket);
        }
        for (&index, udp) in &all {
            fill(&all, &made, &made[&index], udp)?;
        }
        // A connected socket takes from its peer alone, so only now.
        for (index, udp) in &all {
            if let Some(peer) = &udp.peer {
                sys::address(&made[index], sys::With::Connect, peer)?;
            }
            udp.options.finish(&made[index])?;
        }
        Ok(made)
    })
}

fn fill(
    all: &BTreeMap<usize, &Udp>,
    made: &BTreeMap<usize, OwnedFd>,
    socket: &OwnedFd,
    udp: &Udp,
) -> io::Result<()> {
    let room = [udp.options.buffers[0].max(1 << 20)];
    sys::setsockopt(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &room)?;
    for (from, data) in &udp.queue {
        let same = |other: &Udp| {
            let any = ip(&other.own).is_some_and(|ip| {
                let ip = std::net::Ipv6Addr::from(ip);
                ip.to_ipv4_mapped()
                    .map_or_else(|| ip.is_unspecified(), |ip| ip.is_unspecified())
            });
            port(&other.own) == port(from) && (any || ip(&other.own) == ip(from))
        };
        let known = all
            .iter()
            .find(|(_, other)| other.domain == udp.domain && same(other));
        let own;
        let sender = match known {
            Some((index, _)) => &made[index],
            None => {
                own = sys::socket(udp.domain, libc::SOCK_DGRAM, 0)?;
                sys::address(&own, sys::With::Bind, from)?;
                &own
            }
        };
        sys::send(sender, data, &reachable(&udp.own), &[], None)?;
    }
    Ok(())
}

/// The address under which a socket of this machine is reached: for any address, the loopback one.
fn reachable(own: &[u8]) -> Vec<u8> {
    let mut address = own.to_vec();
    let Some(ip) = ip(own) else {
        return address;
    };
    let ip = std::net::Ipv6Addr::from(ip);
    if own.first_chunk().copied().map(u16::from_ne_bytes) == Some(AF_INET) {
        if ip.to_ipv4_mapped().is_some_and(|ip| ip.is_unspecified())
            && let Some(bytes) = address.get_mut(4..8)
        {
            bytes.copy_from_slice(&[127, 0, 0, 1]);
        }
    } else if ip.is_unspecified()
        && let Some(last) = address.get_mut(23)
    {
        *last = 1;
    }
    address
}
