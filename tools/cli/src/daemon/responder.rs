//! The daemon's side of one request: how a handler answers.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use branchpoint_fs::error::Error;
use branchpoint_fs::progress::Progress;
use serde::Serialize;

use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::channel::Channel;
use crate::protocol::{ProgressLine, Response};

/// The shortest time between two lines of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// How a handler answers.
#[derive(Debug)]
pub(crate) struct Responder<'a> {
    channel: &'a mut Channel,
    last_progress: Instant,
}

impl<'a> Responder<'a> {
    /// Returns a responder over `channel`.
    pub(crate) fn new(channel: &'a mut Channel) -> Self {
        Self {
            channel,
            last_progress: Instant::now(),
        }
    }

    /// Returns the file that came with the request.
    pub(crate) fn take_file(&mut self) -> Result<File> {
        self.channel.take_fd().map(File::from).ok_or_else(|| {
            Failure::new(
                FailureKind::Daemon,
                "the request came without the file that it needs",
            )
        })
    }

    /// Tells how far the operation is, not too often.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the client is gone: nobody waits for what is being done.
    pub(crate) fn progress(&mut self, progress: &Progress) -> branchpoint_fs::error::Result<()> {
        if self.last_progress.elapsed() < PROGRESS_INTERVAL {
            return Ok(());
        }
        self.last_progress = Instant::now();
        let line = ProgressLine {
            done: progress.done,
            total: progress.total,
            what: progress.what.to_owned(),
        };
        if self.channel.is_cut() || self.send(&Response::Progress(line)).is_err() {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// Sends one of several results.
    pub(crate) fn item<T: Serialize>(&mut self, item: &T) -> Result<()> {
        let value = serde_json::to_value(item).map_err(unserialisable)?;
        self.send(&Response::Item(value))
            .map_err(|reason| Failure::io("answer the client", &reason))
    }

    /// Sends the last line of the answer.
    pub(crate) fn end(&mut self, response: &Response) -> io::Result<()> {
        self.send(response)
    }

    fn send(&mut self, response: &Response) -> io::Result<()> {
        let line = serde_json::to_vec(response)?;
        self.channel.write_line(&line, None)
    }
}

pub(super) fn unserialisable(reason: serde_json::Error) -> Failure {
    Failure::new(FailureKind::Internal, "a result cannot be written").cause(reason.to_string())
}
