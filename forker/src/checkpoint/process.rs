//! Captures one process.

use std::fs;

use crate::error::{Error, Result};
use crate::memory::calls::Calls;
use crate::memory::scan;
use crate::memory::space::AddressSpace;
use crate::proc::stat;
use crate::remote::{Door, Memory, Region, find_syscall};
use crate::report::Report;
use crate::resource::settings::Settings;
use crate::resource::signals::Actions;
use crate::resource::thread::Thread;
use crate::resource::timers::Timers;
use crate::sys::ptrace;
use crate::sys::task::{self, Shareable};
use crate::tree::model::{Alive, Life, Process};
use crate::tree::order::Relation;
use crate::tree::{Frozen, FrozenProcess};

/// Room for the calls of one process at once, and for their data.
const CALLS: usize = 200;
const DATA: usize = 12 << 10;

/// What was captured.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) process: Process,
    /// Its memory; zombies have none.
    pub(super) space: Option<AddressSpace>,
}

/// Looks for what cannot be kept, before any process is asked to do anything.
pub(super) fn check(frozen: &Frozen, report: &mut Report) -> Result<()> {
    for process in &frozen.processes {
        let inside = process.inside;
        let (_, ignored, _) = process.status.blocked_ignored_caught;
        let Some(first) = process.threads.first() else {
            continue;
        };
        if first.stopped.tid() != process.pid {
            report.refuse(
                inside,
                "first thread",
                "it has ended while other threads live",
                "let the first thread wait for the others",
            );
        }
        if ignored & (1 << (libc::SIGTRAP - 1)) != 0 {
            report.refuse(
                inside,
                "SIGTRAP",
                "it is ignored",
                "leave that signal alone",
            );
        }
        if process.status.nspid.len() != depth(frozen) {
            report.refuse(
                inside,
                "pid namespace",
                "it has one of its own",
                "start it without a nested pid namespace",
            );
        }
        let parent = frozen
            .processes
            .iter()
            .find(|other| other.pid == process.status.ppid);
        let shares = parent.filter(|parent| !parent.is_zombie()).map(|parent| {
            task::shares(parent.pid, process.pid, Shareable::Memory)
                .map_err(|errno| Error::trace(process.pid, "comparing memory", errno))
        });
        if shares.transpose()?.unwrap_or(false) {
            report.refuse(
                inside,
                "address space",
                "it shares one with its parent",
                "take the checkpoint when the child has called exec",
            );
        }
    }
    Ok(())
}

/// In how many pid namespaces the tree's processes have a number.
fn depth(frozen: &Frozen) -> usize {
    frozen
        .processes
        .iter()
        .map(|process| process.status.nspid.len())
        .min()
        .unwrap_or(0)
}

/// Whether it is a zombie that only pid 1 has to notice: that is as good as gone.
pub(super) fn is_nobodys(process: &FrozenProcess, frozen: &Frozen) -> bool {
    let has_parent = frozen
        .processes
        .iter()
        .any(|other| other.pid == process.status.ppid);
    process.is_zombie() && !has_parent
}

/// Captures one process; it ends as it began.
pub(super) fn capture(
    process: &FrozenProcess,
    frozen: &Frozen,
    report: &mut Report,
) -> Result<Captured> {
    let relation = relation(process, frozen);
    let Some(first) = process.threads.first() else {
        let life = Life::Zombie(exit_status(process.pid)?);
        return Ok(Captured {
            process: Process { relation, life },
            space: None,
        });
    };
    let memory = Memory::open(process.pid)?;
    let syscall = find_syscall(process.pid, &memory)?;
    let door = Door::new(&first.stopped, &memory, syscall);
    let region = Region::new(0, CALLS, DATA).map(&door)?;
    let captured = inside(process, &memory, &region, report);
    region.unmap(&door)?;
    let (alive, space) = captured?;
    let life = Life::Alive(Box::new(alive));
    Ok(Captured {
        process: Process { relation, life },
        space: Some(space),
    })
}

fn inside(
    process: &FrozenProcess,
    memory: &Memory,
    region: &Region,
    report: &mut Report,
) -> Result<(Alive, AddressSpace)> {
    let pid = process.pid;
    let first = process.threads.first().ok_or(Error::Gone(pid))?;
    let listed = fs::read_to_string(format!("/proc/{pid}/timers")).unwrap_or_default();
    let mut calls = Calls::new(region.data());
    let actions = Actions::ask(&mut calls);
    let timers = Timers::ask(&mut calls, &listed);
    let settings = Settings::ask(&mut calls);
    let results = region.run(&first.stopped, memory, &calls)?;
    let actions = Actions::read(memory, actions)?;
    let timers = Timers::read(memory, timers, |tid| {
        let found = process
            .threads
            .iter()
            .find(|thread| thread.stopped.tid() == tid);
        found.map(|thread| thread.inside)
    })?;
    let settings = Settings::read(pid, process.status.umask, memory, &settings, &results)?;
    let pending = first
        .stopped
        .asked("reading signals", ptrace::pending(pid, true))?;

    let mut threads = Vec::with_capacity(process.threads.len());
    for thread in &process.threads {
        let thread = Thread::capture(thread, memory, region)?;
        note_thread(&thread, process.inside, report);
        threads.push(thread);
    }
    for (what, path) in [
        ("working directory", &settings.directory),
        ("root", &settings.root),
    ] {
        if path.ends_with(b" (deleted)") {
            report.refuse(
                process.inside,
                what,
                "it is deleted",
                "let the program change to another",
            );
        }
    }
    let (mut space, lines) = scan::scan(pid, process.inside, &[region.range()])
        .map_err(|error| Error::io(format!("reading the memory map of process {pid}"), error))?;
    report.append(lines);
    space.mm.brk.end = settings.heap_end.max(space.mm.brk.start);
    let stopped = first.stopped.group_stop();
    Ok((
        Alive {
            threads,
            actions,
            pending,
            timers,
            settings,
            stopped,
        },
        space,
    ))
}

fn note_thread(thread: &Thread, pid: i32, report: &mut Report) {
    if thread.is_strict() {
        report.refuse(
            pid,
            "seccomp",
            "strict mode cannot be made again",
            "use a filter instead",
        );
    }
    if let Some(call) = thread.begins_anew() {
        report.degrade(
            pid,
            format!("thread {}: {call} with a time limit", thread.tid),
            "the time limit begins anew when it is restored",
        );
    }
}

/// The numbers inside. What lies outside of the tree's namespace has none and is 0.
fn relation(process: &FrozenProcess, frozen: &Frozen) -> Relation {
    let inner = |numbers: &[i32]| numbers.last().copied().unwrap_or(0);
    let parent = frozen
        .processes
        .iter()
        .find(|other| other.pid == process.status.ppid);
    Relation {
        pid: process.inside,
        // Every process has one inside: if it is none of these, it is pid 1.
        parent: parent.map_or(1, |parent| parent.inside),
        group: inner(&process.status.nspgid),
        session: inner(&process.status.nssid),
    }
}

fn exit_status(pid: i32) -> Result<i32> {
    let text = fs::read(format!("/proc/{pid}/stat"))
        .map_err(|error| Error::io(format!("reading the end of process {pid}"), error))?;
    Ok(stat::parse(&text)?.exit_code)
}
