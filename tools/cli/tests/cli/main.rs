//! The program as a user calls it. What the library does is tested there; here it is the wiring,
//! the messages, the exit codes, and how the daemon takes what nobody should send it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod boxes;
mod clients;
mod daemon;
mod full;
mod harness;
mod json;
mod mounts;
mod names;
mod patch;
mod refused;
mod selfdoc;
mod store;
mod user;
