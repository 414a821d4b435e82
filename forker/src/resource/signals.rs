//! Signals: actions, and what is pending.

use serde::{Deserialize, Serialize};

use super::{bytes, may, must, signed, words};
use crate::error::Result;
use crate::memory::calls::Calls;
use crate::remote::Memory;

/// Bytes of the kernel's `struct sigaction`: handler, flags, restorer, mask.
const ACTION: usize = 32;
/// Bytes of the kernel's set of signals.
const SET: u64 = 8;

/// What a process does with signals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actions {
    /// Signals whose action is not the default: number, and handler, flags, restorer, mask.
    changed: Vec<(i32, [u64; 4])>,
}

/// The signals that have an action that can be chosen.
fn all() -> impl Iterator<Item = i32> {
    (1..=64).filter(|signal| !matches!(*signal, libc::SIGKILL | libc::SIGSTOP))
}

impl Actions {
    /// Adds the questions, and returns where the answers will be.
    pub(crate) fn ask(calls: &mut Calls) -> u64 {
        let place = calls.place(&vec![0; ACTION * all().count()]);
        for (index, signal) in all().enumerate() {
            let address = place + (index * ACTION) as u64;
            let arguments = [signed(signal), 0, address, SET];
            must(
                calls,
                "tell its signal actions",
                libc::SYS_rt_sigaction,
                arguments,
            );
        }
        place
    }

    /// Reads the answers.
    pub(crate) fn read(memory: &Memory, place: u64) -> Result<Self> {
        let mut raw = vec![0; ACTION * all().count()];
        memory.read(place, &mut raw)?;
        let actions = raw.chunks(ACTION).map(|action| {
            let words = words(action);
            [words[0], words[1], words[2], words[3]]
        });
        let changed = all()
            .zip(actions)
            .filter(|(_, action)| *action != [0; 4])
            .collect();
        Ok(Self { changed })
    }

    /// Adds the calls that bring them back. The process may have inherited other ones.
    pub(crate) fn tell(&self, calls: &mut Calls) {
        for signal in all() {
            let found = self.changed.iter().find(|(number, _)| *number == signal);
            let action = found.map_or([0; 4], |(_, action)| *action);
            let place = calls.place(&bytes(&action));
            let arguments = [signed(signal), place, 0, SET];
            must(
                calls,
                "set a signal action",
                libc::SYS_rt_sigaction,
                arguments,
            );
        }
    }
}

/// The number of the signal in a `siginfo_t`.
fn number(info: &[u8]) -> i32 {
    info.first_chunk()
        .map_or(0, |word| i32::from_ne_bytes(*word))
}

/// Adds the calls that make signals pending for the calling thread, in their order.
pub(crate) fn tell_pending_thread(calls: &mut Calls, pid: i32, tid: i32, infos: &[Vec<u8>]) {
    for info in infos {
        let place = calls.place(info);
        let arguments = [signed(pid), signed(tid), signed(number(info)), place];
        may(
            calls,
            "queue a signal",
            libc::SYS_rt_tgsigqueueinfo,
            arguments,
        );
    }
}

/// Adds the calls that make signals pending for the calling process.
pub(crate) fn tell_pending_process(calls: &mut Calls, pid: i32, infos: &[Vec<u8>]) {
    for info in infos {
        let place = calls.place(info);
        let arguments = [signed(pid), signed(number(info)), place];
        may(
            calls,
            "queue a signal",
            libc::SYS_rt_sigqueueinfo,
            arguments,
        );
    }
}
