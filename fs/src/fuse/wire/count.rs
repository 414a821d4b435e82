//! How many requests of each kind came: what a program costs in round trips.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::fuse::wire::abi::opcode;

/// Kinds of requests that are counted one by one; what lies beyond is added up in the last place.
const KINDS: usize = 64;

/// Counters of a session.
#[derive(Debug)]
pub(in crate::fuse) struct Counts {
    counts: [AtomicU64; KINDS],
}

impl Counts {
    /// Starts at zero.
    pub(in crate::fuse) fn new() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; KINDS],
        }
    }

    /// Counts a request.
    pub(super) fn count(&self, kind: u32) {
        let place = usize::try_from(kind).unwrap_or(KINDS).min(KINDS - 1);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the kinds that came at all, with how often.
    pub(in crate::fuse) fn list(&self) -> Vec<(&'static str, u64)> {
        let number = |kind| u32::try_from(kind).unwrap_or(u32::MAX);
        self.counts
            .iter()
            .enumerate()
            .map(|(kind, count)| (name(number(kind)), count.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

fn name(kind: u32) -> &'static str {
    match kind {
        opcode::LOOKUP => "LOOKUP",
        opcode::FORGET => "FORGET",
        opcode::GETATTR => "GETATTR",
        opcode::SETATTR => "SETATTR",
        opcode::READLINK => "READLINK",
        opcode::SYMLINK => "SYMLINK",
        opcode::MKNOD => "MKNOD",
        opcode::MKDIR => "MKDIR",
        opcode::UNLINK => "UNLINK",
        opcode::RMDIR => "RMDIR",
        opcode::RENAME | opcode::RENAME2 => "RENAME",
        opcode::LINK => "LINK",
        opcode::OPEN => "OPEN",
        opcode::READ => "READ",
        opcode::WRITE => "WRITE",
        opcode::STATFS => "STATFS",
        opcode::RELEASE => "RELEASE",
        opcode::FSYNC => "FSYNC",
        opcode::SETXATTR => "SETXATTR",
        opcode::GETXATTR => "GETXATTR",
        opcode::LISTXATTR => "LISTXATTR",
        opcode::REMOVEXATTR => "REMOVEXATTR",
        opcode::FLUSH => "FLUSH",
        opcode::INIT => "INIT",
        opcode::OPENDIR => "OPENDIR",
        opcode::READDIR => "READDIR",
        opcode::RELEASEDIR => "RELEASEDIR",
        opcode::FSYNCDIR => "FSYNCDIR",
        opcode::CREATE => "CREATE",
        opcode::INTERRUPT => "INTERRUPT",
        opcode::DESTROY => "DESTROY",
        opcode::IOCTL => "IOCTL",
        opcode::BATCH_FORGET => "BATCH_FORGET",
        opcode::FALLOCATE => "FALLOCATE",
        opcode::READDIRPLUS => "READDIRPLUS",
        opcode::LSEEK => "LSEEK",
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => "COPY_FILE_RANGE",
        opcode::TMPFILE => "TMPFILE",
        _ => "OTHER",
    }
}
