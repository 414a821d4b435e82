//! Processes and threads that are being made: stopped, with the runner mapped.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::memory::calls::{Argument, Calls, Expect};
use crate::remote::{Memory, Region};
use crate::sys::wait::{self, Change};
use crate::sys::{ptrace, task};
use crate::trace::{Arrival, PATIENCE, Stopped};

/// `PTRACE_O_*`: children are traced from their first instruction on, all die with the tracer, and
/// their filters sleep.
pub(super) const OPTIONS: i32 = libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_EXITKILL
    | ptrace::SUSPEND_SECCOMP;

/// Flags by which a thread is made.
const THREAD: i32 = libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM;

/// How long the dying may take.
const DEATH: Duration = Duration::from_secs(60);

/// How long a number may be taken by what is gone already.
const FREEING: Duration = Duration::from_secs(2);

/// A process that is being made.
#[derive(Debug)]
pub(super) struct Made {
    /// Its number as the tracer sees it.
    pub(super) pid: i32,
    /// Its threads, the first one first.
    pub(super) threads: Vec<Stopped>,
    pub(super) memory: Memory,
}

/// How a process is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As {
    Child,
    Sibling,
}

impl Made {
    /// Takes a process that stands still.
    pub(super) fn new(first: Stopped) -> Result<Self> {
        let memory = Memory::open(first.tid())?;
        Ok(Self {
            pid: first.tid(),
            threads: vec![first],
            memory,
        })
    }

    /// Its first thread.
    pub(super) fn first(&self) -> Result<&Stopped> {
        self.threads.first().ok_or(Error::Gone(self.pid))
    }

    /// Lets its first thread make calls.
    pub(super) fn run(&self, region: &Region, calls: &Calls) -> Result<Vec<u64>> {
        region.run(self.first()?, &self.memory, calls)
    }

    /// Makes another process with the number `inside`.
    pub(super) fn make(&self, region: &Region, inside: i32, how: As) -> Result<Self> {
        let mut calls = Calls::new(region.data());
        match how {
            As::Child => add_clone(&mut calls, 0, libc::SIGCHLD, inside),
            // It has the same signal for its parent as its maker.
            As::Sibling => add_clone(&mut calls, libc::CLONE_PARENT, 0, inside),
        }
        let begin = Instant::now();
        let made = loop {
            match self.run_clones(region, &calls) {
                // The kernel frees a number a moment after the process is gone from /proc.
                Err(Error::Inside {
                    source: Errno::EEXIST,
                    ..
                }) if begin.elapsed() < FREEING => std::thread::sleep(Duration::from_micros(200)),
                made => break made?,
            }
        };
        match <[Stopped; 1]>::try_from(made) {
            Ok([child]) => Self::new(child),
            Err(_) => Err(Error::Gone(inside)),
        }
    }

    /// Makes threads with these numbers.
    pub(super) fn make_threads(&mut self, region: &Region, inside: &[i32]) -> Result<()> {
        if inside.is_empty() {
            return Ok(());
        }
        for some in inside.chunks(16) {
            let mut calls = Calls::new(region.data());
            for tid in some {
                add_clone(&mut calls, THREAD, 0, *tid);
            }
            let made = self.run_clones(region, &calls)?;
            self.threads.extend(made);
        }
        Ok(())
    }

    fn run_clones(&self, region: &Region, calls: &Calls) -> Result<Vec<Stopped>> {
        let mut events = Vec::new();
        let result = region.run_with(self.first()?, &self.memory, calls, |event| {
            events.push(event);
        });
        let mut made = Vec::new();
        for event in events {
            let tid = i32::try_from(event).unwrap_or(0);
            match Stopped::wait(tid, PATIENCE)? {
                Arrival::Stopped(stopped) => made.push(stopped),
                Arrival::Gone | Arrival::Late => return Err(Error::Gone(tid)),
            }
        }
        result.map(|_| made)
    }

    /// Ends it with a status as `waitpid` gives it, and leaves it to its parent.
    pub(super) fn end(self, region: &Region, status: i32) -> Result<()> {
        let (pid, signal) = (self.pid, status & 0x7f);
        let first = self.first()?;
        if signal == 0 {
            let mut calls = Calls::new(region.data());
            let code = u64::from((status >> 8 & 0xff).unsigned_abs());
            calls.add("end", libc::SYS_exit_group, [code.into()], Expect::Anything);
            return match region.run(first, &self.memory, &calls) {
                Err(Error::Gone(_)) => Ok(()),
                Err(error) => Err(error),
                Ok(_) => Err(Error::Astray {
                    tid: pid,
                    what: "it does not end".to_owned(),
                }),
            };
        }
        let number = i64::from(signal).cast_unsigned();
        if !matches!(signal, libc::SIGKILL | libc::SIGSTOP) {
            let mut calls = Calls::new(region.data());
            let action = calls.place(&[0; 32]);
            let arguments = [number.into(), action.into(), 0_u64.into(), 8_u64.into()];
            calls.add(
                "take a default action",
                libc::SYS_rt_sigaction,
                arguments,
                Expect::Success,
            );
            region.run(first, &self.memory, &calls)?;
        }
        let failed = |errno| Error::trace(pid, "ending a process by a signal", errno);
        task::set_limit(pid, libc::RLIMIT_CORE, 0, 0).map_err(failed)?;
        ptrace::set_signal_mask(pid, 0).map_err(failed)?;
        task::signal_thread(pid, pid, signal).map_err(failed)?;
        // It fails if the signal has begun to end the process already. That has to be waited for all the same: its
        // parent runs only when there is a zombie to find.
        let _ = ptrace::resume(pid, 0);
        loop {
            match wait::next(pid, DEATH).map_err(failed)? {
                Some(Change::Gone) => return Ok(()),
                Some(Change::Signal(signal)) => drop(ptrace::resume(pid, signal)),
                Some(_) => drop(ptrace::resume(pid, 0)),
                None => {
                    return Err(Error::Astray {
                        tid: pid,
                        what: "it does not end".to_owned(),
                    });
                }
            }
        }
    }

    /// Kills it.
    pub(super) fn kill(&self) {
        let tids: Vec<i32> = self.threads.iter().map(Stopped::tid).collect();
        kill(self.pid, &tids);
    }
}

/// Kills a process that is traced by this thread, and waits for the end of its threads. The first one
/// comes last: the kernel tells its end when all others have been waited for.
pub(super) fn kill(pid: i32, tids: &[i32]) {
    // What is gone needs no killing.
    let _ = task::signal_thread(pid, pid, libc::SIGKILL);
    for &tid in tids.iter().rev() {
        while let Ok(Some(change)) = wait::next(tid, DEATH) {
            if change == Change::Gone {
                break;
            }
            // A stop from before the signal.
            let _ = ptrace::resume(tid, 0);
        }
    }
}

/// Adds a `clone3` that gives the new task the number `inside`.
fn add_clone(calls: &mut Calls, flags: i32, signal: i32, inside: i32) {
    let number = calls.place(&inside.to_ne_bytes());
    let flags = u64::from(flags.unsigned_abs());
    let signal = u64::from(signal.unsigned_abs());
    // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup
    let words = [flags, 0, 0, 0, signal, 0, 0, 0, number, 1, 0];
    let place = calls.place(&crate::resource::bytes(&words));
    let size = (words.len() * 8) as u64;
    let arguments = [Argument::Value(place), Argument::Value(size)];
    calls.add(
        "make a process or thread",
        libc::SYS_clone3,
        arguments,
        Expect::Success,
    );
}
