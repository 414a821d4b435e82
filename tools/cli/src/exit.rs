//! The exit codes, in one place: for `main`, for the help text and for the manual pages.

use std::process::ExitCode;

use crate::failure::FailureKind;

/// Shown below the help of the whole program.
pub(crate) const HELP: &str = "\
Exit codes:
  0   done
  1   refused or failed
  2   wrong usage
  3   conflict: both sides changed the same thing
  70  a bug in Branchpoint
  125 Branchpoint failed where it should have run a command in a box
  126 the command for a box is no program
  127 the command for a box is not there
  N   what the command in a box ended with, or 128 and the number of the signal that killed it";

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done,
    /// Refused or failed.
    Failed,
    /// Wrong usage.
    Usage,
    /// Both sides changed the same thing.
    Conflict,
    /// A bug in Branchpoint.
    Internal,
    /// As a command in a box did.
    Status(u8),
}

impl Exit {
    /// Returns the number that the shell sees.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Conflict => 3,
            Self::Internal => 70,
            Self::Status(status) => status,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<FailureKind> for Exit {
    fn from(kind: FailureKind) -> Self {
        match kind {
            // Whoever closed the pipe has read what it wanted.
            FailureKind::BrokenPipe => Self::Done,
            FailureKind::Usage => Self::Usage,
            FailureKind::Conflict => Self::Conflict,
            FailureKind::Internal => Self::Internal,
            FailureKind::NoSuchCommand => Self::Status(127),
            FailureKind::NotExecutable => Self::Status(126),
            FailureKind::NotFound
            | FailureKind::Exists
            | FailureKind::Invalid
            | FailureKind::Unsupported
            | FailureKind::Busy
            | FailureKind::Denied
            | FailureKind::Corrupt
            | FailureKind::Drift
            | FailureKind::NoSpace
            | FailureKind::Io
            | FailureKind::Poisoned
            | FailureKind::Daemon
            | FailureKind::Declined => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_in_the_help() {
        for exit in [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::Conflict,
            Exit::Internal,
        ] {
            let number = format!("  {:<3} ", exit.code());
            assert!(HELP.contains(&number), "{exit:?} is missing");
        }
    }
}
