//! One connection: requests one after the other, until the client goes or says nothing for long.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::channel::{Channel, ReadError};
use crate::protocol::{REQUEST_BYTES_MAX, Request, Response, VERSION, decode_request};

use super::responder::Responder;
use super::{Daemon, handlers};

/// How long a client may take for a request, and do nothing between two.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// How long a client may let an answer lie.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// How a session ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client is gone, or was sent away.
    Closed,
    /// The client asked the daemon to end, and waits on the connection until it has.
    Stop(Channel),
}

/// Serves one connection to its end.
pub(crate) fn run(daemon: &Arc<Daemon>, mut channel: Channel) -> End {
    if let Err(reason) = channel.limit_writes(ANSWER_LIMIT) {
        log::error!("cannot limit the time of a client: {reason}");
        return End::Closed;
    }
    // Without a greeting the client waits for the next daemon instead of being refused by this one.
    if daemon.stopping.load(Ordering::SeqCst) {
        return End::Closed;
    }
    let hello = Response::Hello { version: VERSION };
    if Responder::new(&mut channel).end(&hello).is_err() {
        return End::Closed;
    }
    loop {
        let request = match channel.read_line(REQUEST_BYTES_MAX, Some(REQUEST_LIMIT)) {
            Ok(Some(line)) => decode_request(&line),
            Ok(None) | Err(ReadError::Cut | ReadError::TimedOut) => return End::Closed,
            Err(ReadError::TooLong) => {
                let failure = Failure::new(FailureKind::Daemon, "the request is too long");
                drop(Responder::new(&mut channel).end(&Response::Failed(failure)));
                return End::Closed;
            }
            Err(ReadError::Io(reason)) => {
                log::warn!("a client's connection broke: {reason}");
                return End::Closed;
            }
        };
        let stop = matches!(request, Ok(Request::Stop { .. }));
        let mut responder = Responder::new(&mut channel);
        let result = request.and_then(|request| answer(daemon, request, &mut responder));
        let done = result.is_ok();
        let response = match result {
            Ok(value) => Response::Done(value),
            Err(failure) => Response::Failed(failure),
        };
        let sent = responder.end(&response);
        // Files that came with a request that did not want them.
        drop(channel.take_fd());
        if stop && done {
            return End::Stop(channel);
        }
        if let Err(reason) = sent {
            log::info!("a client did not wait for its answer: {reason}");
            return End::Closed;
        }
    }
}

/// Lets a handler answer; a bug in it costs the request and not the daemon.
fn answer(
    daemon: &Arc<Daemon>,
    request: Request,
    responder: &mut Responder<'_>,
) -> Result<serde_json::Value> {
    if daemon.stopping.load(Ordering::SeqCst) {
        return Err(Failure::new(FailureKind::Busy, "the daemon is ending").hint("try again"));
    }
    panic::catch_unwind(AssertUnwindSafe(|| {
        handlers::handle(daemon, request, responder)
    }))
    .unwrap_or_else(|_| {
        Err(Failure::new(
            FailureKind::Internal,
            "the daemon hit a bug in this request",
        )
        .hint("its log tells more; other requests go on working"))
    })
}
