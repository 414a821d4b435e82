//! Fills the memory of a process that is being rebuilt, with several threads.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::unistd::Pid;

use super::copy::in_threads;
use super::space::{AddressSpace, Backing, Flags, Mapping, ObjectId, PAGE, Run};
use super::store::MemoryStore;
use crate::sys::advise::collapse;

/// A huge page.
const HUGE: u64 = 2 << 20;

/// Whether memory that must not be the same in two processes is brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twins {
    /// The process takes the place of the one that was captured: everything is brought back.
    None,
    /// Another process goes on from the same image: memory wiped in a child is empty in it.
    Siblings,
}

/// A rebuilt address space that waits for its content.
#[derive(Debug)]
pub struct Target<'a> {
    /// A process of the address space, as the tracer numbers it. Nothing in it runs.
    pub pid: i32,
    /// A descriptor of that process.
    pub pidfd: BorrowedFd<'a>,
    /// The object that holds its pages.
    pub object: ObjectId,
    /// Its mappings, which exist already.
    pub space: &'a AddressSpace,
    /// The pages to bring back, by number.
    pub runs: &'a [Run],
}

/// Brings the content of all targets back from the store.
///
/// # Errors
/// What the store or the kernel answers; the processes are then good for nothing but to be killed.
pub fn fill(targets: &[Target<'_>], twins: Twins, store: &dyn MemoryStore) -> io::Result<()> {
    let jobs: Vec<Job<'_>> = targets
        .iter()
        .flat_map(|target| jobs(target, twins))
        .collect();
    let bytes = jobs.iter().map(|job| job.length).sum();
    let next = AtomicUsize::new(0);
    let collapsible = AtomicBool::new(true);
    in_threads(bytes, || {
        let mut buffer = vec![0; usize::try_from(HUGE).map_err(io::Error::other)?];
        loop {
            let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return Ok(());
            };
            job.run(store, &mut buffer[..job.length], &collapsible)?;
        }
    })
}

/// One stretch of at most a huge page, within one mapping.
struct Job<'a> {
    target: &'a Target<'a>,
    address: u64,
    length: usize,
    writable: bool,
    /// It is a whole huge page that may be one.
    huge: bool,
}

fn jobs<'a>(target: &'a Target<'a>, twins: Twins) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    let mut runs = target.runs.iter().copied().peekable();
    for mapping in &target.space.mappings {
        while let Some(run) = runs.peek().copied() {
            if run.start() >= mapping.end {
                break;
            }
            let start = run.start().max(mapping.start);
            let end = (run.start() + run.bytes()).min(mapping.end);
            let wiped = twins == Twins::Siblings && mapping.flags.has(Flags::WIPE_ON_FORK);
            if start < end && mapping.has_private_pages() && !wiped {
                add_jobs(&mut jobs, target, mapping, start, end);
            }
            if run.start() + run.bytes() > mapping.end {
                break;
            }
            runs.next();
        }
    }
    jobs
}

fn add_jobs<'a>(
    jobs: &mut Vec<Job<'a>>,
    target: &'a Target<'a>,
    mapping: &Mapping,
    start: u64,
    end: u64,
) {
    let writable = mapping.flags.has(Flags::WRITE);
    let collapsible = writable
        && mapping.backing == Backing::Anonymous
        && !mapping
            .flags
            .has_any(Flags::NO_HUGE_PAGE.with(Flags::GROWS_DOWN));
    let mut address = start;
    while address < end {
        let behind = ((address / HUGE + 1) * HUGE).min(end);
        // At most a huge page, so it fits any usize.
        let length = usize::try_from(behind - address).unwrap_or(0);
        let huge = collapsible && behind - address == HUGE;
        jobs.push(Job {
            target,
            address,
            length,
            writable,
            huge,
        });
        address = behind;
    }
}

impl Job<'_> {
    fn run(
        &self,
        store: &dyn MemoryStore,
        bytes: &mut [u8],
        collapsible: &AtomicBool,
    ) -> io::Result<()> {
        store.get(self.target.object, self.address / PAGE, bytes)?;
        if !self.writable {
            // Only the tracer's own door leads to pages that the process may not write.
            let memory = OpenOptions::new()
                .write(true)
                .open(format!("/proc/{}/mem", self.target.pid))?;
            return memory
                .write_all_at(bytes, self.address)
                .map_err(|error| self.failed(&error));
        }
        // Filling a huge page costs a third of filling its 512 small ones. The kernel makes one only
        // where a page is already, so the first goes ahead.
        if self.huge && collapsible.load(Ordering::Relaxed) {
            let first = usize::try_from(PAGE).map_err(io::Error::other)?;
            self.write(&bytes[..first])?;
            if collapse(self.target.pidfd, self.address, HUGE).is_err() {
                collapsible.store(false, Ordering::Relaxed);
            }
        }
        self.write(bytes)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let base = usize::try_from(self.address).map_err(io::Error::other)?;
        let remote = [RemoteIoVec {
            base,
            len: bytes.len(),
        }];
        let written = process_vm_writev(
            Pid::from_raw(self.target.pid),
            &[IoSlice::new(bytes)],
            &remote,
        )
        .map_err(|errno| self.failed(&errno.into()))?;
        if written == bytes.len() {
            Ok(())
        } else {
            Err(self.failed(&io::ErrorKind::WriteZero.into()))
        }
    }

    fn failed(&self, error: &io::Error) -> io::Error {
        let (pid, address) = (self.target.pid, self.address);
        io::Error::new(
            error.kind(),
            format!("cannot fill memory of process {pid} at {address:x}: {error}"),
        )
    }
}
