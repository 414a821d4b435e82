//! What can go wrong with a box.

use std::fmt;
use std::io;

/// Result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused an operation.
    #[error("cannot {step}")]
    System {
        /// What was tried: a verb phrase that names the thing.
        step: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The machine has no unified cgroup hierarchy.
    #[error("this machine has no cgroup v2 hierarchy, which boxes are frozen and ended through")]
    NoCgroups,
    /// A limit was asked for that nothing on this machine enforces.
    #[error("a limit of {limit} cannot be enforced here: {reason}")]
    NoController {
        /// `memory`, `processes` or `processor time`.
        limit: &'static str,
        /// What is missing.
        reason: String,
    },
    /// A command could not be started.
    #[error("cannot run '{command}' in the box")]
    NotStarted {
        /// Its name.
        command: String,
        /// Whether there is no such file, which a shell answers with 127, or it is no program (126).
        not_found: bool,
        /// What the kernel says.
        #[source]
        source: io::Error,
    },
    /// There is no such user in the box.
    #[error("the box has no user '{user}'")]
    NoSuchUser {
        /// The name asked for.
        user: String,
    },
    /// The box has ended, or is ending.
    #[error("the box has ended")]
    Ended,
    /// The box's init said something that makes no sense.
    #[error("the box's init does not follow the protocol: {0}")]
    Protocol(String),
    /// Processes did not stand still or did not end in time.
    #[error("the processes of the box did not {what} within {seconds} s")]
    TimedOut {
        /// What they were to do.
        what: &'static str,
        /// How long was waited.
        seconds: u64,
    },
}

impl Error {
    /// Returns a failure of the system in `step`, a verb phrase that names the thing.
    pub fn system(step: impl fmt::Display, source: impl Into<io::Error>) -> Self {
        Self::System {
            step: step.to_string(),
            source: source.into(),
        }
    }

    /// Returns the exit status that a shell would give for a command which could not be started.
    pub fn shell_status(&self) -> Option<u8> {
        match self {
            Self::NotStarted {
                not_found: true, ..
            } => Some(127),
            Self::NotStarted { .. } => Some(126),
            _ => None,
        }
    }

    /// Returns the way out, where there is one.
    pub fn way_out(&self) -> Option<&'static str> {
        match self {
            Self::NoCgroups => {
                Some("mount one: mount -t cgroup2 none /sys/fs/cgroup/unified, or boot with one")
            }
            Self::NoController { .. } => Some("leave the limit out, or enable the controller"),
            Self::NotStarted {
                not_found: true, ..
            } => Some("look at the PATH of the box and at what its base holds"),
            Self::NoSuchUser { .. } => Some("name one of the box's /etc/passwd, or a number"),
            _ => None,
        }
    }
}
