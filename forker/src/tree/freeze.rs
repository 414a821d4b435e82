//! Stops every thread of a tree.
//!
//! A thread that stands still makes no children, and a process whose known threads all stand still
//! makes no threads. So passes over the tree are made until one finds nothing new. The parent of a
//! `vfork` cannot stop before its child has called `exec`; then all is let go and begun again.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::arch::Registers;
use crate::error::{Error, Result};
use crate::proc::stat;
use crate::proc::status::{self, Status};
use crate::remote::{Memory, Saved};
use crate::resource::{restart, rseq};
use crate::sys::ptrace;
use crate::trace::{Arrival, PATIENCE, Stopped};

/// How long we begin again for the sake of a `vfork`.
const LONGEST: Duration = Duration::from_secs(5);
/// How often we begin again because a process may be about to end.
const MOST_DYING: u32 = 20;
/// After this we look why a thread does not stop.
const SOON: Duration = Duration::from_millis(50);

/// A tree of which every thread stands still. Dropping it lets the tree go on.
#[derive(Debug, Default)]
pub struct Frozen {
    /// The threads of the tree's pid 1, which is no part of what is captured.
    init: Vec<Stopped>,
    /// Its processes, parents before their children.
    pub processes: Vec<FrozenProcess>,
}

/// A process that stands still, or a zombie.
#[derive(Debug)]
pub struct FrozenProcess {
    /// As the tracer sees it.
    pub pid: i32,
    /// As the tree sees it.
    pub inside: i32,
    /// What `/proc/PID/status` says of it.
    pub status: Status,
    /// Its threads, the first one first; none if it is a zombie.
    pub threads: Vec<FrozenThread>,
}

/// A thread that stands still.
#[derive(Debug)]
pub struct FrozenThread {
    /// The thread.
    pub stopped: Stopped,
    /// As the tree sees it.
    pub inside: i32,
    /// The state that it is let go with.
    pub saved: Saved,
}

impl FrozenProcess {
    /// Whether it has ended and waits for its parent to notice.
    pub fn is_zombie(&self) -> bool {
        self.threads.is_empty()
    }
}

