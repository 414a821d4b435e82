//! What depends on the processor, in one place.

mod x86_64;

pub use x86_64::*;
