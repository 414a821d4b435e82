//! A checkpoint of a process tree.
//!
//! | step | undo |
//! |---|---|
//! | `freeze` | the threads are let go as they were |
//! | `descriptors` | nothing was changed |
//! | `inside`: each process makes a few calls for us | the runner is unmapped |
//! | `instant`: the caller freezes the files | the caller's |
//! | `memory` is copied out, into this process | the copy is dropped |
//! | `thaw` | none: the tree runs |
//! | `store`: the pages are handed to the store | the caller forgets the object |
//!
//! A step that fails leaves the tree running as if nothing had been.

mod process;

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::fault::Faults;
use crate::memory::copy::{self, Content};
use crate::memory::shared::{Pieces, SharedMemory};
use crate::memory::space::ObjectId;
use crate::memory::store::MemoryStore;
use crate::memory::sysv;
use crate::report::Report;
use crate::resource::files::{self, Files, Source};
use crate::snapshot::{Snapshot, Space};
use crate::sys::pidfd;
use crate::tree::{Frozen, freeze, model, order};

/// The steps, for tests that let one fail.
pub const STEPS: [&str; 7] = [
    "freeze",
    "descriptors",
    "inside",
    "instant",
    "memory",
    "thaw",
    "store",
];

/// Whom the forker asks about the place where a tree lives.
pub trait Host: Source + Send {
    /// Called once while the tree stands still: everything that it has written to files must reach the
    /// view, and the view's layer is frozen.
    ///
    /// # Errors
    /// Whatever keeps the files from being captured; the checkpoint then fails.
    fn instant(&mut self, tree: &Frozen) -> std::io::Result<()>;
}

/// What a checkpoint gives.
#[derive(Debug)]
pub struct Taken {
    /// The image, but for the content of memory, which the store has.
    pub snapshot: Snapshot,
    /// How long the tree stood still.
    pub pause: Duration,
    /// Bytes of memory copied out.
    pub memory_bytes: u64,
}

/// Captures the tree below `init`, the tracer's number of its pid 1. The pages go to `store`, which is
/// called from several threads: those of shared memory while the tree stands still, all others after.
///
/// # Errors
/// [`Error::Refused`] with the report if something cannot be kept; whatever else fails. In each case the
/// tree runs on.
pub fn take(
    init: i32,
    host: &mut dyn Host,
    store: &dyn MemoryStore,
    faults: Faults,
) -> Result<Taken> {
    // A thread of its own: if all else fails, its end lets everything go that it traces.
    std::thread::scope(|scope| {
        scope
            .spawn(|| on_this_thread(init, host, store, faults))
            .join()
            .unwrap_or_else(|_| {
                Err(Error::io(
                    "checkpoint",
                    std::io::Error::other("the tracing thread died"),
                ))
            })
    })
}

fn on_this_thread(
    init: i32,
    host: &mut dyn Host,
    store: &dyn MemoryStore,
    faults: Faults,
) -> Result<Taken> {
    let begin = Instant::now();
    let frozen = freeze(init)?;
    faults.reach("freeze")?;
    let still = capture(init, &frozen, host, store, faults)?;
    faults.reach("thaw")?;
    frozen.thaw()?;
    let pause = begin.elapsed();

    faults.reach("store")?;
    let memory_bytes = still.content.bytes();
    let mut snapshot = still.snapshot;
    let kept = still
        .content
        .write_to(store)
        .map_err(|error| Error::io("keeping memory", error))?;
    for (object, runs) in kept {
        if let Some(space) = snapshot
            .spaces
            .iter_mut()
            .find(|space| space.object == object)
        {
            space.runs = runs;
        }
    }
    Ok(Taken {
        snapshot,
        pause,
        memory_bytes,
    })
}

/// What was read while the tree stood still.
struct Still {
    snapshot: Snapshot,
    content: Content,
}

