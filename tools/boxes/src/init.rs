//! The first process of a box: this program, executed anew.
//!
//! It makes the inside of the box, then does three things until the daemon's end of the socket closes: carries out
//! orders, reaps whatever ends, and says when a session's process has. It has one thread and opens no file after
//! the set-up, so that neither a stuck view nor a frozen box can hold it up.

mod child;
mod inside;
mod users;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use self::child::Refused;
pub use self::child::SEED_FD;
use crate::sys;
use crate::wire::{self, Order, Setup, Stdio, Word};

/// The name under which process lists show it.
const NAME: &std::ffi::CStr = c"branchpoint-box";

/// Runs a box's init on descriptor 3. To be called first thing by the program that
/// [`Launcher`](crate::instance::Launcher) names; returns the exit status.
pub fn main() -> i32 {
    let control = UnixStream::from(sys::clone::own_fd(sys::clone::CONTROL_FD));
    match run(&control) {
        Ok(()) => 0,
        Err(reason) => {
            // The standard error of init is the daemon's log.
            eprintln!("box-init: {reason}");
            1
        }
    }
}

/// A box's init at work.
struct Init<'a> {
    control: &'a UnixStream,
    /// The cgroup in which processes are born.
    tree: OwnedFd,
    filters: [seccompiler::BpfProgram; 2],
    /// The sessions' processes.
    sessions: HashMap<i32, u32>,
}

fn run(control: &UnixStream) -> io::Result<()> {
    let _ = prctl::set_name(NAME);
    nix::fcntl::fcntl(
        control,
        nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC),
    )?;
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    // Everything was blocked while this program started.
    nix::sys::signal::pthread_sigmask(
        nix::sys::signal::SigmaskHow::SIG_SETMASK,
        Some(&mask),
        None,
    )?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let Some((order, fds)) = wire::receive(control)? else {
        return Ok(());
    };
    let (tree, filters) = match set_up(order, fds) {
        Ok(made) => {
            wire::send(control, &Word::Done, &[])?;
            made
        }
        Err((step, reason)) => {
            let errno = reason.raw_os_error().unwrap_or(libc::EINVAL);
            return wire::send(control, &Word::Failed { step, errno }, &[]);
        }
    };
    let init = Init {
        control,
        tree,
        filters,
        sessions: HashMap::new(),
    };
    init.serve(&signals)
}

type SetUp = (OwnedFd, [seccompiler::BpfProgram; 2]);

fn set_up(order: Order, fds: Vec<OwnedFd>) -> Result<SetUp, (String, io::Error)> {
    let Order::SetUp(Setup { hostname }) = order else {
        let reason = io::Error::from_raw_os_error(libc::EPROTO);
        return Err(("begin with the set-up".to_owned(), reason));
    };
    let Ok([root, tree]) = <[OwnedFd; 2]>::try_from(fds) else {
        let reason = io::Error::from_raw_os_error(libc::EBADF);
        return Err(("find the descriptors of the set-up".to_owned(), reason));
    };
    inside::make(root, &hostname)?;
    let filters = crate::confine::filters().map_err(|reason| {
        (
            "make the system call filter".to_owned(),
            io::Error::other(reason),
        )
    })?;
    Ok((tree, filters))
}

impl Init<'_> {
    fn serve(mut self, signals: &SignalFd) -> io::Result<()> {
        loop {
            let mut watched = [
                PollFd::new(self.control.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut watched, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let has = |at: usize| watched.get(at).and_then(PollFd::any).unwrap_or(false);
            let (ordered, ended) = (has(0), has(1));
            if ended {
                while signals.read_signal()?.is_some() {}
                self.reap()?;
            }
            if ordered {
                let Some((order, fds)) = wire::receive(self.control)? else {
                    // The daemon is gone, and so is the box.
                    return Ok(());
                };
                self.obey(order, fds)?;
            }
        }
    }

    /// Takes away the corpses of all that ended, and tells of those that were sessions' processes.
    fn reap(&mut self) -> io::Result<()> {
        loop {
            let (pid, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, u8::try_from(code).unwrap_or(255)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    let signal = u8::try_from(signal as i32).unwrap_or(0);
                    (pid, 128u8.saturating_add(signal))
                }
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
                // A real-time signal, which the library cannot name, ends here too.
                Ok(_) | Err(Errno::EINTR | Errno::EINVAL) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if let Some(session) = self.sessions.remove(&pid.as_raw()) {
                wire::send(self.control, &Word::Exited { session, status }, &[])?;
            }
        }
    }

    fn obey(&mut self, order: Order, fds: Vec<OwnedFd>) -> io::Result<()> {
        match order {
            Order::SetUp(_) => self.say(&Word::Failed {
                step: "set up twice".to_owned(),
                errno: libc::EPROTO,
            }),
            Order::Run {
                session,
                command,
                stdio,
            } => {
                let started = match stdio {
                    Stdio::Terminal { rows, columns } => child::on_terminal(rows, columns)
                        .map_err(Refused::from)
                        .and_then(|(master, ends)| {
                            let child = child::start(self, &command, &ends)?;
                            Ok((child, Some(master)))
                        }),
                    Stdio::Pipes { input } => child::on_pipes(fds, input)
                        .map_err(Refused::from)
                        .and_then(|ends| Ok((child::start(self, &command, &ends)?, None))),
                };
                match started {
                    Ok((child, master)) => {
                        self.sessions.insert(child.pid, session);
                        let mut beside = vec![child.pidfd.as_fd()];
                        beside.extend(master.iter().map(OwnedFd::as_fd));
                        self.say_with(&Word::Process { pid: child.pid }, &beside)
                    }
                    Err(Refused::Exec(errno)) => self.say(&Word::NotStarted { errno }),
                    Err(Refused::User) => self.say(&Word::NoSuchUser),
                    Err(Refused::Other(reason)) => self.fail("start a process", &reason),
                }
            }
            Order::Adopt { session, pid } => match sys::pidfd::open(pid) {
                Ok(pidfd) => {
                    self.sessions.insert(pid, session);
                    self.say_with(&Word::Process { pid }, &[pidfd.as_fd()])
                }
                Err(reason) => self.fail("adopt a process", &reason),
            },
            Order::Seed => match child::seed(self, fds) {
                Ok(seed) => self.say_with(&Word::Process { pid: seed.pid }, &[seed.pidfd.as_fd()]),
                Err(reason) => self.fail("make a process", &reason),
            },
            Order::Terminal { number } => match child::terminal(number) {
                Ok(master) => self.say_with(&Word::Terminal, &[master.as_fd()]),
                Err(reason) => self.fail("make a terminal", &reason),
            },
            Order::SignalAll { signal } => {
                let signal = Signal::try_from(signal).ok();
                match kill(Pid::from_raw(-1), signal) {
                    // Nobody is there.
                    Ok(()) | Err(Errno::ESRCH) => self.say(&Word::Done),
                    Err(errno) => self.fail("send a signal", &errno.into()),
                }
            }
        }
    }

    fn say(&self, word: &Word) -> io::Result<()> {
        self.say_with(word, &[])
    }

    fn say_with(&self, word: &Word, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        wire::send(self.control, word, fds)
    }

    fn fail(&self, step: &str, reason: &io::Error) -> io::Result<()> {
        self.say(&Word::Failed {
            step: step.to_owned(),
            errno: reason.raw_os_error().unwrap_or(libc::EIO),
        })
    }
}
