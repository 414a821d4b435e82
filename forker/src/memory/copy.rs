//! Copies pages out of processes that stand still, as fast as the machine can: the processes wait for it.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::thread;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use parking_lot::Mutex;

use super::pages::private_runs;
use super::space::{AddressSpace, Backing, Flags, ObjectId, PAGE, Run};
use super::store::MemoryStore;
use crate::sys::arena::Arena;

/// How many bytes a thread copies before it takes the next part.
const PART: usize = 4 << 20;

/// How many runs one system call may gather (the kernel's limit, `IOV_MAX`).
const RUNS_AT_ONCE: usize = 1024;

/// More threads than this only wait for each other's memory bandwidth.
const MOST_THREADS: usize = 4;

/// Where one address space is copied from.
#[derive(Debug)]
pub struct Source<'a> {
    /// A process of the address space, as the tracer numbers it.
    pub pid: i32,
    /// The object that its pages become.
    pub object: ObjectId,
    /// What was read of it.
    pub space: &'a AddressSpace,
}

/// A run of pages that was copied.
#[derive(Clone, Copy, Debug)]
struct Piece {
    object: ObjectId,
    run: Run,
    /// Where its bytes are in the arena.
    at: usize,
    /// A page of zeros says nothing that a fresh mapping would not say.
    zero_is_nothing: bool,
}

/// What was copied out, in memory.
#[derive(Debug)]
pub struct Content {
    arena: Arena,
    pieces: Vec<Piece>,
}

/// The pages of one object that a restore must bring back.
pub type Kept = (ObjectId, Vec<Run>);

/// Copies out all pages of the sources that nothing else keeps.
///
/// # Errors
/// What the kernel answers: a process is gone, or memory is short.
pub fn copy_out(sources: &[Source<'_>]) -> io::Result<Content> {
    let mut pieces = Vec::new();
    let mut parts = Vec::new();
    let mut total = 0_usize;
    for source in sources {
        let pagemap = File::open(format!("/proc/{}/pagemap", source.pid))?;
        for mapping in &source.space.mappings {
            let readable = mapping.flags.has(Flags::READ);
            let zero_is_nothing = mapping.backing == Backing::Anonymous;
            for run in private_runs(&pagemap, mapping)? {
                let length = usize::try_from(run.bytes()).map_err(io::Error::other)?;
                pieces.push(Piece {
                    object: source.object,
                    run,
                    at: total,
                    zero_is_nothing,
                });
                add_parts(&mut parts, source.pid, run, readable);
                total += length;
            }
        }
    }
    let mut arena = Arena::new(total)?;
    let jobs = Mutex::new(jobs(parts, arena.bytes_mut()).into_iter());
    in_threads(total, || {
        loop {
            let Some(job) = jobs.lock().next() else {
                return Ok(());
            };
            job.run()?;
        }
    })?;
    drop(jobs);
    Ok(Content { arena, pieces })
}

impl Content {
    /// How many bytes were copied.
    pub fn bytes(&self) -> u64 {
        self.arena.bytes().len() as u64
    }

    /// Hands all pages that are not zero to the store, and tells which pages a restore must bring
    /// back, by object in the order of the sources.
    ///
    /// # Errors
    /// What the store answers.
    pub fn write_to(&self, store: &dyn MemoryStore) -> io::Result<Vec<Kept>> {
        let mut kept: Vec<Kept> = Vec::new();
        for piece in &self.pieces {
            let length = usize::try_from(piece.run.bytes()).map_err(io::Error::other)?;
            let bytes = &self.arena.bytes()[piece.at..piece.at + length];
            if kept
                .last()
                .is_none_or(|(object, _)| *object != piece.object)
            {
                kept.push((piece.object, Vec::new()));
            }
            let runs = &mut kept.last_mut().ok_or(io::ErrorKind::InvalidData)?.1;
            put_non_zero(store, piece.object, piece.run.first, bytes, |run| {
                if piece.zero_is_nothing {
                    append(runs, run);
                }
            })?;
            if !piece.zero_is_nothing {
                append(runs, piece.run);
            }
        }
        Ok(kept)
    }
}

/// Stores each run of pages that are not all zeros, and tells it.
pub(super) fn put_non_zero(
    store: &dyn MemoryStore,
    object: ObjectId,
    first_page: u64,
    bytes: &[u8],
    mut stored: impl FnMut(Run),
) -> io::Result<()> {
    let page = usize::try_from(PAGE).map_err(io::Error::other)?;
    let mut at = 0;
    while at < bytes.len() {
        let is_zero = |at: usize| bytes.get(at..at + page).is_none_or(all_zero);
        let start = at;
        let zero = is_zero(at);
        while at < bytes.len() && is_zero(at) == zero {
            at += page;
        }
        if !zero {
            let run = Run {
                first: first_page + (start / page) as u64,
                count: ((at - start) / page) as u64,
            };
            store.put(object, run.first, &bytes[start..at])?;
            stored(run);
        }
    }
    Ok(())
}

fn append(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.first + last.count == run.first => last.count += run.count,
        _ => runs.push(run),
    }
}

