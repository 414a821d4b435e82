//! A thread: registers, and what the kernel keeps for it alone.

use std::fs;

use serde::{Deserialize, Serialize};

use super::credentials::Credentials;
use super::{may, must, restart, signals, signed, words};
use crate::arch::Registers;
use crate::error::{Error, Result};
use crate::memory::calls::Calls;
use crate::proc::status;
use crate::remote::{Memory, Region};
use crate::sys::ptrace::{self, Rseq};
use crate::sys::task::{self, Scheduling};
use crate::trace::Stopped;
use crate::tree::FrozenThread;

/// Bytes of `stack_t`.
const ALTERNATE_STACK: usize = 24;
/// `SS_ONSTACK`, `SS_DISABLE`.
const ON_STACK: u64 = 1;
/// `PR_GET_TID_ADDRESS`.
const GET_TID_ADDRESS: i32 = 40;
/// Bytes that a name has at most, with its end.
const NAME: usize = 16;

/// A thread of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number inside.
    pub tid: i32,
    registers: Registers,
    /// Floating point and vectors, as `xsave` lays them out.
    extended: Vec<u8>,
    /// Blocked signals.
    mask: u64,
    rseq: Rseq,
    /// Head of the list of robust futexes, and its length.
    robust: (u64, u64),
    /// `stack_t`: address, flags, size.
    alternate_stack: [u64; 3],
    /// What is cleared and woken at its end.
    tid_address: u64,
    name: Vec<u8>,
    scheduling: Scheduling,
    affinity: Vec<u8>,
    io_priority: i32,
    timer_slack: u64,
    death_signal: u64,
    credentials: Credentials,
    /// Signals pending for it alone.
    pending: Vec<Vec<u8>>,
}

impl Thread {
    /// Captures a thread of a frozen tree, with the help of the runner in its process.
    pub(crate) fn capture(thread: &FrozenThread, memory: &Memory, region: &Region) -> Result<Self> {
        let tid = thread.stopped.tid();
        let failed = |errno| Error::trace(tid, "asking about a thread", errno);
        let text = fs::read(format!("/proc/{tid}/status"))
            .map_err(|error| Error::io(format!("reading the status of thread {tid}"), error))?;
        let status = status::parse(&text)?;
        let filters = filters(&thread.stopped, status.seccomp_filters)?;
        let extended = thread
            .stopped
            .asked("reading vectors", ptrace::extended_state(tid))?;
        let pending = thread
            .stopped
            .asked("reading signals", ptrace::pending(tid, false))?;
        let rseq = thread.stopped.asked("asking for rseq", ptrace::rseq(tid))?;

        let mut calls = Calls::new(region.data());
        let prctl = |calls: &mut Calls, option: i32, argument: u64| {
            may(
                calls,
                "tell its settings",
                libc::SYS_prctl,
                [signed(option), argument, 0, 0, 0],
            )
        };
        let secure_bits = Credentials::ask(&mut calls);
        let slack = prctl(&mut calls, libc::PR_GET_TIMERSLACK, 0);
        let answers = calls.place(&[0; 24 + ALTERNATE_STACK]);
        prctl(&mut calls, GET_TID_ADDRESS, answers);
        prctl(&mut calls, libc::PR_GET_PDEATHSIG, answers + 8);
        must(
            &mut calls,
            "tell its alternate stack",
            libc::SYS_sigaltstack,
            [0, answers + 24],
        );
        let results = region.run(&thread.stopped, memory, &calls)?;
        let mut raw = [0; 24 + ALTERNATE_STACK];
        memory.read(answers, &mut raw)?;
        let answers = words(&raw);
        // A thread that runs on its alternate stack, as the injected call did not.
        let mut alternate_stack = [answers[3], answers[4] & 0xffff_ffff, answers[5]];
        alternate_stack[1] &= !ON_STACK;

        Ok(Self {
            tid: thread.inside,
            registers: *thread.registers(),
            extended,
            mask: thread.saved.mask,
            rseq,
            robust: task::robust_list(tid).map_err(failed)?,
            alternate_stack,
            tid_address: answers[0],
            name: name(tid)?,
            scheduling: task::scheduling(tid).map_err(failed)?,
            affinity: task::affinity(tid).map_err(failed)?,
            io_priority: task::io_priority(tid).map_err(failed)?,
            timer_slack: results.get(slack).copied().unwrap_or(0),
            death_signal: answers[1] & 0xffff_ffff,
            credentials: Credentials::read(
                &status,
                results.get(secure_bits).copied().unwrap_or(0),
                filters,
            ),
            pending,
        })
    }

