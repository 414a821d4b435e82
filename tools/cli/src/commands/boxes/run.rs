//! Being attached to a session: keys, signals and sizes go there, what it says comes here.

use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use branchpoint_boxes::session::frame::{CREDIT_BYTES, Decoder, Frame, PAYLOAD_BYTES_MAX};
use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH};
use signal_hook::iterator::Signals;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::{Output, json_line, note};
use crate::protocol::Request;
use crate::protocol::boxes::{BoxLeft, BoxRequest};

use super::terminal::{self, Raw};

/// Ctrl-], the first of the two keys that leave a session.
const ESCAPE: u8 = 0x1d;

/// What goes to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Keys, to a terminal.
    Keyboard,
    /// Nothing, but it has a terminal.
    Watched,
    /// Standard input, through a pipe.
    Input,
    /// Nothing.
    Output,
    /// What this program has: keys if it is at a terminal.
    OfSession,
}

impl Kind {
    fn has_input(self) -> bool {
        matches!(self, Self::Keyboard | Self::Input | Self::OfSession)
    }

    fn has_terminal(self) -> bool {
        matches!(self, Self::Keyboard | Self::Watched | Self::OfSession)
    }
}

/// The line to the daemon; frames are written whole.
#[derive(Debug)]
struct Line {
    stream: UnixStream,
    writing: Mutex<()>,
    /// How many bytes of input may still be sent.
    credit: Mutex<usize>,
    more: Condvar,
}

impl Line {
    /// Sends a frame; a dead line is noticed by whoever reads.
    fn send(&self, frame: &Frame) {
        let _writing = self.writing.lock();
        drop(frame.write(&mut &self.stream));
    }

    fn send_input(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = {
                let mut credit = self.credit.lock();
                while *credit == 0 {
                    self.more.wait(&mut credit);
                }
                let count = bytes.len().min(*credit);
                *credit -= count;
                count
            };
            let (now, later) = bytes.split_at(count);
            self.send(&Frame::Input(now.to_vec()));
            bytes = later;
        }
    }

    fn add_credit(&self, count: u32) {
        let mut credit = self.credit.lock();
        let count = usize::try_from(count).unwrap_or(0);
        *credit = credit.saturating_add(count).min(CREDIT_BYTES);
        self.more.notify_all();
    }
}

/// Carries out a request that attaches this program to a session, until the command ends or is left.
pub(super) fn attached(context: &Context, request: &BoxRequest, kind: Kind) -> Result<Exit> {
    match talk(context, request, kind) {
        Ok(left) => {
            if context.output == Output::Json {
                // Standard output is the command's.
                note(json_line(&left)?.trim_end());
            } else if left.status.is_none() {
                let why = if left.replaced {
                    "somebody else is attached to"
                } else {
                    "left"
                };
                note(&format!(
                    "{why} session {0}; `branchpoint box attach {0}` goes there again",
                    left.id
                ));
            }
            Ok(left.status.map_or(Exit::Done, Exit::Status))
        }
        Err(failure) => Ok(super::own_failure(context, &failure)),
    }
}

fn talk(context: &Context, request: &BoxRequest, kind: Kind) -> Result<BoxLeft> {
    let failed = |reason: io::Error| Failure::io("make a line to the session", &reason);
    let mut client = context.client()?;
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let line = Arc::new(Line {
        stream: ours.try_clone().map_err(failed)?,
        writing: Mutex::new(()),
        credit: Mutex::new(CREDIT_BYTES),
        more: Condvar::new(),
    });
    watch_signals(&line, kind)?;
    let raw = if kind.has_input() && kind.has_terminal() {
        Raw::begin()?
    } else {
        None
    };
    if kind == Kind::OfSession
        && let Some((rows, columns)) = terminal::size()
    {
        line.send(&Frame::Resize { rows, columns });
    }
    let shown = {
        let line = Arc::clone(&line);
        thread::Builder::new()
            .spawn(move || show(&line, ours))
            .map_err(failed)?
    };
    if kind.has_input() {
        let line = Arc::clone(&line);
        let escapes = raw.is_some();
        // Reads until this program ends: nothing wakes it from waiting for a key.
        thread::Builder::new()
            .spawn(move || read_input(&line, escapes))
            .map_err(failed)?;
    }
    let request = Request::Boxes(request.clone());
    let result = client.call_each(&request, Some(theirs.as_fd()), |_: Value| Ok(()));
    drop(theirs);
    if result.is_err() {
        drop(line.stream.shutdown(Shutdown::Both));
    }
    // Everything that the command said is shown before its status is acted upon.
    drop(shown.join());
    drop(raw);
    result
}

