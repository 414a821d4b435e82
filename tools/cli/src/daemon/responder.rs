//! The daemon's side of one request: how a handler answers.

use std::io;

use serde::Serialize;

use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::Response;
use crate::protocol::channel::Channel;

/// How a handler answers.
#[derive(Debug)]
pub(crate) struct Responder<'a> {
    channel: &'a mut Channel,
}

impl<'a> Responder<'a> {
    /// Returns a responder over `channel`.
    pub(crate) fn new(channel: &'a mut Channel) -> Self {
        Self { channel }
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
