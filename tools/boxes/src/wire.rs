//! What the daemon and a box's init say to each other, over a socket pair.
//!
//! ```text
//! frame = length of the body: u32, little-endian | body: postcard of an Order or a Word
//! ```
//! Descriptors travel beside the length. The daemon gives [`Order`]s, one at a time, and init answers each
//! with one [`Word`]; [`Word::Exited`] comes at any time. When the daemon's end closes, init ends, and the
//! kernel ends everything else in the box with it.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::sys;

/// The longest body in bytes. The kernel takes 2 MiB of arguments and environment by default.
const BODY_BYTES_MAX: usize = 4 << 20;

/// The most descriptors beside one message.
const FDS_MAX: usize = 4;

/// A message and the descriptors that came with it; nothing at the end of the stream.
pub(crate) type Received<T> = Option<(T, Vec<OwnedFd>)>;

/// How a new box is set up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The host name in the box.
    pub(crate) hostname: String,
}

/// What a command is started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The program and its arguments; the program is looked for in the `PATH` of `env`.
    pub argv: Vec<Vec<u8>>,
    /// The whole environment, as `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// The working directory, in the box.
    pub cwd: Vec<u8>,
    /// Who runs it: `user`, `user:group` or numbers of the box's own tables; root by default.
    pub user: Option<String>,
}

/// What the standard descriptors of a command are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stdio {
    /// A new terminal of this many rows and columns, made in the box; init returns its master end.
    Terminal { rows: u16, columns: u16 },
    /// Descriptors that come along: input if `input` (`/dev/null` if not), output, errors.
    Pipes { input: bool },
}

/// What the daemon wants.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Make the inside of the box; comes first, with its root and its cgroup directory.
    SetUp(Setup),
    /// Start a command.
    Run {
        session: u32,
        command: Command,
        stdio: Stdio,
    },
    /// Take the process `pid` (as init sees it), a child of init, for that of `session`.
    Adopt { session: u32, pid: i32 },
    /// Make a waiting child that can become anything, with the descriptor that comes along as
    /// [`SEED_FD`].
    Seed,
    /// Make the terminal number `number`.
    Terminal { number: u32 },
    /// Send a signal to every process but init.
    SignalAll { signal: i32 },
}

/// What init answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// Done.
    Done,
    /// A process was made or found: its pid as init sees it, and its descriptor beside; with a terminal,
    /// the master end after that.
    Process { pid: i32 },
    /// The terminal's master end comes along.
    Terminal,
    /// Not done.
    Failed { step: String, errno: i32 },
    /// The command could not be executed.
    NotStarted { errno: i32 },
    /// The user is not known in the box.
    NoSuchUser,
    /// A session's process has ended: its exit status, or 128 and the signal.
    Exited { session: u32, status: u8 },
}

/// Sends `message` with `fds`.
pub(crate) fn send<T: Serialize>(
    stream: &UnixStream,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = postcard::to_allocvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|_| body.len() <= BODY_BYTES_MAX)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::E2BIG))?
        .to_le_bytes();
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights };
    let sent = loop {
        let parts = [IoSlice::new(&length)];
        match sendmsg::<UnixAddr>(
            stream.as_raw_fd(),
            &parts,
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        ) {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    let mut stream = stream;
    stream.write_all(length.get(sent..).unwrap_or_default())?;
    stream.write_all(&body)
}

/// Waits for a message.
pub(crate) fn receive<T: DeserializeOwned>(stream: &UnixStream) -> io::Result<Received<T>> {
    let mut length = [0u8; 4];
    let mut space = cmsg_space!([RawFd; FDS_MAX]);
    let mut fds = Vec::new();
    let count = loop {
        let mut parts = [IoSliceMut::new(&mut length)];
        let received = recvmsg::<UnixAddr>(
            stream.as_raw_fd(),
            &mut parts,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        );
        match received {
            Ok(message) => {
                for control in message.cmsgs()? {
                    if let ControlMessageOwned::ScmRights(raw) = control {
                        fds.extend(raw.into_iter().map(sys::clone::own_fd));
                    }
                }
                break message.bytes;
            }
            Err(Errno::EINTR) => {}
            Err(Errno::ECONNRESET) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    };
    if count == 0 {
        return Ok(None);
    }
    let mut stream = stream;
    stream.read_exact(length.get_mut(count..).unwrap_or_default())?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > BODY_BYTES_MAX {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    let mut body = vec![0u8; length];
    stream.read_exact(&mut body)?;
    let message = postcard::from_bytes(&body).map_err(io::Error::other)?;
    Ok(Some((message, fds)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn messages_and_descriptors_arrive_together() {
        let (a, b) = UnixStream::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        send(&a, &Order::Seed, &[file.as_fd(), file.as_fd()]).unwrap();
        send(&a, &Order::SignalAll { signal: 15 }, &[]).unwrap();
        drop(a);
        let (first, fds) = receive::<Order>(&b).unwrap().unwrap();
        assert!(matches!(first, Order::Seed));
        assert_eq!(fds.len(), 2);
        let (second, fds) = receive::<Order>(&b).unwrap().unwrap();
        assert!(matches!(second, Order::SignalAll { signal: 15 }));
        assert!(fds.is_empty());
        assert!(receive::<Order>(&b).unwrap().is_none());
    }

    #[test]
    fn nonsense_is_an_error() {
        for bytes in [
            &[0xff, 0xff, 0xff, 0xff][..],
            &[1, 0, 0, 0, 0xee],
            &[5, 0, 0, 0, 0],
            &[1, 0],
        ] {
            let (mut a, b) = UnixStream::pair().unwrap();
            a.write_all(bytes).unwrap();
            drop(a);
            assert!(receive::<Order>(&b).is_err(), "{bytes:?}");
        }
    }
}
