//! Lines and descriptors over one connection, for both ends.
//!
//! Neither end trusts the other: a line has a largest length and a time within which it must be
//! complete, descriptors that nobody asked for are closed.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};

use crate::sys;

/// The kernel passes at most so many descriptors with one message; with room for all of them
/// none can be lost in a truncated control message and stay open unseen.
const FDS_MAX: usize = 253;

/// Bytes asked for at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Why no line could be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The line is longer than allowed.
    TooLong,
    /// The line was not complete in time.
    TimedOut,
    /// The other end is gone in the middle of a line.
    Cut,
    /// The system refused.
    Io(io::Error),
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    buffer: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

impl Channel {
    /// Returns a channel over `stream`.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            fds: VecDeque::new(),
        }
    }

    /// Lets a write fail that the other end does not take within `limit`.
    pub(crate) fn limit_writes(&self, limit: Duration) -> io::Result<()> {
        self.stream.set_write_timeout(Some(limit))
    }

    /// Returns whether the other end is gone, or takes nothing any more.
    pub(crate) fn is_cut(&self) -> bool {
        let mut watched = [PollFd::new(self.stream.as_fd(), PollFlags::POLLHUP)];
        let answered = poll(&mut watched, PollTimeout::ZERO);
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR;
        answered.is_ok()
            && watched[0]
                .revents()
                .is_some_and(|events| events.intersects(gone))
    }

    /// Returns the next line without its end, or `None` if the other end closed between lines.
    pub(crate) fn read_line(
        &mut self,
        bytes_max: usize,
        limit: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut searched = 0;
        loop {
            let fresh = self.buffer.get(searched..).unwrap_or_default();
            if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(searched + at + 1);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.pop();
                return if line.len() > bytes_max {
                    Err(ReadError::TooLong)
                } else {
                    Ok(Some(line))
                };
            }
            searched = self.buffer.len();
            if searched > bytes_max {
                return Err(ReadError::TooLong);
            }
            if self.receive(deadline)? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(ReadError::Cut)
                };
            }
        }
    }

    /// Returns the descriptor that came with the last line, closing all others.
    pub(crate) fn take_fd(&mut self) -> Option<OwnedFd> {
        let first = self.fds.pop_front();
        self.fds.clear();
        first
    }

    /// Writes `line` and its end, with `fd` beside it.
    pub(crate) fn write_line(&mut self, line: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut message = Vec::with_capacity(line.len() + 1);
        message.extend_from_slice(line);
        message.push(b'\n');
        let raw: Vec<RawFd> = fd.iter().map(AsRawFd::as_raw_fd).collect();
        let mut control: &[ControlMessage<'_>] = &[ControlMessage::ScmRights(&raw)];
        if raw.is_empty() {
            control = &[];
        }
        let mut rest = message.as_slice();
        while !rest.is_empty() {
            let parts = [IoSlice::new(rest)];
            let sent = sendmsg::<UnixAddr>(
                self.stream.as_raw_fd(),
                &parts,
                control,
                MsgFlags::MSG_NOSIGNAL,
                None,
            );
            match sent {
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    control = &[];
                }
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn receive(&mut self, deadline: Option<Instant>) -> Result<usize, ReadError> {
        let remaining = match deadline {
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(ReadError::TimedOut);
                }
                Some(left)
            }
            None => None,
        };
        self.stream
            .set_read_timeout(remaining)
            .map_err(ReadError::Io)?;
        let mut chunk = vec![0u8; CHUNK_BYTES];
        let mut space = nix::cmsg_space!([RawFd; FDS_MAX]);
        let mut parts = [IoSliceMut::new(&mut chunk)];
        let received = recvmsg::<UnixAddr>(
            self.stream.as_fd().as_raw_fd(),
            &mut parts,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        );
        let count = match received {
            Ok(message) => {
                if let Ok(controls) = message.cmsgs() {
                    for control in controls {
                        if let ControlMessageOwned::ScmRights(raw) = control {
                            self.fds.extend(raw.into_iter().map(sys::own_received_fd));
                        }
                    }
                }
                message.bytes
            }
            Err(Errno::EINTR) => return self.receive(deadline),
            Err(Errno::EAGAIN) => return Err(ReadError::TimedOut),
            Err(Errno::ECONNRESET) => 0,
            Err(errno) => return Err(ReadError::Io(errno.into())),
        };
        self.buffer
            .extend_from_slice(chunk.get(..count).unwrap_or_default());
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::thread;

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (a, b) = UnixStream::pair().unwrap();
        (Channel::new(a), Channel::new(b))
    }

    #[test]
    fn an_end_that_is_gone_is_noticed() {
        let (a, b) = pair();
        assert!(!a.is_cut());
        drop(b);
        assert!(a.is_cut());
    }

    const LIMIT: Option<Duration> = Some(Duration::from_millis(200));

    #[test]
    fn lines_come_one_by_one_however_they_arrive() {
        let (mut a, mut b) = pair();
        a.write_line(b"one", None).unwrap();
        a.write_line(b"", None).unwrap();
        a.stream.write_all(b"tw").unwrap();
        assert_eq!(
            b.read_line(100, LIMIT).unwrap().as_deref(),
            Some(&b"one"[..])
        );
        assert_eq!(b.read_line(100, LIMIT).unwrap().as_deref(), Some(&b""[..]));
        assert!(matches!(b.read_line(100, LIMIT), Err(ReadError::TimedOut)));
        a.stream.write_all(b"o\n").unwrap();
        assert_eq!(
            b.read_line(100, LIMIT).unwrap().as_deref(),
            Some(&b"two"[..])
        );
        drop(a);
        assert!(b.read_line(100, LIMIT).unwrap().is_none());
    }

    #[test]
    fn a_long_line_ends_the_reading_early() {
        let (mut a, mut b) = pair();
        let writer = thread::spawn(move || a.stream.write_all(&[b'x'; 1 << 20]).is_err());
        assert!(matches!(b.read_line(1000, LIMIT), Err(ReadError::TooLong)));
        assert!(b.buffer.len() <= 1000 + CHUNK_BYTES);
        drop(b);
        assert!(writer.join().unwrap(), "the writer is told");
    }

    #[test]
    fn a_line_cut_off_is_told_from_a_closed_connection() {
        let (mut a, mut b) = pair();
        a.stream.write_all(b"half").unwrap();
        drop(a);
        assert!(matches!(b.read_line(100, LIMIT), Err(ReadError::Cut)));
    }

    #[test]
    fn drops_of_bytes_do_not_extend_the_time() {
        let (mut a, mut b) = pair();
        let dripping = thread::spawn(move || {
            for _ in 0..20 {
                if a.stream.write_all(b"x").is_err() {
                    return;
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let start = Instant::now();
        assert!(matches!(b.read_line(100, LIMIT), Err(ReadError::TimedOut)));
        assert!(start.elapsed() < Duration::from_millis(600));
        drop(b);
        dripping.join().unwrap();
    }

    #[test]
    fn a_descriptor_travels_and_others_are_closed() {
        let (mut a, mut b) = pair();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"through").unwrap();
        file.rewind().unwrap();
        a.write_line(b"with", Some(file.as_fd())).unwrap();
        a.write_line(b"unasked", Some(file.as_fd())).unwrap();
        assert!(b.read_line(100, LIMIT).unwrap().is_some());
        let mut text = String::new();
        File::from(b.take_fd().unwrap())
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "through");
        assert!(b.read_line(100, LIMIT).unwrap().is_some());
        b.take_fd();
        assert!(b.take_fd().is_none());
    }
}
