//! Sessions: the commands of a box whose terminal or pipes the daemon holds.
//!
//! A session outlives the process tree in which its command runs: after a rollback it is [connected](Session::connect)
//! to the ends in the new tree, and whoever is attached notices nothing. What comes out is kept, up to a limit, so
//! that somebody who attaches later sees it, and `logs` can show it.

pub mod frame;
mod pump;
mod ring;
mod table;
mod viewer;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use self::ring::Ring;
pub use self::table::{Kind, Sessions};
pub use self::viewer::Left;
use self::viewer::Viewer;
use crate::error::{Error, Result};
use crate::instance::{InstanceId, Started, host_pid, signal_group};
use crate::sys;

/// How much of what came out of a session is kept, in bytes.
pub const KEPT_BYTES: usize = 256 << 10;

/// The daemon's ends of what a command has as its standard descriptors.
#[derive(Debug, Default)]
pub struct Ends {
    /// Where input goes; a terminal's master end.
    pub input: Option<OwnedFd>,
    /// Where output comes from; nothing if `input` is a terminal, which is both.
    pub output: Option<OwnedFd>,
    /// Where errors come from.
    pub errors: Option<OwnedFd>,
}

/// What a checkpoint keeps of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its number in the box.
    pub number: u32,
    /// Its command.
    pub title: String,
    /// Whether it has a terminal.
    pub is_terminal: bool,
    /// The size of that, in lines and characters.
    pub size: (u16, u16),
    /// Its process, as the box numbers it.
    pub pid: i32,
}

/// One command of a box.
#[derive(Debug)]
pub struct Session {
    number: u32,
    title: String,
    is_terminal: bool,
    state: Mutex<State>,
    /// Told whenever the state changes.
    changed: Condvar,
    /// Wakes the pump.
    wake: EventFd,
}

#[derive(Debug)]
struct State {
    /// In a terminal, both are its master end.
    input: Option<Arc<OwnedFd>>,
    output: Option<Arc<OwnedFd>>,
    errors: Option<Arc<OwnedFd>>,
    process: Option<Started>,
    ring: Ring,
    viewer: Option<Arc<Viewer>>,
    size: (u16, u16),
    /// The status with which the process has ended.
    status: Option<u8>,
    /// Whether everything that it wrote until then has been taken in.
    drained: bool,
    /// Set when the pump is to end.
    closed: bool,
}

/// What is known of a session at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its number in the box.
    pub number: u32,
    /// Its command.
    pub title: String,
    /// Whether it has a terminal.
    pub is_terminal: bool,
    /// Its process, as the box numbers it, while it runs.
    pub pid: Option<i32>,
    /// That on the host.
    pub host_pid: Option<i32>,
    /// Whether somebody is attached.
    pub attached: bool,
    /// How it ended, if it has.
    pub status: Option<u8>,
    /// How many bytes have come out of it.
    pub output_bytes: u64,
}

