//! Real mounts. Needs root and `/dev/fuse`; without them the tests say so and end.
#![allow(clippy::unwrap_used)]

mod fixture;
mod flush;
mod options;
mod passthrough;
mod posix;
mod requests;
mod session;
mod slots;
mod switch;
mod sys;
