//! Looking for the next request before sleeping.
//!
//! A program that works on many small files sends its next request some microseconds after it got an
//! answer. Putting the thread to sleep and waking it up costs more than that.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Failures in a row after which a thread stops looking for a while.
const PATIENCE: u32 = 8;

/// Answers after which it tries again.
const REST: u32 = 256;

/// When to look.
#[derive(Debug)]
pub(super) struct Pace {
    spin: Duration,
    /// Threads that are looking. More than one would only take the processor from the programs.
    looking: AtomicUsize,
    /// Looks in vain in a row; beyond [`PATIENCE`], answers given without looking.
    vain: AtomicU32,
}

impl Pace {
    /// Looks for up to `spin` after each answer.
    pub(super) fn new(spin: Duration) -> Self {
        Self {
            spin,
            looking: AtomicUsize::new(0),
            vain: AtomicU32::new(0),
        }
    }

    /// To be called when a request from `device` has been answered.
    pub(super) fn answered(&self, device: &OwnedFd) {
        if self.spin.is_zero() {
            return;
        }
        let vain = self.vain.load(Ordering::Relaxed);
        if vain >= PATIENCE {
            let next = if vain >= PATIENCE + REST {
                PATIENCE - 1
            } else {
                vain + 1
            };
            self.vain.store(next, Ordering::Relaxed);
            return;
        }
        if self.looking.fetch_add(1, Ordering::Relaxed) == 0 {
            let found = self.look(device);
            self.vain
                .store(if found { 0 } else { vain + 1 }, Ordering::Relaxed);
        }
        self.looking.fetch_sub(1, Ordering::Relaxed);
    }

    fn look(&self, device: &OwnedFd) -> bool {
        let end = Instant::now() + self.spin;
        loop {
            let mut wanted = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
            match poll(&mut wanted, PollTimeout::ZERO) {
                Ok(0) if Instant::now() < end => std::hint::spin_loop(),
                Ok(0) => return false,
                _ => return true,
            }
        }
    }
}
