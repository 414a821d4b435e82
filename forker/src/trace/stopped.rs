//! A thread that stands still because we trace it.

use std::time::Duration;

use nix::errno::Errno;

use crate::arch::Registers;
use crate::error::{Error, Result};
use crate::sys::ptrace;
use crate::sys::wait::{self, Change};

/// How long a thread may take from one stop to the next. Everything that we let it do takes
/// microseconds; a loaded machine may take its time.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A traced thread in a ptrace stop. Whoever holds it may ask for registers and the like.
///
/// Dropping it does nothing: a thread is let go by [`Stopped::detach`], and all threads of a tracer
/// are when the tracer ends.
#[derive(Debug, PartialEq, Eq)]
pub struct Stopped {
    tid: i32,
    group_stop: i32,
}

impl Stopped {
    /// Waits until a thread that was seized and interrupted, or has just been made by a traced one,
    /// stands still. `None` if it is gone, or does not stop within `limit`: then it is still traced.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn wait(tid: i32, limit: Duration) -> Result<Arrival> {
        loop {
            let change = wait::next(tid, limit)
                .map_err(|errno| Error::trace(tid, "waiting for a stop", errno))?;
            match change {
                None => return Ok(Arrival::Late),
                Some(Change::Gone) => return Ok(Arrival::Gone),
                Some(Change::Stop(group_stop)) => {
                    return Ok(Arrival::Stopped(Self { tid, group_stop }));
                }
                // Its own signal comes first: it gets it, and the stop is still to come.
                Some(Change::Signal(signal)) => ignore_gone(ptrace::resume(tid, signal))
                    .map_err(|errno| Error::trace(tid, "passing a signal on", errno))?,
                Some(Change::Event(_)) => ignore_gone(ptrace::resume(tid, 0))
                    .map_err(|errno| Error::trace(tid, "passing an event on", errno))?,
            }
        }
    }

    /// The thread, as the tracer sees it.
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// The signal by which its process is stopped, 0 if it is not.
    pub fn group_stop(&self) -> i32 {
        self.group_stop
    }

    /// The general registers.
    ///
    /// # Errors
    /// The thread is gone, or a 32-bit one.
    pub fn registers(&self) -> Result<Registers> {
        self.asked("reading registers", ptrace::registers(self.tid))
    }

    /// Sets the general registers.
    ///
    /// # Errors
    /// The thread is gone, or a value is not allowed.
    pub fn set_registers(&self, registers: &Registers) -> Result<()> {
        self.asked(
            "setting registers",
            ptrace::set_registers(self.tid, registers),
        )
    }

    /// Names what a request was about, in its error.
    ///
    /// # Errors
    /// That of the answer.
    pub fn asked<T>(&self, what: &'static str, answer: ptrace::Answer<T>) -> Result<T> {
        answer.map_err(|errno| Error::trace(self.tid, what, errno))
    }

    /// Lets it run until it breaks or steps into the trap that the injected code ends with. Events of
    /// clones on the way are told to `event`; a stop signal for its process is sent again, when the
    /// thread is back where it was, by the process being stopped already.
    ///
    /// # Errors
    /// The thread is gone, or does anything else.
    pub fn run(&self, how: Run, mut event: impl FnMut(u64)) -> Result<()> {
        let go = || match how {
            Run::ToBreakpoint => ptrace::resume(self.tid, 0),
            Run::OneStep => ptrace::step(self.tid),
        };
        self.asked("running injected code", go())?;
        loop {
            let change = wait::next(self.tid, PATIENCE);
            match self.asked("waiting for injected code", change)? {
                None => {
                    return Err(self.astray("it does not come back".to_owned()));
                }
                Some(Change::Gone) => return Err(Error::Gone(self.tid)),
                Some(Change::Signal(libc::SIGTRAP)) => return Ok(()),
                Some(Change::Signal(signal))
                    if matches!(
                        signal,
                        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGSYS
                    ) =>
                {
                    return Err(self.astray(format!("signal {signal}")));
                }
                // Only a stop signal cannot be blocked. It takes effect when the thread is let go.
                Some(Change::Signal(signal)) => {
                    self.asked("continuing injected code", ptrace::resume(self.tid, signal))?;
                }
                Some(Change::Stop(_)) => self.asked("continuing injected code", go())?,
                Some(Change::Event(_)) => {
                    let message = ptrace::event_message(self.tid);
                    event(self.asked("asking for an event", message)?);
                    self.asked("continuing injected code", go())?;
                }
            }
        }
    }

    fn astray(&self, what: String) -> Error {
        Error::Astray {
            tid: self.tid,
            what,
        }
    }

    /// Lets it go, with the registers that it has. A thread that is gone has gone already.
    ///
    /// # Errors
    /// What else the kernel answers.
    pub fn detach(self) -> Result<()> {
        ignore_gone(ptrace::detach(self.tid, 0))
            .map_err(|errno| Error::trace(self.tid, "letting go", errno))
    }
}

/// How a thread is let run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Until a breakpoint.
    ToBreakpoint,
    /// One instruction.
    OneStep,
}

/// What became of waiting for a stop.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It stands still.
    Stopped(Stopped),
    /// It is gone.
    Gone,
    /// It runs on, or sleeps where it cannot be stopped.
    Late,
}

fn ignore_gone(answer: ptrace::Answer<()>) -> ptrace::Answer<()> {
    match answer {
        Err(Errno::ESRCH) => Ok(()),
        answer => answer,
    }
}