fn capture(
    init: i32,
    frozen: &Frozen,
    host: &mut dyn Host,
    store: &dyn MemoryStore,
    faults: Faults,
) -> Result<Still> {
    let mut report = Report::default();
    process::check(frozen, &mut report)?;
    refused(&report)?;
    let files = descriptors(frozen, host, &mut report)?;
    faults.reach("descriptors")?;

    let (mut processes, mut spaces) = (Vec::new(), Vec::new());
    for process in frozen
        .processes
        .iter()
        .filter(|process| !process::is_nobodys(process, frozen))
    {
        let captured = process::capture(process, frozen, &mut report)?;
        processes.push(captured.process);
        spaces.extend(captured.space.map(|space| Space {
            pid: process.inside,
            object: ObjectId::of_process(process.inside),
            space,
            runs: Vec::new(),
        }));
    }
    faults.reach("inside")?;
    order(&processes, &mut report);
    refused(&report)?;

    host.instant(frozen)
        .map_err(|error| Error::io("freezing the files", error))?;
    faults.reach("instant")?;
    let pid_of = |inside: i32| {
        let found = frozen
            .processes
            .iter()
            .find(|process| process.inside == inside);
        found.map_or(0, |process| process.pid)
    };
    let sources: Vec<copy::Source<'_>> = spaces
        .iter()
        .map(|space| copy::Source {
            pid: pid_of(space.pid),
            object: space.object,
            space: &space.space,
        })
        .collect();
    let content = copy::copy_out(&sources).map_err(|error| Error::io("copying memory", error))?;
    let shared = shared_memory(&sources, store)?;
    let segments = segments(init, store)?;
    faults.reach("memory")?;
    let snapshot = Snapshot {
        report,
        processes,
        files,
        spaces,
        shared,
        segments,
    };
    Ok(Still { snapshot, content })
}

fn refused(report: &Report) -> Result<()> {
    report
        .refusal()
        .map_or(Ok(()), |_| Err(Error::Refused(report.clone())))
}

fn descriptors(frozen: &Frozen, host: &dyn Host, report: &mut Report) -> Result<Files> {
    let mut living = Vec::new();
    for process in frozen
        .processes
        .iter()
        .filter(|process| !process.is_zombie())
    {
        let (pid, inside) = (process.pid, process.inside);
        let pidfd =
            pidfd::open(pid).map_err(|error| Error::io(format!("opening process {pid}"), error))?;
        living.push(files::FrozenProcess { pid, inside, pidfd });
    }
    let (files, lines) = files::capture(&living, host)
        .map_err(|error| Error::io("capturing descriptors", std::io::Error::other(error)))?;
    report.append(lines);
    for table in files.tables.iter().filter(|table| table.pids.len() > 1) {
        report.refuse(
            table.pids.first().copied().unwrap_or(0),
            "table of descriptors",
            "several processes share it",
            "let them be threads, or give each its own",
        );
    }
    Ok(files)
}

fn shared_memory(
    sources: &[copy::Source<'_>],
    store: &dyn MemoryStore,
) -> Result<Vec<SharedMemory>> {
    let failed = |error| Error::io("copying shared memory", error);
    let mut pieces = Pieces::new();
    for source in sources {
        pieces
            .add_mapped(source.pid, source.space)
            .map_err(failed)?;
    }
    pieces.capture(store).map_err(failed)
}

fn segments(init: i32, store: &dyn MemoryStore) -> Result<Vec<sysv::KeptSegment>> {
    let failed = |error| Error::io("copying System V memory", error);
    let namespace = File::open(format!("/proc/{init}/ns/ipc")).map_err(failed)?;
    let own = std::fs::read_link("/proc/self/ns/ipc").map_err(failed)?;
    if std::fs::read_link(format!("/proc/{init}/ns/ipc")).map_err(failed)? == own {
        // Without a namespace of its own, what is there belongs to others too.
        return Ok(Vec::new());
    }
    sysv::capture(namespace.as_fd(), store).map_err(failed)
}

fn order(processes: &[model::Process], report: &mut Report) {
    let relations: Vec<order::Relation> =
        processes.iter().map(|process| process.relation).collect();
    if let Err(pid) = order::order(&relations) {
        report.refuse(
            pid,
            "session and group",
            "there is no order in which it could be made again",
            "end it, or start it anew",
        );
    }
}