    /// The call that it was interrupted in, if its time limit begins anew when it is restored.
    pub(crate) fn begins_anew(&self) -> Option<&'static str> {
        restart::begins_anew(&self.registers)
    }

    /// Whether it is confined in a way that cannot be made again.
    pub(crate) fn is_strict(&self) -> bool {
        self.credentials.is_strict()
    }

    /// Lets the thread become this one: everything that it must do itself. `pid` is its process inside.
    pub(crate) fn tell(&self, calls: &mut Calls, pid: i32) {
        let mut name = self.name.clone();
        name.resize(NAME, 0);
        let name = calls.place(&name);
        let prctl = |calls: &mut Calls, option: i32, argument: u64| {
            must(
                calls,
                "take its settings",
                libc::SYS_prctl,
                [signed(option), argument, 0, 0, 0],
            );
        };
        prctl(calls, libc::PR_SET_NAME, name);
        prctl(calls, libc::PR_SET_TIMERSLACK, self.timer_slack);
        let stack = calls.place(&super::bytes(&self.alternate_stack));
        must(
            calls,
            "take its alternate stack",
            libc::SYS_sigaltstack,
            [stack, 0],
        );
        let (head, length) = self.robust;
        if head != 0 {
            must(
                calls,
                "take its robust futexes",
                libc::SYS_set_robust_list,
                [head, length],
            );
        }
        must(
            calls,
            "take its address for the end",
            libc::SYS_set_tid_address,
            [self.tid_address],
        );
        if self.rseq.address != 0 {
            let Rseq {
                address,
                length,
                signature,
            } = self.rseq;
            let arguments = [address, length.into(), 0, signature.into()];
            must(
                calls,
                "take its restartable sequences",
                libc::SYS_rseq,
                arguments,
            );
        }
        self.credentials.tell(calls);
        if self.death_signal != 0 {
            prctl(calls, libc::PR_SET_PDEATHSIG, self.death_signal);
        }
        signals::tell_pending_thread(calls, pid, self.tid, &self.pending);
    }

    /// Sets from outside what can be. `tid` is what the tracer calls it.
    pub(crate) fn set(&self, tid: i32) -> Result<()> {
        let failed = |errno| Error::trace(tid, "setting up a thread", errno);
        task::set_scheduling(tid, &self.scheduling).map_err(failed)?;
        // The machine may have other processors than the one of the checkpoint.
        let _ = task::set_affinity(tid, &self.affinity);
        let _ = task::set_io_priority(tid, self.io_priority);
        Ok(())
    }

    /// Puts the registers and the mask in their place: the last that happens before the wake-up.
    pub(crate) fn place(&self, thread: &Stopped) -> Result<()> {
        let mut registers = self.registers;
        restart::without_note(&mut registers);
        let extended = ptrace::set_extended_state(thread.tid(), &self.extended);
        thread.asked("setting vectors", extended)?;
        thread.set_registers(&registers)?;
        let unblock = ptrace::set_signal_mask(thread.tid(), self.mask);
        thread.asked("unblocking signals", unblock)
    }
}

fn filters(thread: &Stopped, count: u32) -> Result<Vec<Vec<u8>>> {
    let mut filters = Vec::new();
    while filters.len() < usize::try_from(count).unwrap_or(0) {
        let filter = ptrace::seccomp_filter(thread.tid(), filters.len());
        match thread.asked("reading seccomp filters", filter)? {
            Some(filter) => filters.push(filter),
            None => break,
        }
    }
    Ok(filters)
}

fn name(tid: i32) -> Result<Vec<u8>> {
    let mut name = fs::read(format!("/proc/{tid}/comm"))
        .map_err(|error| Error::io(format!("reading the name of thread {tid}"), error))?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    name.truncate(NAME - 1);
    Ok(name)
}
