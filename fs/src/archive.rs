//! Trees as tar archives, out of a store and into it.
//!
//! Archives are what POSIX calls pax: ustar with extended headers for what does not fit there (times
//! in nanoseconds, long names, extended attributes). GNU tar and every other current one read them.

mod export;
mod import;
mod pax;

pub use export::{ExportOutcome, export};
pub use import::{ImportOutcome, import};

/// Before the name of an extended attribute in an extended header; everybody follows star in that.
const XATTR: &[u8] = b"SCHILY.xattr.";
