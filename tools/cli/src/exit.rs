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
  70  a bug in Branchpoint";

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
