//! What can be asked and set about a thread from outside, without stopping it.

use std::mem::size_of;
use std::ptr;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

type Answer<T> = Result<T, Errno>;

/// The head of the list of robust futexes and the length that the kernel was told.
///
/// # Errors
/// The thread is gone.
pub fn robust_list(tid: i32) -> Answer<(u64, u64)> {
    let (mut head, mut length) = (0_u64, 0_u64);
    // SAFETY: the kernel writes one word to each of the two addresses.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_get_robust_list,
            tid,
            &raw mut head,
            &raw mut length,
        )
    };
    Errno::result(answer)?;
    Ok((head, length))
}

/// `struct sched_attr`, as of its first version with utilisation clamps.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    size: u32,
    /// `SCHED_*`.
    pub policy: u32,
    /// `SCHED_FLAG_*`.
    pub flags: u64,
    /// Nice value.
    pub nice: i32,
    /// Real-time priority.
    pub priority: u32,
    /// For deadlines, in nanoseconds; the slice otherwise.
    pub runtime: u64,
    /// For deadlines, in nanoseconds.
    pub deadline: u64,
    /// For deadlines, in nanoseconds.
    pub period: u64,
    /// Utilisation clamps.
    pub clamps: [u32; 2],
}

/// How a thread is scheduled.
///
/// # Errors
/// The thread is gone.
pub fn scheduling(tid: i32) -> Answer<Scheduling> {
    let mut found = Scheduling::default();
    // SAFETY: the kernel writes at most as many bytes as it is told.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            tid,
            &raw mut found,
            size_of::<Scheduling>(),
            0,
        )
    };
    Errno::result(answer).map(|_| found)
}

/// Sets how a thread is scheduled.
///
/// # Errors
/// The thread is gone, or the machine has no room for a deadline.
pub fn set_scheduling(tid: i32, scheduling: &Scheduling) -> Answer<()> {
    let mut wanted = *scheduling;
    wanted.size = u32::try_from(size_of::<Scheduling>()).unwrap_or(0);
    // SAFETY: the kernel reads `size` bytes.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw mut wanted, 0) };
    Errno::result(answer).map(drop)
}

/// Bytes of a set of processors: the kernel supports at most 8192.
const PROCESSORS: usize = 1024;

/// The processors that a thread may run on, as bits.
///
/// # Errors
/// The thread is gone.
pub fn affinity(tid: i32) -> Answer<Vec<u8>> {
    let mut set = vec![0_u8; PROCESSORS];
    // SAFETY: the kernel writes at most as many bytes as it is told.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            tid,
            set.len(),
            set.as_mut_ptr(),
        )
    };
    set.truncate(usize::try_from(Errno::result(answer)?).unwrap_or(0));
    Ok(set)
}

/// Sets the processors.
///
/// # Errors
/// The thread is gone, or none of them exists.
pub fn set_affinity(tid: i32, set: &[u8]) -> Answer<()> {
    // SAFETY: the kernel reads as many bytes as it is told.
    let answer =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, set.len(), set.as_ptr()) };
    Errno::result(answer).map(drop)
}

const WHO_PROCESS: i32 = 1;

/// The priority of its input and output.
///
/// # Errors
/// The thread is gone.
pub fn io_priority(tid: i32) -> Answer<i32> {
    // SAFETY: plain numbers.
    let answer = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, tid) };
    Errno::result(answer).map(|found| i32::try_from(found).unwrap_or(0))
}

/// Sets the priority of its input and output.
///
/// # Errors
/// The thread is gone.
pub fn set_io_priority(tid: i32, priority: i32) -> Answer<()> {
    // SAFETY: plain numbers.
    let answer = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, tid, priority) };
    Errno::result(answer).map(drop)
}

/// Sets a limit of a process.
///
/// # Errors
/// The process is gone, or the kernel allows no such limit.
pub fn set_limit(pid: i32, resource: u32, soft: u64, hard: u64) -> Answer<()> {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: the kernel reads one `rlimit`; nothing is written where the old one would go.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            pid,
            resource,
            &raw const limit,
            ptr::null_mut::<libc::rlimit>(),
        )
    };
    Errno::result(answer).map(drop)
}

/// Sends a signal to one thread of a process.
///
/// # Errors
/// It is gone.
pub fn signal_thread(pid: i32, tid: i32, signal: i32) -> Answer<()> {
    // SAFETY: plain numbers.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, signal) };
    Errno::result(answer).map(drop)
}

const KCMP_VM: i32 = 1;
const KCMP_FILES: i32 = 2;
const KCMP_FS: i32 = 3;

/// What two processes can share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shareable {
    /// The address space.
    Memory,
    /// The table of descriptors.
    Files,
    /// Working directory, root and umask.
    Filesystem,
}

/// Whether two processes share something.
///
/// # Errors
/// One is gone.
pub fn shares(one: i32, other: i32, what: Shareable) -> Answer<bool> {
    let kind = match what {
        Shareable::Memory => KCMP_VM,
        Shareable::Files => KCMP_FILES,
        Shareable::Filesystem => KCMP_FS,
    };
    // SAFETY: plain numbers.
    let answer = unsafe { libc::syscall(libc::SYS_kcmp, one, other, kind, 0, 0) };
    Errno::result(answer).map(|order| order == 0)
}
