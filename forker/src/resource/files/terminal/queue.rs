//! What lies in a terminal's two queues. Only reading shows it, so it is taken out and put back at
//! once, while nobody who holds an end runs. What is put back must arrive as it was: no echo, no
//! signals, no translation.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{read, write};
use serde::{Deserialize, Serialize};

use super::super::sys;
use super::{Settings, Terminal};

/// A piece of what was typed and not read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// How it ends.
    pub end: LineEnd,
}

/// How a piece of input ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineEnd {
    /// With its last byte: a whole line.
    Line,
    /// With the end-of-file character, which is not among the bytes.
    EndOfFile,
    /// Not yet: the line is still being typed, or there are no lines.
    Open,
}

/// Longest wait for bytes to get from one end to the other, which a kernel thread carries.
const PATIENCE: Duration = Duration::from_secs(10);

/// The kernel's own limit on what waits in a terminal.
const BUFFER: usize = 1 << 16;

/// The end-of-file character while pieces are put back.
const END_OF_FILE: u8 = 4;

impl Settings {
    fn canonical(&self) -> bool {
        self.modes[3] & libc::ICANON != 0
    }

    /// Bytes go through unchanged, line by line or one by one.
    fn quiet(&self, lines: bool) -> Self {
        let mut quiet = self.clone();
        quiet.modes[0] = 0;
        quiet.modes[1] &= !libc::OPOST;
        quiet.modes[3] = if lines { libc::ICANON } else { 0 };
        for (at, character) in quiet.characters.iter_mut().enumerate() {
            *character = match at {
                libc::VEOF if lines => END_OF_FILE,
                libc::VEOL | libc::VEOL2 if lines => *character,
                _ => 0,
            };
        }
        quiet
    }
}

fn readable(file: &OwnedFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO)?;
    let state = polled.first().and_then(PollFd::revents);
    Ok(state
        .unwrap_or(PollFlags::empty())
        .contains(PollFlags::POLLIN))
}

fn waiting(file: &OwnedFd) -> io::Result<usize> {
    let count: i32 = sys::ioctl_get(file, libc::FIONREAD)?;
    usize::try_from(count).map_err(io::Error::other)
}

/// The same, including what a kernel thread had still to carry over: polling does its work.
fn arrived(file: &OwnedFd) -> io::Result<usize> {
    let _ready = readable(file)?;
    waiting(file)
}

/// Waits until as many bytes can be read.
fn arrival(file: &OwnedFd, count: usize) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        if arrived(file)? >= count {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(io::Error::other("a terminal's input did not arrive"));
        }
        std::thread::yield_now();
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    let begin = Instant::now();
    while !bytes.is_empty() {
        match write(file, bytes) {
            Ok(done) if done > 0 => bytes = bytes.get(done..).unwrap_or_default(),
            Ok(_) | Err(nix::Error::EAGAIN) if begin.elapsed() < PATIENCE => {
                std::thread::yield_now();
            }
            Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Reads the input of `slave`, and types it again on `master`.
pub(super) fn take_input(
    slave: &OwnedFd,
    master: &OwnedFd,
    settings: &Settings,
) -> io::Result<Vec<Input>> {
    let mut input = Vec::new();
    let mut buffer = vec![0_u8; BUFFER];
    // A description of our own: the tree's may block, or be open for writing only.
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let reader = sys::ioctl_file(master, libc::TIOCGPTPEER, flags)?;
    let result = (|| -> io::Result<()> {
        while settings.canonical() && readable(&reader)? {
            let got = read(&reader, &mut buffer)?;
            let bytes = buffer.get(..got).unwrap_or_default().to_vec();
            let whole = bytes.last().is_some_and(|last| {
                let ends = [libc::VEOL, libc::VEOL2];
                *last == b'\n'
                    || (*last != 0
                        && ends
                            .iter()
                            .any(|&at| settings.characters.get(at) == Some(last)))
            });
            let end = if whole {
                LineEnd::Line
            } else {
                LineEnd::EndOfFile
            };
            input.push(Input { bytes, end });
        }
        // A line that is still being typed shows only without lines.
        if settings.canonical() {
            settings.quiet(false).write(slave)?;
        }
        let mut open = Vec::new();
        while arrived(&reader)? > 0 {
            let got = read(&reader, &mut buffer)?;
            open.extend_from_slice(buffer.get(..got).unwrap_or_default());
        }
        if !open.is_empty() {
            input.push(Input {
                bytes: open,
                end: LineEnd::Open,
            });
        }
        Ok(())
    })();
    // Whatever happened, what was taken goes back.
    let back = if input.is_empty() {
        Ok(())
    } else {
        put_input(slave, master, settings, &input)
    };
    settings.write(slave)?;
    result.and(back).map(|()| input)
}

/// Types pieces on `master`; leaves other settings behind than it found.
pub(super) fn put_input(
    slave: &OwnedFd,
    master: &OwnedFd,
    settings: &Settings,
    input: &[Input],
) -> io::Result<()> {
    if input.is_empty() {
        return Ok(());
    }
    let lines = settings.canonical();
    settings.quiet(lines).write(slave)?;
    let (mut bytes, mut visible) = (Vec::new(), 0);
    for piece in input {
        bytes.extend_from_slice(&piece.bytes);
        if piece.end == LineEnd::EndOfFile {
            bytes.push(END_OF_FILE);
        }
        if !lines || piece.end != LineEnd::Open {
            visible += piece.bytes.len();
        }
    }
    write_all(master, &bytes)?;
    arrival(slave, visible)
}

/// Reads what `master` could read, and lets the slave write it again.
pub(super) fn take_output(master: &OwnedFd, terminal: &Terminal) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    if arrived(master)? == 0 {
        return Ok(output);
    }
    let mut buffer = vec![0_u8; BUFFER];
    if terminal.packets {
        sys::ioctl_set(master, libc::TIOCPKT, &0_i32)?;
    }
    let mut result = Ok(());
    while result.is_ok() && arrived(master)? > 0 {
        match read(master, &mut buffer) {
            Ok(got) => output.extend_from_slice(buffer.get(..got).unwrap_or_default()),
            Err(error) => result = Err(error.into()),
        }
    }
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let writer = sys::ioctl_file(master, libc::TIOCGPTPEER, flags)?;
    put_output(&writer, master, &output)?;
    terminal.settings.write(master)?;
    if terminal.packets {
        sys::ioctl_set(master, libc::TIOCPKT, &1_i32)?;
    }
    result.map(|()| output)
}

/// Writes on `slave` what the master is to read; leaves other settings behind than it found.
pub(super) fn put_output(slave: &OwnedFd, master: &OwnedFd, output: &[u8]) -> io::Result<()> {
    if output.is_empty() {
        return Ok(());
    }
    // The local modes stay: leaving line mode would forget where the lines of the input end.
    let mut untranslated = Settings::read(master)?;
    untranslated.modes[1] &= !libc::OPOST;
    untranslated.write(master)?;
    write_all(slave, output)?;
    // More than one buffer of it waits on the way until the first is read.
    arrival(master, output.len().min(4095))
}