/// Shows what comes until the line ends.
fn show(line: &Line, mut stream: UnixStream) {
    let mut decoder = Decoder::default();
    let mut chunk = vec![0u8; PAYLOAD_BYTES_MAX];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => decoder.push(chunk.get(..count).unwrap_or_default()),
            Err(reason) if reason.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        }
        loop {
            let written = match decoder.take() {
                Ok(Some(Frame::Output(bytes))) => write(&mut io::stdout().lock(), &bytes),
                Ok(Some(Frame::Errors(bytes))) => write(&mut io::stderr().lock(), &bytes),
                Ok(Some(Frame::Taken(count))) => {
                    line.add_credit(count);
                    Ok(())
                }
                Ok(Some(Frame::Exit(_) | Frame::Replaced)) => return,
                Ok(Some(_)) => Ok(()),
                Ok(None) => break,
                Err(_) => return,
            };
            if written.is_err() {
                // Nobody reads what this program writes: the command learns of it as of any dead line.
                drop(line.stream.shutdown(Shutdown::Both));
                return;
            }
        }
    }
}

fn write(out: &mut impl io::Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    out.flush()
}

/// Sends what is typed, or comes through a pipe.
fn read_input(line: &Line, escapes: bool) {
    let mut input = io::stdin().lock();
    let mut chunk = vec![0u8; 16 << 10];
    let mut escaped = false;
    loop {
        let count = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(reason) if reason.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let bytes = chunk.get(..count).unwrap_or_default();
        if !escapes {
            line.send_input(bytes);
            continue;
        }
        match without_escapes(bytes, &mut escaped) {
            (bytes, false) => line.send_input(&bytes),
            (bytes, true) => {
                line.send_input(&bytes);
                line.send(&Frame::Detach);
                return;
            }
        }
    }
    line.send(&Frame::InputEnd);
}

/// Returns what of `bytes` is for the session, and whether it is to be left: Ctrl-] d leaves it, Ctrl-] twice is one for
/// the session.
fn without_escapes(bytes: &[u8], escaped: &mut bool) -> (Vec<u8>, bool) {
    let mut kept = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match (*escaped, *byte) {
            (false, ESCAPE) => *escaped = true,
            (false, byte) => kept.push(byte),
            (true, b'd') => return (kept, true),
            (true, ESCAPE) => {
                *escaped = false;
                kept.push(ESCAPE);
            }
            (true, byte) => {
                *escaped = false;
                kept.extend([ESCAPE, byte]);
            }
        }
    }
    (kept, false)
}

/// Hands signals on, and sizes.
fn watch_signals(line: &Arc<Line>, kind: Kind) -> Result<()> {
    let failed = |reason: io::Error| Failure::io("watch for signals", &reason);
    let mut watched = vec![SIGTERM, SIGUSR1, SIGUSR2];
    // Attached to a session that goes on without this program, these end this program alone.
    if kind != Kind::OfSession {
        watched.extend([SIGINT, SIGQUIT, SIGHUP]);
    } else {
        watched.retain(|signal| *signal != SIGTERM);
    }
    if kind.has_terminal() {
        watched.push(SIGWINCH);
    }
    let mut signals = Signals::new(watched).map_err(failed)?;
    let line = Arc::clone(line);
    thread::Builder::new()
        .spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGWINCH => {
                        if let Some((rows, columns)) = terminal::size() {
                            line.send(&Frame::Resize { rows, columns });
                        }
                    }
                    // The terminal is gone, and so should the line be.
                    SIGHUP => drop(line.stream.shutdown(Shutdown::Both)),
                    signal => line.send(&Frame::Signal(signal)),
                }
            }
        })
        .map(drop)
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_keys_leave_and_all_others_pass() {
        let mut escaped = false;
        assert_eq!(
            without_escapes(b"ab", &mut escaped),
            (b"ab".to_vec(), false)
        );
        assert_eq!(
            without_escapes(b"a\x1d", &mut escaped),
            (b"a".to_vec(), false)
        );
        assert_eq!(
            without_escapes(b"x", &mut escaped),
            (b"\x1dx".to_vec(), false)
        );
        assert_eq!(
            without_escapes(b"\x1d\x1d", &mut escaped),
            (b"\x1d".to_vec(), false)
        );
        assert_eq!(
            without_escapes(b"q\x1ddz", &mut escaped),
            (b"q".to_vec(), true)
        );
    }
}
