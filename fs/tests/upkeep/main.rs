//! The collector and the checker, on stores in memory, on disk, cut off, and damaged.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::too_many_lines,
    reason = "a test that fails may panic; its numbers are small"
)]

mod annex;
mod check;
mod collect;
mod fold;
mod history;
mod sweep;
