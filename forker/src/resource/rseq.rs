//! Restartable sequences.
//!
//! The kernel sends a thread that it interrupts inside such a sequence to the sequence's abort handler.
//! Injected code would make it forget that, so it is done here, before anything is injected.

use crate::arch::Registers;
use crate::error::Result;
use crate::remote::Memory;
use crate::sys::ptrace;
use crate::trace::Stopped;

/// Where a thread's area says which sequence it is in.
const CURRENT: u64 = 8;

/// Takes a thread out of the sequence that it may be in.
///
/// # Errors
/// The thread is gone.
pub fn leave_sequence(thread: &Stopped, memory: &Memory, registers: &mut Registers) -> Result<()> {
    let area = thread.asked("asking for rseq", ptrace::rseq(thread.tid()))?;
    if area.address == 0 {
        return Ok(());
    }
    // What is written there is the program's business: anything unreadable is no sequence.
    let Ok(sequence) = memory.word(area.address + CURRENT) else {
        return Ok(());
    };
    if sequence == 0 {
        return Ok(());
    }
    let words = [8, 16, 24].map(|offset| memory.word(sequence.wrapping_add(offset)));
    if let [Ok(start), Ok(length), Ok(abort)] = words {
        let into = registers.instruction().wrapping_sub(start);
        if into < length {
            registers.set_instruction(abort);
        }
    }
    memory.write(area.address + CURRENT, &[0; 8])
}
