//! timerfd. The remaining time is kept, except for a moment of the wall clock, which stays that
//! moment. A rebuilt timer is armed only when the tree is woken.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};

use super::model::Description;
use super::sys;
use crate::proc::fdinfo;

// From linux/timerfd.h: _IOW('T', 0, __u64).
const TFD_IOC_SET_TICKS: libc::Ioctl = 0x4008_5400;

const NANOSECONDS: i64 = 1_000_000_000;

/// A timerfd; times are seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// `CLOCK_*`.
    pub clock: i32,
    /// Expirations that nobody has read.
    pub ticks: u64,
    /// Flags of the last `timerfd_settime`.
    pub set_flags: i32,
    /// Time until it expires, both zero if it is not armed.
    pub remaining: (i64, i64),
    /// Time between two expirations.
    pub interval: (i64, i64),
    /// The clock when the remaining time was read.
    pub read_at: (i64, i64),
}

fn is_wall(clock: i32) -> bool {
    clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_REALTIME_ALARM
}

pub(super) fn capture(seen: &fdinfo::Timer) -> io::Result<Timer> {
    let now = sys::clock(seen.clock)?;
    Ok(Timer {
        clock: seen.clock,
        ticks: seen.ticks,
        set_flags: seen.set_flags,
        remaining: seen.value,
        interval: seen.interval,
        read_at: (now.tv_sec, now.tv_nsec),
    })
}

pub(super) fn rebuild(state: &Timer, description: &Description) -> io::Result<OwnedFd> {
    let nonblock = description.flags & libc::O_NONBLOCK;
    let file = sys::timerfd(state.clock, libc::TFD_CLOEXEC | nonblock)?;
    if !armed(state) {
        ticks(&file, state)?;
    }
    Ok(file)
}

pub(super) fn armed(state: &Timer) -> bool {
    state.remaining != (0, 0)
}

fn ticks(file: impl AsFd, state: &Timer) -> io::Result<()> {
    match state.ticks {
        0 => Ok(()),
        count => sys::ioctl_set(file, TFD_IOC_SET_TICKS, &count),
    }
}

/// Sum of two times.
fn sum(a: (i64, i64), b: (i64, i64)) -> (i64, i64) {
    let nanoseconds = a.1.saturating_add(b.1);
    let seconds = a.0.saturating_add(b.0);
    (
        seconds.saturating_add(nanoseconds.div_euclid(NANOSECONDS)),
        nanoseconds.rem_euclid(NANOSECONDS),
    )
}

/// Arms it as it was, and gives it the expirations that were not read. For the moment at which
/// the tree is woken.
pub(super) fn arm(file: impl AsFd, state: &Timer) -> io::Result<()> {
    let absolute = state.set_flags & libc::TFD_TIMER_ABSTIME != 0;
    let value = if !absolute {
        state.remaining
    } else if is_wall(state.clock) {
        sum(state.read_at, state.remaining)
    } else {
        let now = sys::clock(state.clock)?;
        sum((now.tv_sec, now.tv_nsec), state.remaining)
    };
    let spec = libc::itimerspec {
        it_interval: libc::timespec {
            tv_sec: state.interval.0,
            tv_nsec: state.interval.1,
        },
        it_value: libc::timespec {
            tv_sec: value.0,
            tv_nsec: value.1,
        },
    };
    sys::arm(file.as_fd(), state.set_flags, &spec)?;
    ticks(file, state)
}
