//! What can go wrong with a tree.

use std::io;

use nix::errno::Errno;

use crate::proc::Malformed;
use crate::report::Report;

/// An error of a checkpoint or a restore.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something of the tree cannot be kept. The tree goes on unharmed.
    #[error("{}", refusal(.0))]
    Refused(Report),
    /// A process or thread is gone.
    #[error("process {0} is gone")]
    Gone(i32),
    /// A thread does not stop.
    #[error("thread {tid} cannot be stopped: {why}")]
    Unstoppable {
        /// The thread as the tracer sees it.
        tid: i32,
        /// What it does instead.
        why: &'static str,
    },
    /// A request to the kernel about a thread failed.
    #[error("{what} of thread {tid}: {source}")]
    Trace {
        /// The thread as the tracer sees it.
        tid: i32,
        /// What was wanted.
        what: &'static str,
        /// What the kernel answered.
        source: Errno,
    },
    /// A system call that a process of the tree had to make failed.
    #[error("process {pid} cannot {what}: {source}")]
    Inside {
        /// The process as the tracer sees it.
        pid: i32,
        /// What it was to do.
        what: &'static str,
        /// What the kernel answered.
        source: Errno,
    },
    /// A thread did something else than what was injected into it.
    #[error("thread {tid} left the injected code: {what}")]
    Astray {
        /// The thread as the tracer sees it.
        tid: i32,
        /// What it did.
        what: String,
    },
    /// A file of `/proc` does not read as it should.
    #[error(transparent)]
    Proc(#[from] Malformed),
    /// Something about the tree's place or files.
    #[error("{what}: {source}")]
    Io {
        /// What was wanted.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The image contradicts itself, or is not for this kernel.
    #[error("the image cannot be restored: {0}")]
    Image(String),
    /// A step was made to fail, by a test.
    #[error("step {0} was made to fail")]
    Fault(&'static str),
}

fn refusal(report: &Report) -> String {
    report.refusal().map_or_else(
        || "refused".to_owned(),
        |line| {
            let way_out = line.way_out.as_deref().map(|text| format!(" ({text})"));
            let way_out = way_out.unwrap_or_default();
            format!(
                "process {}: {}: {}{way_out}",
                line.pid, line.what, line.reason
            )
        },
    )
}

impl Error {
    /// An I/O error with what was wanted.
    pub fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io {
            what: what.into(),
            source: source.into(),
        }
    }

    /// An error of a request about a thread: a thread that is not there is [`Error::Gone`].
    pub(crate) fn trace(tid: i32, what: &'static str, source: Errno) -> Self {
        match source {
            Errno::ESRCH => Self::Gone(tid),
            source => Self::Trace { tid, what, source },
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
