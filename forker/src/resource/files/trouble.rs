//! Why one description cannot be kept, and what went wrong with the whole.

use std::io;

/// Why one description cannot be kept.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It is of a kind, or in a state, that cannot be kept.
    Refused {
        reason: String,
        way_out: Option<String>,
    },
    /// A system call failed.
    Failed(io::Error),
}

impl Trouble {
    pub(super) fn refuse(reason: impl Into<String>, way_out: Option<String>) -> Self {
        Self::Refused {
            reason: reason.into(),
            way_out,
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<nix::errno::Errno> for Trouble {
    fn from(error: nix::errno::Errno) -> Self {
        Self::Failed(error.into())
    }
}

/// A way out, for a report.
pub(super) fn way(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// An error in the work on descriptors.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A process of the tree cannot be looked into (most often because it is gone).
    #[error("process {pid}: {what}: {source}")]
    Process {
        /// Process as the caller sees it.
        pid: i32,
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A description cannot be made again.
    #[error("descriptor {fd} of process {pid} ({kind}) cannot be restored: {source}")]
    Rebuild {
        /// Process inside the box.
        pid: i32,
        /// Number of the descriptor.
        fd: i32,
        /// What kind it is.
        kind: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The image contradicts itself.
    #[error("the image's descriptors are damaged: {0}")]
    Image(&'static str),
    /// Something that is not about one process or description.
    #[error("{what}: {source}")]
    Other {
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Process { pid, source, .. }
                if source.raw_os_error() == Some(libc::ESRCH)
                    || source.kind() == io::ErrorKind::NotFound =>
            {
                Self::Gone(pid)
            }
            Error::Image(what) => Self::Image(what.to_owned()),
            other => Self::io("the descriptors of the tree", io::Error::other(other)),
        }
    }
}
