//! Pseudo-terminals: settings, size, what is queued in both directions, and whose controlling
//! terminal they are.
//!
//! A terminal is known by its index in the box's devpts, which its new self gets too. Where the tree
//! holds the slave alone, the master belongs to a session that the caller names, or is closed (then
//! the new one hangs up as well), or the checkpoint is refused.

mod queue;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

pub use queue::{Input, LineEnd};

use super::capture::Taken;
use super::inside::{Argument, InsideCall};
use super::model::Description;
use super::place::{Outside, Place, Source};
use super::trouble::{Trouble, way};
use super::{device, regular, sys};

/// A pseudo-terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Its number in devpts.
    pub index: u32,
    /// Path beneath the tree's root through which its master was opened.
    pub master: Option<Vec<u8>>,
    /// The caller's name for it, if its master is held outside of the tree.
    pub outside: Option<String>,
    /// Whether the master is closed.
    pub hung_up: bool,
    /// Its settings.
    pub settings: Settings,
    /// Rows, columns, width and height in pixels.
    pub size: [u16; 4],
    /// Whether the slave cannot be opened yet (`TIOCSPTLCK`).
    pub locked: bool,
    /// Whether the master reads packets (`TIOCPKT`).
    pub packets: bool,
    /// Whether it cannot be opened once more (`TIOCEXCL`).
    pub exclusive: bool,
    /// What was typed and not read.
    pub input: Vec<Input>,
    /// What was written by the slave and not read by the master.
    pub output: Vec<u8>,
}

/// `struct termios2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Input, output, control and local modes.
    pub modes: [u32; 4],
    /// Line discipline.
    pub line: u8,
    /// Control characters.
    pub characters: Vec<u8>,
    /// Input and output speed.
    pub speeds: [u32; 2],
}

/// An end of a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Which of [`super::Files::terminals`].
    pub terminal: usize,
    /// The master, or the slave.
    pub master: bool,
}

/// A session with a controlling terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its leader.
    pub leader: i32,
    /// Which of [`super::Files::terminals`].
    pub terminal: usize,
    /// Foreground process group, 0 without one.
    pub foreground: i32,
}

impl Settings {
    fn read(file: impl AsFd) -> io::Result<Self> {
        let raw: libc::termios2 = sys::ioctl_get(file, libc::TCGETS2)?;
        Ok(Self {
            modes: [raw.c_iflag, raw.c_oflag, raw.c_cflag, raw.c_lflag],
            line: raw.c_line,
            characters: raw.c_cc.to_vec(),
            speeds: [raw.c_ispeed, raw.c_ospeed],
        })
    }

    /// Sets them at once; neither queue is touched.
    fn write(&self, file: impl AsFd) -> io::Result<()> {
        let mut raw: libc::termios2 = sys::ioctl_get(file.as_fd(), libc::TCGETS2)?;
        [raw.c_iflag, raw.c_oflag, raw.c_cflag, raw.c_lflag] = self.modes;
        raw.c_line = self.line;
        for (to, from) in raw.c_cc.iter_mut().zip(&self.characters) {
            *to = *from;
        }
        [raw.c_ispeed, raw.c_ospeed] = self.speeds;
        sys::ioctl_set(file, libc::TCSETS2, &raw)
    }
}

/// Which terminal, and which end, a character device is.
pub(super) fn recognise(taken: &Taken) -> io::Result<Option<(u32, bool)>> {
    if taken.stat.st_mode & libc::S_IFMT != libc::S_IFCHR {
        return Ok(None);
    }
    match device::number(&taken.stat) {
        (5, 2) => Ok(Some((sys::ioctl_get(&taken.file, libc::TIOCGPTN)?, true))),
        (136..=143, index) => Ok(Some((index, false))),
        // /dev/tty and /dev/console: what they stand for.
        (5, 0 | 1) => {
            let real: u32 = sys::ioctl_get(&taken.file, libc::TIOCGDEV)?;
            let (major, minor) = (
                (real >> 8) & 0xfff,
                (real & 0xff) | ((real >> 12) & 0xfff00),
            );
            Ok((136..=143).contains(&major).then_some((minor, false)))
        }
        _ => Ok(None),
    }
}