impl Session {
    fn new(number: u32, title: String, is_terminal: bool, size: (u16, u16)) -> Result<Arc<Self>> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| Error::system("make an event", errno))?;
        Ok(Arc::new(Self {
            number,
            title,
            is_terminal,
            state: Mutex::new(State {
                input: None,
                output: None,
                errors: None,
                process: None,
                ring: Ring::new(KEPT_BYTES),
                viewer: None,
                size,
                status: None,
                drained: false,
                closed: false,
            }),
            changed: Condvar::new(),
            wake,
        }))
    }

    /// Returns its number in the box.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns what is known of it now.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state.lock();
        let process = state.process.as_ref().filter(|_| state.status.is_none());
        Snapshot {
            number: self.number,
            title: self.title.clone(),
            is_terminal: self.is_terminal,
            pid: process.map(|process| process.pid),
            host_pid: process.and_then(|process| host_pid(&process.pidfd)),
            attached: state.viewer.is_some(),
            status: state.status,
            output_bytes: state.ring.total(),
        }
    }

    /// Returns what a checkpoint keeps of it; nothing if its command has ended.
    pub fn kept(&self) -> Option<Kept> {
        let state = self.state.lock();
        let process = state.process.as_ref().filter(|_| state.status.is_none())?;
        Some(Kept {
            number: self.number,
            title: self.title.clone(),
            is_terminal: self.is_terminal,
            size: state.size,
            pid: process.pid,
        })
    }

    /// Returns what came out of it lately, oldest first.
    pub fn kept_output(&self) -> Vec<u8> {
        self.state.lock().ring.contents()
    }

    /// Connects the session to `process` and its `ends`, in place of those that it had: what is written from now on
    /// goes there. The old ends are closed. A terminal gets the size that the session's had.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn connect(&self, process: Started, ends: Ends) -> Result<()> {
        {
            let mut state = self.state.lock();
            state.status = None;
            state.drained = false;
        }
        self.connect_new(process, ends)
    }

    /// As [`Session::connect`], for a process that may have ended already and been told of.
    fn connect_new(&self, process: Started, ends: Ends) -> Result<()> {
        for end in [&ends.input, &ends.output, &ends.errors]
            .into_iter()
            .flatten()
        {
            never_wait(end)?;
        }
        let mut state = self.state.lock();
        if self.is_terminal {
            let master = ends.input.map(Arc::new);
            if let Some(master) = &master {
                let (rows, columns) = state.size;
                sys::terminal::resize(master.as_fd(), rows, columns)
                    .map_err(|reason| Error::system("set the size of a terminal", reason))?;
            }
            state.input.clone_from(&master);
            state.output = master;
            state.errors = None;
        } else {
            state.input = ends.input.map(Arc::new);
            state.output = ends.output.map(Arc::new);
            state.errors = ends.errors.map(Arc::new);
        }
        state.process = Some(process);
        drop(state);
        self.poke();
        Ok(())
    }

    /// Lends out the daemon's ends, the same descriptions: for a checkpoint, which finds the other ends in the tree
    /// by them, and takes in what lies in between.
    ///
    /// # Errors
    /// [`Error::System`] without a free descriptor.
    pub fn ends(&self) -> Result<Ends> {
        let state = self.state.lock();
        let copy = |end: &Option<Arc<OwnedFd>>| {
            end.as_ref()
                .map(|end| end.try_clone())
                .transpose()
                .map_err(|reason| Error::system("duplicate the end of a session", reason))
        };
        Ok(Ends {
            input: copy(&state.input)?,
            output: if self.is_terminal {
                None
            } else {
                copy(&state.output)?
            },
            errors: copy(&state.errors)?,
        })
    }

    /// Attaches whoever speaks [frames](frame) on `stream`, replacing who was, and serves them until they leave or the
    /// command has ended. With `replay`, they are first sent what came out lately.
    ///
    /// # Errors
    /// [`Error::System`] if the stream cannot be used.
    pub fn attach(&self, stream: UnixStream, replay: bool) -> Result<Left> {
        viewer::serve(self, stream, replay)
    }

    /// Sends a signal to the command's process group.
    ///
    /// # Errors
    /// [`Error::Ended`] if the command has.
    pub fn signal(&self, signal: i32) -> Result<()> {
        let state = self.state.lock();
        match &state.process {
            Some(process) if state.status.is_none() => signal_group(&process.pidfd, signal),
            _ => Err(Error::Ended),
        }
    }

    /// Does what happens when the line to a terminal goes dead: the command is sent SIGHUP, and finds no one at the
    /// other end.
    pub fn hang_up(&self) {
        // Closing the master end makes the kernel tell the foreground group; a shell tells the others.
        {
            let mut state = self.state.lock();
            state.input = None;
            if self.is_terminal {
                state.output = None;
            }
        }
        self.poke();
        // Nobody left to tell is as good.
        drop(self.signal(libc::SIGHUP));
    }

    /// Waits until the command has ended and all its output is in; returns its status, or nothing after `limit`.
    pub fn wait(&self, limit: Duration) -> Option<u8> {
        let deadline = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.drained && !state.closed {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.status.filter(|_| state.drained || state.closed)
    }

    /// Sets the size of the terminal, if it has one.
    fn resize(&self, rows: u16, columns: u16) {
        let mut state = self.state.lock();
        state.size = (rows, columns);
        if let Some(master) = state.input.as_ref().filter(|_| self.is_terminal)
            && let Err(reason) = sys::terminal::resize(master.as_fd(), rows, columns)
        {
            log::debug!("a terminal keeps its size: {reason}");
        }
    }

    /// Notes how the process ended, if it is still this session's.
    fn exited(&self, instance: InstanceId, status: u8) {
        {
            let mut state = self.state.lock();
            let process = state.process.as_ref();
            if process.is_some_and(|process| process.instance != instance) {
                return;
            }
            state.status.get_or_insert(status);
        }
        self.poke();
    }

    /// Closes everything and lets the pump end.
    fn close(&self) {
        let viewer = {
            let mut state = self.state.lock();
            state.closed = true;
            state.input = None;
            state.output = None;
            state.errors = None;
            state.viewer.take()
        };
        if let Some(viewer) = viewer {
            viewer.leave();
        }
        self.changed.notify_all();
        self.poke();
    }

    fn poke(&self) {
        // Full means that the pump has not yet noticed the last time.
        let _ = self.wake.write(1);
    }
}

fn never_wait(end: &OwnedFd) -> Result<()> {
    let failed = |errno| Error::system("prepare the end of a session", errno);
    let flags = OFlag::from_bits_retain(fcntl(end, FcntlArg::F_GETFL).map_err(failed)?);
    fcntl(end, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))
        .map(drop)
        .map_err(failed)
}
