//! Waiting for one traced thread, with an end.

use std::time::{Duration, Instant};

use nix::errno::Errno;

/// Why a traced thread does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is about to get this signal.
    Signal(i32),
    /// It stopped because it was asked to, or was just made; 0, or the signal that its process is
    /// stopped by.
    Stop(i32),
    /// It stopped because of a `PTRACE_EVENT_*` other than a stop.
    Event(i32),
    /// It is gone.
    Gone,
}

/// Attempts without sleeping: what a thread does between two stops takes microseconds.
const EAGER: u32 = 200;

/// The next change of state, or `None` if there is none within `limit`.
///
/// # Errors
/// What the kernel answers; a thread that is no longer traced counts as gone.
pub fn next(tid: i32, limit: Duration) -> Result<Option<Change>, Errno> {
    let begin = Instant::now();
    let mut attempts = 0_u32;
    loop {
        let mut status = 0;
        // SAFETY: `status` is an int that the kernel fills.
        let answer = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
        match Errno::result(answer) {
            Ok(0) => {}
            Ok(_) => return Ok(Some(change(status))),
            Err(Errno::ECHILD) => return Ok(Some(Change::Gone)),
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error),
        }
        attempts = attempts.saturating_add(1);
        if attempts < EAGER {
            std::thread::yield_now();
        } else if begin.elapsed() > limit {
            return Ok(None);
        } else {
            std::thread::sleep(Duration::from_micros(if attempts < 1000 {
                50
            } else {
                500
            }));
        }
    }
}

fn change(status: i32) -> Change {
    if !libc::WIFSTOPPED(status) {
        return Change::Gone;
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 => Change::Signal(signal),
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Change::Stop(0),
        libc::PTRACE_EVENT_STOP => Change::Stop(signal),
        event => Change::Event(event),
    }
}
