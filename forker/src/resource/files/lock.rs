//! Locks on files. `flock` and OFD locks belong to the description and are taken on it; POSIX locks
//! belong to the process and are taken by it.

use std::io;
use std::os::fd::AsFd;

use super::inside::{Argument, InsideCall};
use super::model::Table;
use super::sys;
use crate::proc::locks::{Kind, Lock};

/// Takes a lock that belongs to a description.
pub(super) fn take(file: impl AsFd, lock: &Lock) -> io::Result<()> {
    match lock.kind {
        Kind::Flock => {
            let how = if lock.exclusive {
                libc::LOCK_EX
            } else {
                libc::LOCK_SH
            };
            sys::flock(file, how | libc::LOCK_NB)
        }
        Kind::Ofd => sys::fcntl_with(file, libc::F_OFD_SETLK, &mut range(lock)?),
        Kind::Posix | Kind::Lease => Err(io::Error::other("not a lock of a description")),
    }
}

fn range(lock: &Lock) -> io::Result<libc::flock> {
    let kind = if lock.exclusive {
        libc::F_WRLCK
    } else {
        libc::F_RDLCK
    };
    let whence = libc::SEEK_SET;
    let start = i64::try_from(lock.start).map_err(io::Error::other)?;
    let length = match lock.end {
        None => 0,
        Some(end) => i64::try_from(end.saturating_sub(lock.start).saturating_add(1))
            .map_err(io::Error::other)?,
    };
    Ok(libc::flock {
        l_type: i16::try_from(kind).map_err(io::Error::other)?,
        l_whence: i16::try_from(whence).map_err(io::Error::other)?,
        l_start: start,
        l_len: length,
        l_pid: 0,
    })
}

/// The call by which the owner of a table takes a POSIX lock back.
pub(super) fn posix(table: &Table, fd: i32, lock: &Lock) -> io::Result<Option<InsideCall>> {
    let Some(&pid) = table.pids.first() else {
        return Ok(None);
    };
    let range = range(lock)?;
    let mut bytes = Vec::with_capacity(32);
    bytes.extend_from_slice(&range.l_type.to_ne_bytes());
    bytes.extend_from_slice(&range.l_whence.to_ne_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&range.l_start.to_ne_bytes());
    bytes.extend_from_slice(&range.l_len.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    Ok(Some(InsideCall {
        pid,
        what: "take a POSIX lock",
        file: None,
        number: libc::SYS_fcntl,
        arguments: vec![
            Argument::number(fd),
            Argument::number(libc::F_SETLK),
            Argument::Bytes(bytes),
        ],
    }))
}
