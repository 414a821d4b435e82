//! What a command ends with when it cannot do its work: one type for the daemon, the socket and
//! the terminal, so that a message means the same whichever process found the reason.

use std::error::Error as _;
use std::fmt;
use std::io;

use branchpoint_fs::error::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// Result of everything in this program.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why a command failed, by what the user can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    /// The thing does not exist: name another one.
    NotFound,
    /// The name is taken: choose another one.
    Exists,
    /// The request makes no sense as it is: correct it.
    Invalid,
    /// Two sides changed the same thing: decide, then try again.
    Conflict,
    /// Not possible here: do without.
    Unsupported,
    /// Somebody else is using it: wait or stop them.
    Busy,
    /// Permission is missing, or the target is read-only.
    Denied,
    /// Data on disk is damaged.
    Corrupt,
    /// The base changed under the store.
    Drift,
    /// The disk is full.
    NoSpace,
    /// The system refused an operation.
    Io,
    /// An earlier write failed and the store takes no more.
    Poisoned,
    /// The command line is wrong.
    Usage,
    /// The daemon cannot be reached or does not understand.
    Daemon,
    /// The user said no.
    Declined,
    /// The reader of the output is gone.
    BrokenPipe,
    /// There is no command of that name in the box.
    NoSuchCommand,
    /// The command in the box is no program.
    NotExecutable,
    /// A bug in Branchpoint.
    Internal,
}

/// A failure, ready to be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// What the user can do about it.
    pub(crate) kind: FailureKind,
    /// What happened, naming the thing.
    pub(crate) message: String,
    /// Why, from near to far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) causes: Vec<String>,
    /// The way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// The paths in conflict, if that is the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) conflicts: Vec<String>,
}

impl Failure {
    /// Returns a failure without causes and hint.
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            causes: Vec::new(),
            hint: None,
            conflicts: Vec::new(),
        }
    }

    /// Returns a failure of the system in `step`, a verb phrase that names the thing.
    pub(crate) fn io(step: impl fmt::Display, source: &io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::BrokenPipe => FailureKind::BrokenPipe,
            io::ErrorKind::NotFound => FailureKind::NotFound,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                FailureKind::Denied
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FailureKind::NoSpace,
            _ => FailureKind::Io,
        };
        let mut failure = Self::new(kind, format!("cannot {step}"));
        failure.causes.push(source.to_string());
        failure
    }

    /// Returns the failure that the parser of the command line describes in `text`, for people.
    pub(crate) fn usage(text: &str) -> Self {
        // What is wrong, then hints, then how it is used, with empty lines between.
        let mut parts = text.split("\n\n").map(|part| {
            let words: Vec<&str> = part.split_whitespace().collect();
            words.join(" ")
        });
        let first = parts.next().unwrap_or_default();
        let message = first.strip_prefix("error: ").unwrap_or(&first);
        let mut failure = Self::new(FailureKind::Usage, message);
        let hints: Vec<String> = parts
            .filter(|part| !part.is_empty() && !part.starts_with("For more information"))
            .collect();
        if !hints.is_empty() {
            failure.hint = Some(hints.join("; "));
        }
        failure
    }

    /// Adds the way out.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a cause.
    pub(crate) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for cause in &self.causes {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut causes = Vec::new();
        let mut broken_pipe = false;
        let mut next = error.source();
        while let Some(source) = next {
            if let Some(io) = source.downcast_ref::<io::Error>() {
                broken_pipe |= io.kind() == io::ErrorKind::BrokenPipe;
            }
            causes.push(source.to_string());
            next = source.source();
        }
        let kind = if broken_pipe {
            FailureKind::BrokenPipe
        } else {
            error.kind().into()
        };
        let message = error.to_string();
        let hint = hint_for(&error);
        let conflicts = match error {
            Error::Conflicts { paths } => paths,
            _ => Vec::new(),
        };
        Self {
            kind,
            message,
            causes,
            hint,
            conflicts,
        }
    }
}

impl From<branchpoint_boxes::error::Error> for Failure {
    fn from(error: branchpoint_boxes::error::Error) -> Self {
        use branchpoint_boxes::error::Error;
        let source = error.source();
        let kind = match &error {
            Error::NotStarted {
                not_found: true, ..
            } => FailureKind::NoSuchCommand,
            Error::NotStarted { .. } => FailureKind::NotExecutable,
            Error::NoCgroups | Error::NoController { .. } => FailureKind::Unsupported,
            Error::NoSuchUser { .. } => FailureKind::NotFound,
            Error::Ended | Error::TimedOut { .. } => FailureKind::Busy,
            Error::System { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                FailureKind::Busy
            }
            Error::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                FailureKind::Denied
            }
            // Error may grow.
            _ => FailureKind::Io,
        };
        let mut failure = Self::new(kind, error.to_string());
        failure.causes.extend(source.map(ToString::to_string));
        failure.hint = error.way_out().map(str::to_owned);
        failure
    }
}