/// Captures the terminal behind all these ends of it.
pub(super) fn capture(
    source: &dyn Source,
    index: u32,
    ends: &[(&Taken, bool)],
) -> Result<Terminal, Trouble> {
    let master = ends.iter().find(|(_, master)| *master).map(|(end, _)| *end);
    let slave = ends
        .iter()
        .find(|(_, master)| !*master)
        .map(|(end, _)| *end);
    let Some(first) = master.or(slave) else {
        return Err(io::Error::other("a terminal without ends").into());
    };
    let mut terminal = Terminal {
        index,
        master: master.map(|end| regular::path_beneath(source, &end.link)),
        ..Terminal::default()
    };
    if master.is_none() {
        terminal.outside = source.outside(Outside::Terminal(index));
        terminal.hung_up = terminal.outside.is_none() && hung_up(first.file.as_fd())?;
        if terminal.outside.is_none() && !terminal.hung_up {
            return Err(Trouble::refuse(
                format!("the other end of terminal {index} is held outside of the box"),
                way("run the program in a session of the box"),
            ));
        }
    }
    if terminal.hung_up {
        return Ok(terminal);
    }
    settings(&mut terminal, first.file.as_fd())?;
    if let Some(end) = master {
        let flag = |request| sys::ioctl_get::<i32>(&end.file, request).map(|flag| flag != 0);
        terminal.locked = flag(libc::TIOCGPTLCK)?;
        terminal.packets = flag(libc::TIOCGPKT)?;
        terminal.output = queue::take_output(&end.file, &terminal)?;
    }
    let typed_by = match master {
        Some(end) => Some(end.file.try_clone()?),
        None => source.master(index),
    };
    if let (Some(slave), Some(master)) = (slave, typed_by) {
        terminal.input = queue::take_input(&slave.file, &master, &terminal.settings)?;
    }
    Ok(terminal)
}

fn settings(terminal: &mut Terminal, file: BorrowedFd<'_>) -> io::Result<()> {
    terminal.settings = Settings::read(file)?;
    let size: libc::winsize = sys::ioctl_get(file, libc::TIOCGWINSZ)?;
    terminal.size = [size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel];
    terminal.exclusive = sys::ioctl_get::<i32>(file, libc::TIOCGEXCL)? != 0;
    Ok(())
}

fn hung_up(file: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = [PollFd::new(file, PollFlags::POLLIN)];
    poll(&mut polled, PollTimeout::ZERO)?;
    let state = polled.first().and_then(PollFd::revents);
    Ok(state
        .unwrap_or(PollFlags::empty())
        .contains(PollFlags::POLLHUP))
}

/// A terminal under construction.
#[derive(Debug)]
pub(super) struct Built {
    master: OwnedFd,
    /// Keeps what is queued while no end is given away yet.
    slave: OwnedFd,
    given: bool,
}

/// How many numbers lie before one at most (`/proc/sys/kernel/pty/max` is 4096 by default).
const MOST: usize = 1 << 16;

/// Opens masters until one has the wanted number; the others are closed again by the caller.
fn master_with_index(
    root: BorrowedFd<'_>,
    path: &[u8],
    index: u32,
    spare: &mut Vec<OwnedFd>,
) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    let in_use = || io::Error::other(format!("terminal {index} is in use already"));
    while spare.len() < MOST {
        let master = sys::open_beneath(root, path, flags, 0)?;
        let got: u32 = sys::ioctl_get(&master, libc::TIOCGPTN)?;
        match got.cmp(&index) {
            std::cmp::Ordering::Equal => return Ok(master),
            std::cmp::Ordering::Greater => return Err(in_use()),
            std::cmp::Ordering::Less => spare.push(master),
        }
    }
    Err(in_use())
}

