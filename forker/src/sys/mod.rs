//! System calls that no safe library offers. The only modules with `unsafe` code.

#![allow(unsafe_code)]

pub mod pidfd;
pub mod ptrace;
pub mod runner;
pub mod task;
pub mod wait;
