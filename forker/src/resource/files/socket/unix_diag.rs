//! What `sock_diag` tells of unix sockets: who is connected to whom, who waits at a listening one.

use std::collections::BTreeMap;
use std::io;

use nix::unistd::{read, write};

use super::super::sys;

/// One socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// `None` if it is not connected, `Some(0)` if its peer has no descriptor.
    pub(super) peer: Option<u32>,
    pub(super) listening: bool,
    /// Sockets whose connection is not accepted yet, 0 for one without a descriptor.
    pub(super) waiting: Vec<u32>,
    /// Backlog of a listening socket.
    pub(super) backlog: u32,
    /// Which directions are shut down: 1 receiving, 2 sending.
    pub(super) shutdown: u8,
}

/// All sockets by their inode number.
pub(super) type Sockets = BTreeMap<u64, Entry>;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NETLINK_SOCK_DIAG: i32 = 4;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const TCP_LISTEN: u8 = 10;

/// Asks for all unix sockets of the calling thread's network namespace.
pub(super) fn list() -> io::Result<Sockets> {
    let socket = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_SOCK_DIAG)?;
    let mut request = Vec::new();
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_DUMP;
    request.extend_from_slice(&40_u32.to_ne_bytes());
    request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&u16::try_from(flags).unwrap_or(0x301).to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    // struct unix_diag_req: family, all states, no certain inode, everything shown.
    request.extend_from_slice(&[1, 0, 0, 0]);
    for word in [u32::MAX, 0, 0x1f, 0, 0] {
        request.extend_from_slice(&word.to_ne_bytes());
    }
    write(&socket, &request)?;
    let mut sockets = Sockets::new();
    let mut buffer = vec![0_u8; 1 << 17];
    loop {
        let got = read(&socket, &mut buffer)?;
        if parse(buffer.get(..got).unwrap_or_default(), &mut sockets)? || got == 0 {
            return Ok(sockets);
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    word.try_into().ok().map(u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let half = bytes.get(at..at.checked_add(2)?)?;
    half.try_into().ok().map(u16::from_ne_bytes)
}

/// Reads the messages of one answer; true if they were the last.
fn parse(mut answer: &[u8], sockets: &mut Sockets) -> io::Result<bool> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    while answer.len() >= 16 {
        let length = usize::try_from(word(answer, 0).ok_or_else(bad)?).map_err(|_| bad())?;
        let message = answer
            .get(..length)
            .filter(|_| length >= 16)
            .ok_or_else(bad)?;
        match half(message, 4).ok_or_else(bad)? {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = word(message, 16).ok_or_else(bad)?.cast_signed();
                return Err(io::Error::from_raw_os_error(-code));
            }
            SOCK_DIAG_BY_FAMILY => {
                let (ino, entry) = entry(message).ok_or_else(bad)?;
                sockets.insert(ino, entry);
            }
            _ => {}
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// `struct unix_diag_msg` and its attributes.
fn entry(message: &[u8]) -> Option<(u64, Entry)> {
    let ino = word(message, 20)?;
    let mut entry = Entry {
        listening: *message.get(18)? == TCP_LISTEN,
        ..Entry::default()
    };
    let mut rest = message.get(32..)?;
    while rest.len() >= 4 {
        let length = usize::from(half(rest, 0)?);
        let value = rest.get(4..length)?;
        match half(rest, 2)? & 0x3fff {
            2 => entry.peer = word(value, 0),
            3 => {
                let all = value.chunks_exact(4).filter_map(|one| word(one, 0));
                entry.waiting = all.collect();
            }
            4 if entry.listening => entry.backlog = word(value, 4)?,
            6 => entry.shutdown = *value.first()?,
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some((u64::from(ino), entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::fstat;

    #[test]
    fn pairs_know_each_other() {
        let [a, b] = sys::socketpair(libc::SOCK_STREAM).unwrap();
        let ino = |file| fstat(file).unwrap().st_ino;
        let all = list().unwrap();
        let (one, other) = (&all[&ino(&a)], &all[&ino(&b)]);
        assert_eq!(one.peer.map(u64::from), Some(ino(&b)));
        assert_eq!(other.peer.map(u64::from), Some(ino(&a)));
    }

    #[test]
    fn damaged_answers_are_errors() {
        let mut answer = vec![0_u8; 64];
        answer[..4].copy_from_slice(&64_u32.to_ne_bytes());
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        answer[32] = 200;
        for length in 0..answer.len() {
            let _ = parse(&answer[..length], &mut Sockets::new());
        }
        assert!(parse(&answer, &mut Sockets::new()).is_err());
        answer[..4].copy_from_slice(&3_u32.to_ne_bytes());
        assert!(parse(&answer, &mut Sockets::new()).is_err());
    }
}
