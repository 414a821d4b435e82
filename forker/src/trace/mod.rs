//! Traced threads.
//!
//! Only the thread of the tracer that seized another can ask anything of it. So all of a checkpoint,
//! and all of a restore until its wake-up, happens on one thread.

mod stopped;

pub use stopped::{Arrival, PATIENCE, Run, Stopped};
