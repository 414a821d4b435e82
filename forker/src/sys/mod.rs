//! System calls that no safe library offers. The only modules with `unsafe` code.

#![allow(unsafe_code)]

pub mod advise;
pub mod arena;
pub mod pagemap;
pub mod pidfd;
pub mod ptrace;
pub mod runner;
pub mod shared;
pub mod sysv;
pub mod task;
pub mod wait;
