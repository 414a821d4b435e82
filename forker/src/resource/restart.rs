//! System calls in which threads were interrupted.
//!
//! A thread that stopped inside a call has the kernel's wish in its result: to be restarted in one of
//! four ways, which the kernel does by itself when the thread is let go with the same registers. Two
//! cases need help: calls that answer `EINTR` to any interruption, even to one without a signal, and, in a
//! restored thread, calls that the kernel would continue by a note that is lost.

use crate::arch::{RESTART_BLOCK, RESTART_NO_HANDLER, Registers};

/// Calls that answer `EINTR` where no handler has run.
const IMPATIENT: [i64; 7] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
];

/// Makes a call that would answer `EINTR` because of us be restarted, unless a handler runs.
pub fn settle(registers: &mut Registers) {
    let interrupted = registers.result() == -i64::from(libc::EINTR);
    if interrupted
        && registers
            .call()
            .is_some_and(|call| IMPATIENT.contains(&call))
    {
        registers.set_result(RESTART_NO_HANDLER);
    }
}

/// Whether the kernel would continue the call by a note of its own.
fn needs_note(registers: &Registers) -> bool {
    registers.call().is_some() && registers.result() == RESTART_BLOCK
}

/// Which argument of a sleep says how long, and the address where the kernel has written what remains.
fn remaining(registers: &Registers) -> Option<(usize, u64)> {
    let [_, second, _, fourth, ..] = registers.arguments();
    let absolute = u64::from(libc::TIMER_ABSTIME.unsigned_abs());
    match registers.call()? {
        libc::SYS_nanosleep if second != 0 => Some((0, second)),
        libc::SYS_clock_nanosleep if fourth != 0 && second & absolute == 0 => Some((2, fourth)),
        _ => None,
    }
}

/// The name of a call whose time limit begins anew in a restored thread, because only the kernel's note
/// says how much of it remains.
pub fn begins_anew(registers: &Registers) -> Option<&'static str> {
    if !needs_note(registers) || remaining(registers).is_some() {
        return None;
    }
    match registers.call()? {
        libc::SYS_poll => Some("poll"),
        libc::SYS_futex => Some("futex"),
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Some("sleep"),
        _ => Some("call"),
    }
}

/// Makes a call whose note is lost be made again. `clock_nanosleep` and `nanosleep` have written the time
/// that remains where the program asked for it: that is slept now. Others begin anew.
pub fn without_note(registers: &mut Registers) {
    if !needs_note(registers) {
        return;
    }
    if let Some((argument, address)) = remaining(registers) {
        registers.set_argument(argument, address);
    }
    registers.set_result(RESTART_NO_HANDLER);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_call(number: i64, result: i64) -> Registers {
        let mut registers = Registers::default();
        registers.set_call(number);
        registers.set_result(result);
        registers
    }

    #[test]
    fn an_epoll_wait_is_restarted_and_a_read_keeps_its_answer() {
        let mut registers = in_call(libc::SYS_epoll_wait, -4);
        settle(&mut registers);
        assert_eq!(registers.result(), RESTART_NO_HANDLER);
        let mut registers = in_call(libc::SYS_read, -4);
        settle(&mut registers);
        assert_eq!(registers.result(), -4);
    }

    #[test]
    fn a_sleep_goes_on_with_the_rest() {
        let mut registers = in_call(libc::SYS_clock_nanosleep, RESTART_BLOCK);
        registers.set_argument(2, 0x1000);
        registers.set_argument(3, 0x2000);
        assert_eq!(begins_anew(&registers), None);
        without_note(&mut registers);
        assert_eq!(registers.arguments()[2], 0x2000);
        assert_eq!(registers.result(), RESTART_NO_HANDLER);
        assert_eq!(
            begins_anew(&in_call(libc::SYS_poll, RESTART_BLOCK)),
            Some("poll")
        );
        assert_eq!(
            begins_anew(&in_call(libc::SYS_poll, RESTART_NO_HANDLER)),
            None
        );
    }
}
