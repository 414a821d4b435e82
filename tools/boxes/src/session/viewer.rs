//! Somebody attached to a session.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;
use parking_lot::Mutex;

use super::Session;
use super::frame::{CREDIT_BYTES, Decoder, Frame, PAYLOAD_BYTES_MAX};
use crate::error::{Error, Result};

/// How long a wait for room lasts before the ends are looked at anew, in milliseconds: a rollback may have replaced
/// them.
const LOOK_AGAIN_MS: u16 = 100;

/// Why somebody is no longer attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The command has ended.
    Exited(u8),
    /// They wanted to go.
    Detached,
    /// Somebody else has attached.
    Replaced,
    /// The line is dead.
    Gone,
}

/// The writing half of a line to somebody attached.
#[derive(Debug)]
pub(super) struct Viewer {
    stream: UnixStream,
    /// Held while a frame is written.
    writing: Mutex<()>,
}

impl Viewer {
    /// Sends a frame; that the line is dead is noticed by the reading half.
    pub(super) fn send(&self, frame: &Frame) {
        let _writing = self.writing.lock();
        if frame.write(&mut &self.stream).is_err() {
            self.leave();
        }
    }

    /// Ends the reading half, and whatever still waits to be written.
    pub(super) fn leave(&self) {
        drop(self.stream.shutdown(Shutdown::Both));
    }
}

/// Serves one line. See [`Session::attach`].
pub(super) fn serve(session: &Session, stream: UnixStream, replay: bool) -> Result<Left> {
    let failed = |reason| Error::system("use the line to a terminal", reason);
    let viewer = Arc::new(Viewer {
        stream: stream.try_clone().map_err(failed)?,
        writing: Mutex::new(()),
    });
    let (before, ended) = {
        // No other frame may come between what was kept and what comes next.
        let _writing = viewer.writing.lock();
        let mut state = session.state.lock();
        let ended = state.status.filter(|_| state.drained);
        let kept = if replay {
            state.ring.contents()
        } else {
            Vec::new()
        };
        let before = match ended {
            Some(_) => None,
            None => state.viewer.replace(Arc::clone(&viewer)),
        };
        drop(state);
        if !kept.is_empty() {
            let frame = Frame::Output(kept);
            drop(frame.write(&mut &viewer.stream));
        }
        (before, ended)
    };
    if let Some(before) = before {
        before.send(&Frame::Replaced);
        before.leave();
    }
    if let Some(status) = ended {
        viewer.send(&Frame::Exit(status));
        return Ok(Left::Exited(status));
    }
    let left = listen(session, &viewer, stream);
    let mut state = session.state.lock();
    let is_ours = |current: &Arc<Viewer>| Arc::ptr_eq(current, &viewer);
    if state.viewer.as_ref().is_some_and(is_ours) {
        state.viewer = None;
    } else if left == Left::Gone {
        // The reading half was ended by us.
        return Ok(match state.status {
            Some(status) if state.drained => Left::Exited(status),
            _ if state.closed => Left::Gone,
            _ => Left::Replaced,
        });
    }
    Ok(left)
}

/// Carries out what comes over the line until it ends.
fn listen(session: &Session, viewer: &Viewer, mut stream: UnixStream) -> Left {
    let mut decoder = Decoder::default();
    let mut pending: VecDeque<u8> = VecDeque::new();
    let mut input_ends = false;
    let mut chunk = vec![0u8; PAYLOAD_BYTES_MAX];
    loop {
        let input = session.state.lock().input.clone();
        if input_ends && pending.is_empty() {
            // A terminal has no end of its own: whoever types sends the character for it.
            if !session.is_terminal {
                session.state.lock().input = None;
            }
            input_ends = false;
            continue;
        }
        match wait(&stream, input.as_deref().filter(|_| !pending.is_empty())) {
            Ok((readable, writable)) => {
                if let Some(input) = input.filter(|_| writable) {
                    feed(viewer, &input, &mut pending);
                }
                if !readable {
                    continue;
                }
            }
            Err(_) => return Left::Gone,
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Left::Gone,
            Ok(count) => decoder.push(chunk.get(..count).unwrap_or_default()),
            Err(reason) if reason.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Left::Gone,
        }
        loop {
            match decoder.take() {
                Ok(Some(Frame::Input(bytes))) => {
                    if pending.len() + bytes.len() > CREDIT_BYTES {
                        return Left::Gone;
                    }
                    pending.extend(bytes);
                }
                Ok(Some(Frame::InputEnd)) => input_ends = true,
                Ok(Some(Frame::Resize { rows, columns })) => session.resize(rows, columns),
                // The command may have ended meanwhile.
                Ok(Some(Frame::Signal(number))) => drop(session.signal(number)),
                Ok(Some(Frame::Detach)) => return Left::Detached,
                Ok(None) => break,
                // What only the daemon says, or no frame at all.
                Ok(Some(_)) | Err(_) => return Left::Gone,
            }
        }
    }
}

/// Waits until something comes over the line, or there is room for input, or it is time to look again. Returns what of
/// both.
fn wait(stream: &UnixStream, input: Option<&OwnedFd>) -> io::Result<(bool, bool)> {
    let mut watched = vec![PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    watched.extend(input.map(|input| PollFd::new(input.as_fd(), PollFlags::POLLOUT)));
    let limit = match input {
        Some(_) => PollTimeout::from(LOOK_AGAIN_MS),
        None => PollTimeout::NONE,
    };
    match poll(&mut watched, limit) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok((false, false)),
        Err(errno) => return Err(errno.into()),
    }
    let has = |at: usize| watched.get(at).and_then(PollFd::any).unwrap_or(false);
    Ok((has(0), has(1)))
}

/// Gives the program as much of `pending` as it takes now.
fn feed(viewer: &Viewer, input: &OwnedFd, pending: &mut VecDeque<u8>) {
    let (first, _) = pending.as_slices();
    let taken = match write(input, first) {
        Ok(count) => count,
        Err(Errno::EAGAIN | Errno::EINTR) => 0,
        // Nobody will read it any more.
        Err(_) => pending.len(),
    };
    pending.drain(..taken);
    if taken > 0 {
        viewer.send(&Frame::Taken(u32::try_from(taken).unwrap_or(u32::MAX)));
    }
}
