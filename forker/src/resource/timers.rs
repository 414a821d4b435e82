//! Timers of a process: `setitimer` and `timer_create`. They go on with the time that remained.

use serde::{Deserialize, Serialize};

use super::{bytes, may, must, signed, words};
use crate::error::Result;
use crate::memory::calls::Calls;
use crate::remote::Memory;

/// `PR_TIMER_CREATE_RESTORE_IDS` and its values.
const RESTORE_IDS: i32 = 77;

/// Bytes of `struct itimerval` and `struct itimerspec`.
const SPEC: usize = 32;

/// All timers of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers {
    /// `ITIMER_REAL`, `ITIMER_VIRTUAL`, `ITIMER_PROF`: interval and rest, in seconds and microseconds.
    interval: [[u64; 4]; 3],
    posix: Vec<Posix>,
}

/// A timer of `timer_create`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Posix {
    id: i32,
    clock: i32,
    signal: i32,
    value: u64,
    notify: i32,
    /// The thread inside that is told, where one is named.
    thread: i32,
    /// Interval and rest, in seconds and nanoseconds.
    state: [u64; 4],
}

/// Where the answers will be.
#[derive(Debug)]
pub(crate) struct Asked {
    intervals: u64,
    states: u64,
    timers: Vec<Posix>,
}

impl Timers {
    /// Adds the questions. `listed` is `/proc/PID/timers`.
    pub(crate) fn ask(calls: &mut Calls, listed: &str) -> Asked {
        let timers = parse(listed);
        let intervals = calls.place(&[0; SPEC * 3]);
        for which in 0..3_u64 {
            let arguments = [which, intervals + which * SPEC as u64];
            must(
                calls,
                "tell its interval timers",
                libc::SYS_getitimer,
                arguments,
            );
        }
        let states = calls.place(&vec![0; SPEC * timers.len()]);
        for (index, timer) in timers.iter().enumerate() {
            let arguments = [signed(timer.id), states + (index * SPEC) as u64];
            must(calls, "tell its timers", libc::SYS_timer_gettime, arguments);
        }
        Asked {
            intervals,
            states,
            timers,
        }
    }

    /// Reads the answers; `inner` translates a thread to its number inside.
    pub(crate) fn read(
        memory: &Memory,
        asked: Asked,
        inner: impl Fn(i32) -> Option<i32>,
    ) -> Result<Self> {
        let spec = |address: u64| -> Result<[u64; 4]> {
            let mut raw = [0; SPEC];
            memory.read(address, &mut raw)?;
            let words = words(&raw);
            Ok([words[0], words[1], words[2], words[3]])
        };
        let mut timers = Self::default();
        for (index, interval) in timers.interval.iter_mut().enumerate() {
            *interval = spec(asked.intervals + (index * SPEC) as u64)?;
        }
        for (index, mut timer) in asked.timers.into_iter().enumerate() {
            timer.state = spec(asked.states + (index * SPEC) as u64)?;
            timer.thread = inner(timer.thread).unwrap_or(0);
            timers.posix.push(timer);
        }
        Ok(timers)
    }

    /// Adds the calls that make the timers, not yet running.
    pub(crate) fn tell(&self, calls: &mut Calls) {
        if self.posix.is_empty() {
            return;
        }
        let switch = |calls: &mut Calls, on: u64| {
            let arguments = [signed(RESTORE_IDS), on, 0, 0, 0];
            must(
                calls,
                "choose numbers of timers",
                libc::SYS_prctl,
                arguments,
            );
        };
        switch(calls, 1);
        for timer in &self.posix {
            let mut event = bytes(&[timer.value]);
            event.extend(timer.signal.to_ne_bytes());
            event.extend(timer.notify.to_ne_bytes());
            event.extend(timer.thread.to_ne_bytes());
            event.resize(64, 0);
            let event = calls.place(&event);
            let id = calls.place(&timer.id.to_ne_bytes());
            let arguments = [signed(timer.clock), event, id];
            must(calls, "make a timer", libc::SYS_timer_create, arguments);
        }
        switch(calls, 0);
    }

    /// Adds the calls that set them running.
    pub(crate) fn start(&self, calls: &mut Calls) {
        for (which, interval) in (0_u64..).zip(&self.interval) {
            if *interval != [0; 4] {
                let place = calls.place(&bytes(interval));
                must(
                    calls,
                    "set an interval timer",
                    libc::SYS_setitimer,
                    [which, place, 0],
                );
            }
        }
        for timer in &self.posix {
            if timer.state != [0; 4] {
                let place = calls.place(&bytes(&timer.state));
                may(
                    calls,
                    "set a timer",
                    libc::SYS_timer_settime,
                    [signed(timer.id), 0, place, 0],
                );
            }
        }
    }

    /// Whether nothing has to be started.
    pub(crate) fn is_idle(&self) -> bool {
        self.interval == [[0; 4]; 3] && self.posix.iter().all(|timer| timer.state == [0; 4])
    }
}

/// Reads `/proc/PID/timers`: for each timer `ID:`, `signal: N/VALUE`, `notify: HOW/WHO.PID`, `ClockID:`.
fn parse(text: &str) -> Vec<Posix> {
    let mut timers: Vec<Posix> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.trim();
        let number = || value.parse().unwrap_or(0);
        if key == "ID" {
            timers.push(Posix {
                id: number(),
                ..Posix::default()
            });
            continue;
        }
        let Some(timer) = timers.last_mut() else {
            continue;
        };
        match key {
            "signal" => {
                let (signal, data) = value.split_once('/').unwrap_or((value, "0"));
                timer.signal = signal.parse().unwrap_or(0);
                timer.value = u64::from_str_radix(data.trim_start_matches("0x"), 16).unwrap_or(0);
            }
            "notify" => {
                let (how, who) = value.split_once('/').unwrap_or((value, ""));
                let named = who.strip_prefix("tid.");
                timer.thread = named.and_then(|tid| tid.parse().ok()).unwrap_or(0);
                timer.notify = match how {
                    "none" => libc::SIGEV_NONE,
                    "thread" => libc::SIGEV_THREAD,
                    _ => libc::SIGEV_SIGNAL,
                } | if named.is_some() {
                    libc::SIGEV_THREAD_ID
                } else {
                    0
                };
            }
            "ClockID" => timer.clock = number(),
            _ => {}
        }
    }
    timers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read() {
        let text = "ID: 3\nsignal: 34/00000000deadbeef\nnotify: signal/tid.77\nClockID: 1\n\
                    ID: 5\nsignal: 14/0\nnotify: none/pid.9\nClockID: 0\n";
        let timers = parse(text);
        assert_eq!(timers.len(), 2);
        assert_eq!(
            (timers[0].id, timers[0].signal, timers[0].value),
            (3, 34, 0xdead_beef)
        );
        assert_eq!(
            (timers[0].thread, timers[0].notify, timers[0].clock),
            (77, libc::SIGEV_THREAD_ID, 1)
        );
        assert_eq!(
            (timers[1].id, timers[1].notify, timers[1].thread),
            (5, libc::SIGEV_NONE, 0)
        );
        assert!(parse("nothing\nClockID: 4\n").is_empty());
    }
}