impl From<ErrorKind> for FailureKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Exists => Self::Exists,
            ErrorKind::Invalid => Self::Invalid,
            ErrorKind::Conflict => Self::Conflict,
            ErrorKind::Unsupported => Self::Unsupported,
            ErrorKind::Busy => Self::Busy,
            ErrorKind::Denied => Self::Denied,
            ErrorKind::Corrupt => Self::Corrupt,
            ErrorKind::Drift => Self::Drift,
            ErrorKind::NoSpace => Self::NoSpace,
            ErrorKind::Poisoned => Self::Poisoned,
            // Nobody is there to read it.
            ErrorKind::Interrupted => Self::BrokenPipe,
            // ErrorKind may grow; what is not known here is at least not the user's fault.
            ErrorKind::Io | _ => Self::Io,
        }
    }
}

/// Returns the way out of `error`, if the command line knows one.
fn hint_for(error: &Error) -> Option<String> {
    let hint = match error {
        Error::NoSuchRevision { .. } => {
            "`branchpoint log` shows the branches and checkpoints of the store".to_owned()
        }
        Error::AmbiguousRevision { .. } => {
            "name one by its id; `branchpoint checkpoint list` shows them all".to_owned()
        }
        Error::TooFarBack { branch, .. } => {
            format!("`branchpoint log` shows the checkpoints behind '{branch}'")
        }
        Error::NoSuchBranch { .. } => "`branchpoint branch list` shows the branches".to_owned(),
        Error::BranchExists { name } => {
            format!("choose another name, or first remove it: `branchpoint branch delete {name}`")
        }
        Error::BadName { .. } => "choose another name".to_owned(),
        Error::Conflicts { .. } => {
            "nothing was changed; make one side agree with the other, then try again".to_owned()
        }
        Error::NotAStore { path } => {
            format!("`branchpoint init '{}'` makes one there", path.display())
        }
        Error::NotEmpty { .. } => "name an empty directory or one that does not exist".to_owned(),
        Error::StoreBusy { pid, .. } => {
            format!("end process {pid} first; a daemon ends with `branchpoint stop`")
        }
        Error::TargetBusy { .. } => "wait until it has ended, then apply again".to_owned(),
        Error::NewerFormat { .. } => "use a newer version of branchpoint".to_owned(),
        Error::BaseUnavailable { .. } => {
            "bring the base back to its place; the store itself is unharmed".to_owned()
        }
        Error::BaseDrift { .. } => {
            "restore the file in the base as it was, or write it anew in the branch".to_owned()
        }
        Error::BadEntry { .. } | Error::BadBlock { .. } | Error::BadLayer { .. } => {
            "`branchpoint check` says what is damaged and what depends on it".to_owned()
        }
        Error::Engine { no_space: true, .. } => {
            "free space on the disk of the store, at least 64 MiB, then try again in a few seconds"
                .to_owned()
        }
        Error::Poisoned { .. } => {
            "repair the cause, then `branchpoint stop`: the next command opens the store anew"
                .to_owned()
        }
        _ => return None,
    };
    Some(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_kept_in_order_and_not_repeated() {
        let error = Error::io("open 'x'", io::Error::from_raw_os_error(2));
        let failure = Failure::from(error);
        assert_eq!(failure.message, "cannot open 'x'");
        assert_eq!(failure.causes.len(), 1);
        assert_eq!(failure.kind, FailureKind::NotFound);
    }

    #[test]
    fn what_the_parser_says_is_one_line_each() {
        let failure = Failure::usage(
            "error: the following required arguments were not provided:\n  <DIR>\n\nUsage: \
             branchpoint mount <BRANCH> <DIR>\n\nFor more information, try '--help'.\n",
        );
        assert_eq!(failure.kind, FailureKind::Usage);
        assert_eq!(
            failure.message,
            "the following required arguments were not provided: <DIR>"
        );
        assert_eq!(
            failure.hint.as_deref(),
            Some("Usage: branchpoint mount <BRANCH> <DIR>")
        );
        // With nothing but the name of the program, the parser shows the whole help.
        assert!(!Failure::usage("").message.contains('\n'));
    }

    #[test]
    fn a_reader_that_is_gone_is_recognised_below_the_surface() {
        let error = Error::io("write the archive", io::Error::from_raw_os_error(32));
        assert_eq!(Failure::from(error).kind, FailureKind::BrokenPipe);
    }
}