/// A new master with a certain number in the devpts beneath `root`, unlocked: for a caller that gives
/// a session its terminal back.
///
/// # Errors
/// If there is no devpts at `/dev/pts`, or the number is in use.
pub fn open_master(root: BorrowedFd<'_>, index: u32) -> io::Result<OwnedFd> {
    let master = master_with_index(root, b"/dev/pts/ptmx", index, &mut Vec::new())?;
    sys::ioctl_set(&master, libc::TIOCSPTLCK, &0_i32)?;
    Ok(master)
}

/// Makes the terminal, with its settings and what is queued.
pub(super) fn rebuild(place: &dyn Place, state: &Terminal) -> io::Result<Built> {
    let mut spare = Vec::new();
    let master = match (&state.outside, &state.master) {
        (Some(name), _) => place.outside(name, Outside::Terminal(state.index))?,
        (None, path) => {
            let path = path.as_deref().unwrap_or(b"/dev/pts/ptmx");
            master_with_index(place.root(), path, state.index, &mut spare)?
        }
    };
    sys::ioctl_set(&master, libc::TIOCSPTLCK, &0_i32)?;
    let slave = peer(&master, libc::O_NONBLOCK)?;
    if state.hung_up {
        return Ok(Built {
            master,
            slave,
            given: false,
        });
    }
    queue::put_output(&slave, &master, &state.output)?;
    queue::put_input(&slave, &master, &state.settings, &state.input)?;
    state.settings.write(&slave)?;
    let size = libc::winsize {
        ws_row: state.size[0],
        ws_col: state.size[1],
        ws_xpixel: state.size[2],
        ws_ypixel: state.size[3],
    };
    sys::ioctl_set(&slave, libc::TIOCSWINSZ, &size)?;
    Ok(Built {
        master,
        slave,
        given: false,
    })
}

/// Opens the slave of a master.
fn peer(master: &OwnedFd, flags: i32) -> io::Result<OwnedFd> {
    let flags = flags & libc::O_NONBLOCK | libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    sys::ioctl_file(master, libc::TIOCGPTPEER, flags)
}

/// Makes one description of it.
pub(super) fn end(
    built: &mut Built,
    state: &End,
    description: &Description,
) -> io::Result<OwnedFd> {
    let flags = description.flags & (libc::O_ACCMODE | libc::O_NONBLOCK);
    if !state.master {
        let opened = flags | libc::O_NOCTTY | libc::O_CLOEXEC;
        return sys::ioctl_file(&built.master, libc::TIOCGPTPEER, opened);
    }
    if built.given {
        return Err(io::Error::other("a terminal has one master only"));
    }
    built.given = true;
    let file = built.master.try_clone()?;
    sys::fcntl(&file, libc::F_SETFL, flags)?;
    Ok(file)
}

/// What comes last: locks, and letting go of what only the rebuilding needed.
pub(super) fn finish(built: Built, state: &Terminal) -> io::Result<()> {
    if state.exclusive {
        sys::ioctl_number(&built.slave, libc::TIOCEXCL, 0)?;
    }
    if state.packets {
        sys::ioctl_set(&built.master, libc::TIOCPKT, &1_i32)?;
    }
    if state.locked {
        sys::ioctl_set(&built.master, libc::TIOCSPTLCK, &1_i32)?;
    }
    Ok(())
}

/// A slave for the leader of a session to take as its controlling terminal.
pub(super) fn slave(built: &Built) -> io::Result<OwnedFd> {
    built.slave.try_clone()
}

/// The calls by which a leader takes its controlling terminal, `file` being a slave of it.
pub(super) fn control(session: &Session, file: usize) -> Vec<InsideCall> {
    let call = |what, request: libc::Ioctl, argument| InsideCall {
        pid: session.leader,
        what,
        file: Some(file),
        number: libc::SYS_ioctl,
        arguments: vec![Argument::File, Argument::Number(request), argument],
    };
    let mut calls = vec![call(
        "take its controlling terminal",
        libc::TIOCSCTTY,
        Argument::Number(0),
    )];
    if session.foreground != 0 {
        calls.push(call(
            "set the foreground process group",
            libc::TIOCSPGRP,
            Argument::Bytes(session.foreground.to_ne_bytes().to_vec()),
        ));
    }
    calls
}
