//! Boxes at work, without a store: the root is an overlay over this machine's. Needs the superuser.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod commands;
mod inside;
mod leftovers;
mod limits;
mod ports;
mod refusals;
mod support;
mod terminal;
mod trees;
