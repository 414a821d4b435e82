//! The thread that takes in what comes out of a session.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;

use super::frame::Frame;
use super::{Session, State};
use crate::error::{Error, Result};

/// How much is taken in at once, in bytes.
const CHUNK_BYTES: usize = 32 << 10;

/// Which stream bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Output,
    Errors,
}

impl Stream {
    fn of(self, state: &mut State) -> &mut Option<Arc<OwnedFd>> {
        match self {
            Self::Output => &mut state.output,
            Self::Errors => &mut state.errors,
        }
    }
}

/// Starts the pump of a session.
pub(super) fn start(session: Arc<Session>) -> Result<()> {
    thread::Builder::new()
        .name("box-session".to_owned())
        .spawn(move || run(&session))
        .map(drop)
        .map_err(|reason| Error::system("start a thread", reason))
}

fn run(session: &Session) {
    let mut chunk = vec![0u8; CHUNK_BYTES];
    loop {
        let (closed, exited, ends) = {
            let state = session.state.lock();
            let ends: Vec<(Stream, Arc<OwnedFd>)> = [
                (Stream::Output, state.output.clone()),
                (Stream::Errors, state.errors.clone()),
            ]
            .into_iter()
            .filter_map(|(stream, end)| Some((stream, end?)))
            .collect();
            (state.closed, state.status, ends)
        };
        if closed {
            return;
        }
        // What the process wrote is in its pipe before it ends, so after its end everything that can be
        // read at once is all of it; what others hold open may go on.
        let mut quiet = true;
        for (stream, end) in &ends {
            quiet &= !take(session, *stream, end, &mut chunk);
        }
        if !quiet {
            continue;
        }
        if let Some(status) = exited {
            finish(session, status);
        }
        let mut watched = vec![PollFd::new(session.wake.as_fd(), PollFlags::POLLIN)];
        watched.extend(
            ends.iter()
                .map(|(_, end)| PollFd::new(end.as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut watched, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                log::error!("a session's output is lost: {errno}");
                return;
            }
        }
        // Nothing to read means that one of the ends woke us.
        let _ = session.wake.read();
    }
}

/// Takes in one piece; says whether there was one.
fn take(session: &Session, stream: Stream, end: &Arc<OwnedFd>, chunk: &mut [u8]) -> bool {
    let count = match read(end.as_ref(), chunk) {
        Ok(0) | Err(Errno::EIO) => {
            // All other ends are closed: of a pipe, or of a terminal.
            let mut state = session.state.lock();
            let current = stream.of(&mut state);
            if current
                .as_ref()
                .is_some_and(|current| Arc::ptr_eq(current, end))
            {
                *current = None;
            }
            return true;
        }
        Ok(count) => count,
        Err(Errno::EINTR) => return true,
        Err(Errno::EAGAIN) => return false,
        Err(errno) => {
            log::warn!("a session's output cannot be read: {errno}");
            *stream.of(&mut session.state.lock()) = None;
            return true;
        }
    };
    let bytes = chunk.get(..count).unwrap_or_default();
    let viewer = {
        let mut state = session.state.lock();
        state.ring.push(bytes);
        state.viewer.clone()
    };
    if let Some(viewer) = viewer {
        viewer.send(&match stream {
            Stream::Output => Frame::Output(bytes.to_vec()),
            Stream::Errors => Frame::Errors(bytes.to_vec()),
        });
    }
    true
}

/// Tells everybody who waits that the command has ended and all of it is in.
fn finish(session: &Session, status: u8) {
    let viewer = {
        let mut state = session.state.lock();
        // Connected to another process meanwhile.
        if state.drained || state.status != Some(status) {
            return;
        }
        state.drained = true;
        state.input = None;
        state.viewer.take()
    };
    if let Some(viewer) = viewer {
        viewer.send(&Frame::Exit(status));
        viewer.leave();
    }
    session.changed.notify_all();
}
