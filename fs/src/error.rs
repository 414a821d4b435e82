//! Everything that can go wrong, by what the caller can do about it.
//!
//! [`Error::kind`] says what to do, [`Error::errno`] what a program on the mount is told. Both are
//! exhaustive matches: a new variant does not compile until somebody has decided.

use std::path::PathBuf;

use nix::errno::Errno;
use thiserror::Error;

use crate::id::{CheckpointId, Ino, LayerId};

/// Result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The thing does not exist: name another one.
    NotFound,
    /// The name is taken: choose another one.
    Exists,
    /// The request makes no sense as it is: correct it.
    Invalid,
    /// Two sides changed the same thing: decide, then try again.
    Conflict,
    /// Not possible here (kernel, format, file type): do without.
    Unsupported,
    /// Somebody else is using it: wait or stop them.
    Busy,
    /// Permission is missing, or the target is read-only.
    Denied,
    /// The data on disk is damaged: see `branchpoint check`.
    Corrupt,
    /// The base changed under the store.
    Drift,
    /// The disk is full: free space and try again.
    NoSpace,
    /// The system refused an operation.
    Io,
    /// An earlier write failed; nothing more is written until the store is opened again.
    Poisoned,
    /// Whoever asked gave up: ask again.
    Interrupted,
}

/// An error of a store, a view or a mount.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A POSIX operation failed as POSIX says it must: no entry, not a directory, and so on.
    #[error("{}", .0.desc())]
    Posix(Errno),

    /// No checkpoint, label or branch of that name.
    #[error("there is no checkpoint or branch '{name}' in this store")]
    NoSuchRevision {
        /// What was asked for.
        name: String,
    },
    /// A prefix or label fits several checkpoints.
    #[error("'{name}' is ambiguous: it fits {}", list(.candidates))]
    AmbiguousRevision {
        /// What was asked for.
        name: String,
        /// What it fits.
        candidates: Vec<CheckpointId>,
    },
    /// `BRANCH~N` with too large an N.
    #[error("branch '{branch}' has only {have} checkpoints, so '{branch}~{want}' does not exist")]
    TooFarBack {
        /// The branch.
        branch: String,
        /// How many checkpoints lie behind its head.
        have: u64,
        /// How many steps back were asked for.
        want: u64,
    },
    /// No branch of that name.
    #[error("there is no branch '{name}' in this store")]
    NoSuchBranch {
        /// What was asked for.
        name: String,
    },
    /// The branch name is taken.
    #[error("a branch '{name}' exists already")]
    BranchExists {
        /// The name.
        name: String,
    },
    /// Not a name that a branch or a label can have.
    #[error("'{}' cannot be a name: {reason}", .name.escape_debug())]
    BadName {
        /// The name.
        name: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// The branch is in use and the operation needs it not to be.
    #[error("branch '{name}' is in use: {by}")]
    BranchBusy {
        /// The branch.
        name: String,
        /// By whom, as a clause.
        by: String,
    },
    /// Both sides of a merge or apply changed the same paths.
    #[error("{} paths were changed on both sides", .paths.len())]
    Conflicts {
        /// The paths with the kind of conflict, for people.
        paths: Vec<String>,
    },

    /// The directory is not a store.
    #[error("'{}' is not a Branchpoint store", .path.display())]
    NotAStore {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds something already.
    #[error("'{}' is not empty", .path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// Another process has the store open.
    #[error("the store '{}' is open in process {pid}", .path.display())]
    StoreBusy {
        /// The store.
        path: PathBuf,
        /// The process that holds it.
        pid: i32,
    },
    /// The store was written by a newer version of Branchpoint.
    #[error("the store has format {found}, this program knows up to {known}")]
    NewerFormat {
        /// The store's format version.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// The base directory is gone or cannot be read.
    #[error("the base '{}' cannot be used", .path.display())]
    BaseUnavailable {
        /// The base directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file of the base is not the one that was first seen.
    #[error("'{}' changed in the base after the store had first seen it", .path.display())]
    BaseDrift {
        /// Path below the base directory.
        path: PathBuf,
    },

    /// A value in the store does not decode.
    #[error("damaged entry in table {table}: {what}")]
    BadEntry {
        /// The table.
        table: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// A block's bytes do not fit its checksum.
    #[error("block {block} of inode {ino}, written in layer {layer}, is damaged")]
    BadBlock {
        /// The object.
        ino: Ino,
        /// Index of the block.
        block: u64,
        /// The layer that holds it.
        layer: LayerId,
    },
    /// The layer table contradicts itself.
    #[error("layer {layer} is damaged: {what}")]
    BadLayer {
        /// The layer.
        layer: LayerId,
        /// What is wrong with it.
        what: &'static str,
    },

    /// The kernel, or the format, cannot do this.
    #[error("{what} is not supported here")]
    Unsupported {
        /// What is not supported, as a noun.
        what: &'static str,
    },
    /// Whoever asked for something long has gone away, or asked to end it.
    #[error("interrupted: nothing was left half-done")]
    Interrupted,

    /// Another apply is changing the same directory.
    #[error("another apply is changing '{path}'")]
    TargetBusy {
        /// The directory.
        path: PathBuf,
    },

    /// The store, view or mount is read-only.
    #[error("{what} is read-only")]
    ReadOnly {
        /// What is read-only, as a noun.
        what: String,
    },
    /// A mount point or another path cannot be used.
    #[error("'{}' cannot be used: {reason}", .path.display())]
    BadPath {
        /// The path.
        path: PathBuf,
        /// Why not, and what would be accepted.
        reason: String,
    },
    /// The input of an import or an apply is not what it must be.
    #[error("{what}")]
    BadInput {
        /// What is wrong with it.
        what: String,
    },

    /// A system call failed.
    #[error("cannot {step}")]
    Io {
        /// What was being done, as a verb phrase with the thing's name.
        step: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The key-value engine failed.
    #[error("the store's database failed to {step}: {message}")]
    Engine {
        /// What was being done.
        step: &'static str,
        /// The engine's own words.
        message: String,
        /// Whether the disk is full.
        no_space: bool,
    },
    /// An earlier write or sync failed.
    #[error("the store takes no more writes because an earlier one failed: {first}")]
    Poisoned {
        /// The message of the first failure.
        first: String,
    },
}

impl Error {
    /// Returns an [`Error::Io`] for `step`, a verb phrase that names the thing.
    pub fn io(step: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Io {
            step: step.into(),
            source: source.into(),
        }
    }

    /// Returns what the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Posix(errno) => kind_of(*errno),
            Self::NoSuchRevision { .. } | Self::TooFarBack { .. } | Self::NoSuchBranch { .. } => {
                ErrorKind::NotFound
            }
            Self::NotAStore { .. } => ErrorKind::NotFound,
            Self::BranchExists { .. } | Self::NotEmpty { .. } => ErrorKind::Exists,
            Self::AmbiguousRevision { .. }
            | Self::BadName { .. }
            | Self::BadPath { .. }
            | Self::BadInput { .. } => ErrorKind::Invalid,
            Self::BranchBusy { .. } | Self::StoreBusy { .. } | Self::TargetBusy { .. } => {
                ErrorKind::Busy
            }
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Conflicts { .. } => ErrorKind::Conflict,
            Self::NewerFormat { .. } | Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::BaseUnavailable { source, .. } | Self::Io { source, .. } => kind_of_io(source),
            Self::BaseDrift { .. } => ErrorKind::Drift,
            Self::BadEntry { .. } | Self::BadBlock { .. } | Self::BadLayer { .. } => {
                ErrorKind::Corrupt
            }
            Self::ReadOnly { .. } => ErrorKind::Denied,
            Self::Engine { no_space: true, .. } => ErrorKind::NoSpace,
            Self::Engine { .. } => ErrorKind::Io,
            Self::Poisoned { .. } => ErrorKind::Poisoned,
        }
    }

    /// Returns what a program that works on a mount is told.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Posix(errno) => *errno,
            Self::NoSuchRevision { .. } | Self::TooFarBack { .. } | Self::NoSuchBranch { .. } => {
                Errno::ENOENT
            }
            Self::NotAStore { .. } => Errno::ENOENT,
            Self::BranchExists { .. } => Errno::EEXIST,
            Self::NotEmpty { .. } => Errno::ENOTEMPTY,
            Self::AmbiguousRevision { .. }
            | Self::BadName { .. }
            | Self::BadPath { .. }
            | Self::BadInput { .. } => Errno::EINVAL,
            Self::BranchBusy { .. } | Self::StoreBusy { .. } | Self::TargetBusy { .. } => {
                Errno::EBUSY
            }
            Self::Interrupted => Errno::EINTR,
            Self::Conflicts { .. } => Errno::EBUSY,
            Self::NewerFormat { .. } | Self::Unsupported { .. } => Errno::EOPNOTSUPP,
            // The two below keep the system's errno only where a program can act on it; anything
            // else that happens to the store's own files is an input/output error to the program.
            Self::BaseUnavailable { .. } => Errno::EIO,
            Self::Io { source, .. } => match kind_of_io(source) {
                ErrorKind::NoSpace => Errno::ENOSPC,
                _ => Errno::EIO,
            },
            // Not ESTALE: the kernel would retry the lookup, and programs loop on it.
            Self::BaseDrift { .. } => Errno::EIO,
            Self::BadEntry { .. } | Self::BadBlock { .. } | Self::BadLayer { .. } => Errno::EIO,
            Self::ReadOnly { .. } => Errno::EROFS,
            Self::Engine { no_space: true, .. } => Errno::ENOSPC,
            Self::Engine { .. } => Errno::EIO,
            // As ext4 does after a failed journal write: reading goes on, writing does not.
            Self::Poisoned { .. } => Errno::EROFS,
        }
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self::Posix(errno)
    }
}

fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::ENOENT | Errno::ENODATA | Errno::ESTALE => ErrorKind::NotFound,
        Errno::EEXIST | Errno::ENOTEMPTY => ErrorKind::Exists,
        Errno::EBUSY | Errno::ETXTBSY => ErrorKind::Busy,
        Errno::EACCES | Errno::EPERM | Errno::EROFS => ErrorKind::Denied,
        Errno::EOPNOTSUPP | Errno::ENOSYS => ErrorKind::Unsupported,
        Errno::ENOSPC | Errno::EDQUOT => ErrorKind::NoSpace,
        Errno::EIO => ErrorKind::Io,
        _ => ErrorKind::Invalid,
    }
}

fn kind_of_io(error: &std::io::Error) -> ErrorKind {
    match error.raw_os_error() {
        Some(raw) => match kind_of(Errno::from_raw(raw)) {
            ErrorKind::Invalid => ErrorKind::Io,
            kind => kind,
        },
        None => ErrorKind::Io,
    }
}

fn list(candidates: &[CheckpointId]) -> String {
    const SHOWN_MAX: usize = 8;
    // Whole: the beginnings may well be what makes them hard to tell apart.
    let mut shown: Vec<String> = candidates
        .iter()
        .take(SHOWN_MAX)
        .map(CheckpointId::to_string)
        .collect();
    if candidates.len() > SHOWN_MAX {
        shown.push(format!("and {} more", candidates.len() - SHOWN_MAX));
    }
    shown.join(", ")
}
