//! Operations on things that exist, and what they answer.

use std::collections::BTreeSet;

use branchpoint_fs::attr::{
    AllocateMode, Caller, FileKind, RenameMode, SeekTo, SetTime, XattrMode,
};

use crate::model::NodeId;

/// What an [`Act::Make`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// An empty regular file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(Vec<u8>),
    /// A fifo, socket or device.
    Special {
        /// Which of them.
        kind: FileKind,
        /// Device number.
        rdev: u32,
    },
}

/// One operation.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are named as in the system calls")]
pub enum Act {
    /// Look a name up.
    Lookup { dir: NodeId, name: Vec<u8> },
    /// Make a file; fails if the name is taken.
    Make {
        dir: NodeId,
        name: Vec<u8>,
        what: Made,
        perm: u32,
        umask: u32,
        uid: u32,
        gid: u32,
    },
    /// Make a hard link.
    Link {
        node: NodeId,
        dir: NodeId,
        name: Vec<u8>,
    },
    /// Remove a name of something else than a directory.
    Unlink { dir: NodeId, name: Vec<u8> },
    /// Remove an empty directory.
    Rmdir { dir: NodeId, name: Vec<u8> },
    /// Rename.
    Rename {
        dir: NodeId,
        name: Vec<u8>,
        to_dir: NodeId,
        to_name: Vec<u8>,
        mode: RenameMode,
    },
    /// List the names in a directory.
    List { dir: NodeId },
    /// Read a symbolic link.
    Readlink { node: NodeId },
    /// Read bytes.
    Read { node: NodeId, offset: u64, len: u64 },
    /// Write [`pattern`] bytes.
    Write {
        node: NodeId,
        offset: u64,
        len: u64,
        seed: u8,
        kill: bool,
    },
    /// Write [`pattern`] bytes at the end.
    Append { node: NodeId, len: u64, seed: u8 },
    /// Change the size.
    Truncate {
        caller: Caller,
        node: NodeId,
        size: u64,
    },
    /// `fallocate`.
    Allocate {
        node: NodeId,
        mode: AllocateMode,
        offset: u64,
        len: u64,
    },
    /// `copy_file_range`.
    Copy {
        from: NodeId,
        from_offset: u64,
        to: NodeId,
        to_offset: u64,
        len: u64,
    },
    /// `lseek` with `SEEK_DATA` or `SEEK_HOLE`.
    Seek {
        node: NodeId,
        offset: u64,
        to: SeekTo,
    },
    /// Change the mode.
    Chmod { node: NodeId, perm: u32 },
    /// Change the owner.
    Chown {
        node: NodeId,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    /// Change the times.
    SetTimes {
        node: NodeId,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    },
    /// Set an extended attribute.
    SetXattr {
        node: NodeId,
        name: Vec<u8>,
        value: Vec<u8>,
        mode: XattrMode,
    },
    /// Read an extended attribute.
    GetXattr { node: NodeId, name: Vec<u8> },
    /// List the extended attributes.
    ListXattrs { node: NodeId },
    /// Remove an extended attribute.
    RemoveXattr { node: NodeId, name: Vec<u8> },
    /// Open, so that it lives on without a name.
    Pin { node: NodeId },
    /// Close.
    Unpin { node: NodeId },
}

/// What an operation answers when it does not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Outcome {
    /// Nothing to tell.
    Done,
    /// A new file.
    Made(NodeId),
    /// A file found.
    Found { node: NodeId, kind: FileKind },
    /// Bytes read.
    Bytes(Vec<u8>),
    /// Names read.
    Names(BTreeSet<Vec<u8>>),
    /// How many bytes were moved.
    Count(u64),
    /// Where something lies.
    Offset(u64),
    /// Said by the model of `SEEK_DATA`: no offset beyond the first byte that is not zero is right.
    DataBefore {
        from: usize,
        first_nonzero: Option<usize>,
        size: usize,
    },
    /// Said by the model of `SEEK_HOLE`: no offset before `bytes` or beyond the size is right.
    HoleWithin { bytes: usize, size: usize },
}

/// Returns `len` bytes, none of them zero, which `seed` decides; different at each position of a block.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    let mut state = u32::from(seed).wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            u8::try_from(state >> 24).expect("eight bits") | 1
        })
        .collect()
}

/// Compares what the model says with what really happened; `None` if they agree.
pub fn difference<E: PartialEq + std::fmt::Debug>(
    expected: &Result<Outcome, E>,
    actual: &Result<Outcome, E>,
    no_data: &E,
) -> Option<String> {
    let agree = match (expected, actual) {
        (
            Ok(Outcome::DataBefore {
                from,
                first_nonzero,
                size,
            }),
            Ok(Outcome::Offset(at)),
        ) => {
            let last = first_nonzero.unwrap_or(size - 1);
            usize::try_from(*at).is_ok_and(|at| (*from..=last).contains(&at))
        }
        (
            Ok(Outcome::DataBefore {
                first_nonzero: None,
                ..
            }),
            Err(error),
        ) => error == no_data,
        (Ok(Outcome::HoleWithin { bytes, size }), Ok(Outcome::Offset(at))) => {
            usize::try_from(*at).is_ok_and(|at| (*bytes..=*size).contains(&at))
        }
        _ => expected == actual,
    };
    (!agree).then(|| format!("expected {}, got {}", show(expected), show(actual)))
}

fn show<E: std::fmt::Debug>(result: &Result<Outcome, E>) -> String {
    match result {
        Ok(Outcome::Bytes(bytes)) if bytes.len() > 64 => {
            format!("{} bytes beginning {:x?}", bytes.len(), &bytes[..16])
        }
        other => format!("{other:?}"),
    }
}
