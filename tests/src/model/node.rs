//! One file of the model.

use std::collections::BTreeMap;

use branchpoint_fs::attr::{FileKind, Timestamp};

/// Names a file in all trees of a [`World`](super::World), as an inode number does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// What is known about a time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// It was set to this, or the base says so.
    At(Timestamp),
    /// It was set by an operation that happened not before this.
    Since(Timestamp),
    /// Filesystems differ on what happened to it.
    Unknown,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The bytes of a regular file, holes as zeros.
    Regular(Vec<u8>),
    /// The names in a directory, and the directory that holds it.
    Directory {
        /// Node of each name.
        entries: BTreeMap<Vec<u8>, NodeId>,
        /// The directory in which it lies; of the root, itself.
        parent: NodeId,
    },
    /// The target of a symbolic link.
    Symlink(Vec<u8>),
    /// A fifo, socket or device.
    Special {
        /// Which of them.
        kind: FileKind,
        /// Device number, zero for fifos and sockets.
        rdev: u32,
    },
}

/// A file with its attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it holds.
    pub body: Body,
    /// The lower 12 bits of the mode.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// How many directory entries name it.
    pub names: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Last access: only known where it was set.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
}

impl Node {
    /// Returns a file of root's, without name.
    pub fn new(body: Body, perm: u32, now: Timestamp) -> Self {
        Self {
            body,
            perm,
            uid: 0,
            gid: 0,
            names: 0,
            xattrs: BTreeMap::new(),
            atime: Time::Unknown,
            mtime: Time::Since(now),
        }
    }

    /// Returns its kind.
    pub fn kind(&self) -> FileKind {
        match &self.body {
            Body::Regular(_) => FileKind::Regular,
            Body::Directory { .. } => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Special { kind, .. } => *kind,
        }
    }

    /// Returns the bytes of a regular file, nothing for others.
    pub fn bytes(&self) -> &[u8] {
        match &self.body {
            Body::Regular(bytes) => bytes,
            _ => &[],
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        match &mut self.body {
            Body::Regular(bytes) => bytes,
            other => panic!("not a regular file: {other:?}"),
        }
    }

    /// Drops what must not outlive a change by somebody else: suid, sgid of executables, capabilities.
    pub(super) fn kill_privileges(&mut self, bits: bool) {
        if bits {
            self.perm &= !libc::S_ISUID;
            if self.perm & libc::S_IXGRP != 0 {
                self.perm &= !libc::S_ISGID;
            }
        }
        self.xattrs.remove(&b"security.capability"[..]);
    }
}