/// Stops all processes below `init` (the tracer's number of the tree's pid 1), and `init` itself.
///
/// # Errors
/// A thread cannot be traced or stopped; then everything runs on.
pub fn freeze(init: i32) -> Result<Frozen> {
    let begin = Instant::now();
    let mut dying = 0;
    loop {
        let mut attempt = Attempt::default();
        let done = attempt.stop_all(init).and_then(|done| match done {
            Done::Busy(tid) if begin.elapsed() > LONGEST => Err(Error::Unstoppable {
                tid,
                why: "it sleeps where nothing can interrupt it",
            }),
            Done::Busy(_) => Ok(None),
            Done::Dying if dying < MOST_DYING => {
                dying += 1;
                Ok(None)
            }
            Done::All | Done::Dying => attempt.settle(init).map(Some),
        });
        match done {
            Ok(Some(frozen)) => return Ok(frozen),
            Ok(None) => attempt.let_go(),
            // It was about to die while it was being stopped.
            Err(Error::Gone(_)) if begin.elapsed() < LONGEST => attempt.let_go(),
            Err(error) => {
                attempt.let_go();
                return Err(error);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

enum Done {
    All,
    /// A process has lost its first thread: it is about to end, or goes on without.
    Dying,
    /// This thread does not stop.
    Busy(i32),
}

#[derive(Debug)]
enum State {
    Asked,
    Stopped(Stopped),
    Gone,
}

/// One attempt to stop a tree.
#[derive(Debug, Default)]
struct Attempt {
    /// Threads by process; `Gone` ones are zombies or have vanished.
    processes: BTreeMap<i32, BTreeMap<i32, State>>,
    /// Processes in the order in which they were found: parents first.
    order: Vec<i32>,
}

impl Attempt {
    fn stop_all(&mut self, init: i32) -> Result<Done> {
        loop {
            let mut new = false;
            let mut queue = vec![init];
            self.order.clear();
            while let Some(pid) = queue.pop() {
                self.order.push(pid);
                new |= self.ask_threads(pid)?;
                if let Some(tid) = self.await_threads(pid)? {
                    return Ok(Done::Busy(tid));
                }
                queue.extend(children(pid));
            }
            if !new {
                return Ok(if self.is_dying() {
                    Done::Dying
                } else {
                    Done::All
                });
            }
        }
    }

    fn is_dying(&self) -> bool {
        self.processes.iter().any(|(pid, threads)| {
            let stopped = |state: &State| matches!(state, State::Stopped(_));
            threads.values().any(stopped) && !threads.get(pid).is_some_and(stopped)
        })
    }

    fn ask_threads(&mut self, pid: i32) -> Result<bool> {
        let known = self.processes.entry(pid).or_default();
        let mut new = false;
        // Until a pass finds none: threads that still ran may have made others.
        for tid in tids(pid) {
            if known.contains_key(&tid) {
                continue;
            }
            new = true;
            let state = match ptrace::seize(tid, ptrace::SUSPEND_SECCOMP) {
                Ok(()) => {
                    // A thread that is gone tells so when it is waited for.
                    let _ = ptrace::interrupt(tid);
                    State::Asked
                }
                Err(Errno::ESRCH) => State::Gone,
                Err(Errno::EPERM) if is_dead(tid) => State::Gone,
                Err(Errno::EPERM) if tracer_of(tid) != 0 => {
                    return Err(Error::Unstoppable {
                        tid,
                        why: "another process traces it; end the debugger first",
                    });
                }
                Err(error) => return Err(Error::trace(tid, "seizing", error)),
            };
            known.insert(tid, state);
        }
        Ok(new)
    }

    /// Waits for the threads that were asked; names one that does not stop.
    fn await_threads(&mut self, pid: i32) -> Result<Option<i32>> {
        let known = self.processes.entry(pid).or_default();
        for (&tid, state) in known
            .iter_mut()
            .filter(|(_, state)| matches!(state, State::Asked))
        {
            let begin = Instant::now();
            *state = loop {
                match Stopped::wait(tid, SOON)? {
                    Arrival::Stopped(stopped) => break State::Stopped(stopped),
                    Arrival::Gone => break State::Gone,
                    // The end of a first thread is told when all others are gone.
                    Arrival::Late if is_dead(tid) => break State::Gone,
                    // Where it sleeps so, it may be waiting for somebody whom we have stopped.
                    Arrival::Late if state_letter(tid) == Some(b'D') => return Ok(Some(tid)),
                    Arrival::Late if begin.elapsed() < PATIENCE => {}
                    Arrival::Late => {
                        return Err(Error::Unstoppable {
                            tid,
                            why: "it does not react",
                        });
                    }
                }
            };
        }
        Ok(None)
    }

    /// Turns what was stopped into a frozen tree.
    fn settle(&mut self, init: i32) -> Result<Frozen> {
        let mut frozen = Frozen::default();
        let order = std::mem::take(&mut self.order);
        for pid in order {
            let states = self.processes.remove(&pid).unwrap_or_default();
            let mut stopped: Vec<Stopped> = states
                .into_values()
                .filter_map(|state| match state {
                    State::Stopped(stopped) => Some(stopped),
                    State::Asked | State::Gone => None,
                })
                .collect();
            if pid == init {
                frozen.init = stopped;
                continue;
            }
            // The first thread bears the process' number.
            stopped.sort_by_key(|thread| (thread.tid() != pid, thread.tid()));
            frozen.add(pid, stopped)?;
        }
        Ok(frozen)
    }

    fn let_go(&mut self) {
        let mut late = Vec::new();
        for (tid, state) in std::mem::take(&mut self.processes).into_values().flatten() {
            match state {
                // Nothing of it was changed yet.
                State::Stopped(stopped) => drop(stopped.detach()),
                State::Asked => late.push(tid),
                State::Gone => {}
            }
        }
        for tid in late {
            // Now that its child runs, it stops.
            if let Ok(Arrival::Stopped(stopped)) = Stopped::wait(tid, PATIENCE) {
                drop(stopped.detach());
            }
        }
    }
}

impl Frozen {
    fn add(&mut self, pid: i32, stopped: Vec<Stopped>) -> Result<()> {
        let text = match fs::read(format!("/proc/{pid}/status")) {
            Ok(text) => text,
            // It died and was reaped before we came.
            Err(_) if stopped.is_empty() => return Ok(()),
            Err(error) => {
                stopped.into_iter().for_each(|thread| drop(thread.detach()));
                return Err(Error::io(
                    format!("reading the status of process {pid}"),
                    error,
                ));
            }
        };
        let status = status::parse(&text)?;
        let inside = status.nstgid.last().copied().unwrap_or(pid);
        let mut process = FrozenProcess {
            pid,
            inside,
            status,
            threads: Vec::new(),
        };
        let mut failed = None;
        for thread in stopped {
            if failed.is_some() {
                drop(thread.detach());
                continue;
            }
            match FrozenThread::new(thread) {
                Ok(Some(thread)) => process.threads.push(thread),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        self.processes.push(process);
        failed.map_or(Ok(()), Err)
    }

    /// Lets the tree go on from where it was.
    ///
    /// # Errors
    /// A thread could not be put back as it was; all others were.
    pub fn thaw(mut self) -> Result<()> {
        self.let_go()
    }

    fn let_go(&mut self) -> Result<()> {
        let mut result = Ok(());
        for process in std::mem::take(&mut self.processes) {
            for thread in process.threads {
                match thread.let_go() {
                    // Killed while it stood still.
                    Ok(()) | Err(Error::Gone(_)) => {}
                    Err(error) => result = Err(error),
                }
            }
        }
        for thread in std::mem::take(&mut self.init) {
            match thread.detach() {
                Ok(()) | Err(Error::Gone(_)) => {}
                Err(error) => result = Err(error),
            }
        }
        result
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // An error was the reason to come here, or nobody is left who asks.
        drop(self.let_go());
    }
}

impl FrozenThread {
    /// `None` if it has died meanwhile.
    fn new(stopped: Stopped) -> Result<Option<Self>> {
        let prepare = || -> Result<(i32, Saved)> {
            let tid = stopped.tid();
            let inside = inner_tid(tid)?;
            let mut saved = Saved::take(&stopped)?;
            let memory = Memory::open(tid)?;
            rseq::leave_sequence(&stopped, &memory, &mut saved.registers)?;
            restart::settle(&mut saved.registers);
            Ok((inside, saved))
        };
        match prepare() {
            Ok((inside, saved)) => Ok(Some(Self {
                stopped,
                inside,
                saved,
            })),
            Err(_) if is_dead(stopped.tid()) => Ok(None),
            Err(error) => {
                drop(stopped.detach());
                Err(error)
            }
        }
    }

    /// The registers that it goes on with.
    pub fn registers(&self) -> &Registers {
        &self.saved.registers
    }

    fn let_go(self) -> Result<()> {
        self.saved.put_back(&self.stopped)?;
        self.stopped.detach()
    }
}

fn tids(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn children(pid: i32) -> Vec<i32> {
    let of_thread = |tid| fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
    let mut found = Vec::new();
    for text in tids(pid).into_iter().filter_map(|tid| of_thread(tid).ok()) {
        found.extend(
            text.split_ascii_whitespace()
                .filter_map(|word| word.parse::<i32>().ok()),
        );
    }
    // The last one is taken first: in the order in which they were made.
    found.reverse();
    found
}

fn inner_tid(tid: i32) -> Result<i32> {
    let text = fs::read(format!("/proc/{tid}/status"))
        .map_err(|error| Error::io(format!("reading the status of thread {tid}"), error))?;
    Ok(status::parse(&text)?.nspid.last().copied().unwrap_or(tid))
}

fn state_letter(tid: i32) -> Option<u8> {
    let text = fs::read(format!("/proc/{tid}/stat")).ok()?;
    stat::parse(&text).ok().map(|stat| stat.state)
}

fn is_dead(tid: i32) -> bool {
    matches!(state_letter(tid), None | Some(b'Z' | b'X'))
}

fn tracer_of(tid: i32) -> i32 {
    let text = fs::read(format!("/proc/{tid}/status")).unwrap_or_default();
    status::parse(&text).map_or(0, |status| status.tracer)
}