fn all_zero(bytes: &[u8]) -> bool {
    // Most pages differ from zero within their first bytes.
    bytes
        .as_chunks::<64>()
        .0
        .iter()
        .all(|chunk| *chunk == [0; 64])
}

/// A stretch of remote memory, at most `PART` long.
#[derive(Clone, Copy, Debug)]
struct Part {
    pid: i32,
    address: u64,
    length: usize,
    /// The mapping can be read; if not, only the tracer's own door leads to the bytes.
    readable: bool,
}

fn add_parts(parts: &mut Vec<Part>, pid: i32, run: Run, readable: bool) {
    let (mut address, end) = (run.start(), run.start() + run.bytes());
    while address < end {
        let length = usize::try_from(end - address).map_or(PART, |left| left.min(PART));
        parts.push(Part {
            pid,
            address,
            length,
            readable,
        });
        address += length as u64;
    }
}

/// Parts of one process that one thread copies with as few system calls as possible.
struct Job<'a> {
    parts: Vec<Part>,
    into: &'a mut [u8],
}

fn jobs(parts: Vec<Part>, mut rest: &mut [u8]) -> Vec<Job<'_>> {
    let mut jobs: Vec<Job<'_>> = Vec::new();
    let mut open: Vec<Part> = Vec::new();
    let mut length = 0;
    for part in parts {
        let other = open
            .last()
            .is_some_and(|last| last.pid != part.pid || last.readable != part.readable);
        if other || open.len() == RUNS_AT_ONCE || (length > 0 && length + part.length > PART) {
            let (into, behind) = rest.split_at_mut(length);
            rest = behind;
            jobs.push(Job {
                parts: std::mem::take(&mut open),
                into,
            });
            length = 0;
        }
        length += part.length;
        open.push(part);
    }
    if !open.is_empty() {
        jobs.push(Job {
            parts: open,
            into: &mut rest[..length],
        });
    }
    jobs
}

impl Job<'_> {
    fn run(self) -> io::Result<()> {
        let Some(first) = self.parts.first() else {
            return Ok(());
        };
        if first.readable {
            let remote: Vec<RemoteIoVec> = self.parts.iter().map(remote).collect();
            let pid = Pid::from_raw(first.pid);
            let length = self.into.len();
            let copied = process_vm_readv(pid, &mut [IoSliceMut::new(self.into)], &remote);
            if copied.is_ok_and(|copied| copied == length) {
                return Ok(());
            }
        }
        let memory = File::open(format!("/proc/{}/mem", first.pid))?;
        let mut rest = self.into;
        for part in &self.parts {
            let (into, behind) = rest.split_at_mut(part.length);
            memory.read_exact_at(into, part.address).map_err(|error| {
                let what = format!(
                    "cannot read memory of process {} at {:x}: {error}",
                    part.pid, part.address
                );
                io::Error::new(error.kind(), what)
            })?;
            rest = behind;
        }
        Ok(())
    }
}

fn remote(part: &Part) -> RemoteIoVec {
    // Addresses are 64 bits wide on each machine that this crate supports.
    RemoteIoVec {
        base: usize::try_from(part.address).unwrap_or(usize::MAX),
        len: part.length,
    }
}

/// Runs `work` in as many threads as `bytes` are worth, and returns the first error.
pub(super) fn in_threads(bytes: usize, work: impl Fn() -> io::Result<()> + Sync) -> io::Result<()> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = bytes.div_ceil(PART).min(processors).min(MOST_THREADS);
    if threads <= 1 {
        return work();
    }
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        handles.into_iter().try_for_each(|handle| {
            handle
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a copying thread failed")))
        })
    })
}

/// Reads readable memory of another process.
///
/// # Errors
/// What the kernel answers, or `UnexpectedEof` where memory ends early.
pub(crate) fn read_remote(pid: i32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let length = into.len();
    let part = Part {
        pid,
        address,
        length,
        readable: true,
    };
    let copied = process_vm_readv(
        Pid::from_raw(pid),
        &mut [IoSliceMut::new(into)],
        &[remote(&part)],
    )?;
    if copied == length {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}
