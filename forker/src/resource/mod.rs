//! One module for each kind of kernel resource: state, save, restore, what is refused.
//!
//! What only the process itself can be asked has three functions: `ask` adds the calls to a tape, `read`
//! takes what they wrote, and `tell` adds the calls that bring it back.

pub mod credentials;
pub mod files;
pub mod restart;
pub mod rseq;
pub mod settings;
pub mod signals;
pub mod thread;
pub mod timers;

use crate::memory::calls::{Argument, Calls, Expect};

/// Adds a call that must succeed.
fn must<const N: usize>(calls: &mut Calls, what: &'static str, number: i64, arguments: [u64; N]) {
    calls.add(
        what,
        number,
        arguments.map(Argument::Value),
        Expect::Success,
    );
}

/// Adds a call that may fail: an older kernel does not know it, or it changes nothing that counts.
fn may<const N: usize>(
    calls: &mut Calls,
    what: &'static str,
    number: i64,
    arguments: [u64; N],
) -> usize {
    calls.add(
        what,
        number,
        arguments.map(Argument::Value),
        Expect::Anything,
    )
}

/// A signed number as the kernel takes it.
fn signed(value: impl Into<i64>) -> u64 {
    value.into().cast_unsigned()
}

/// The words of a stretch of bytes.
fn words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .collect()
}

/// The bytes of words.
pub(crate) fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
