//! Boxes: process trees in namespaces and cgroups of their own, on a root directory given to them.
//!
//! ```text
//! daemon                                        box
//! Instance ── Link ═══ socket pair ═══ init (pid 1): makes the inside, starts, reaps, tells of ends
//!    │                                   ├── process of session 1
//!    ├── Group: freeze, thaw, kill       └── process of session 2 …
//! Session: holds the other end of a terminal or of pipes, and what came out of it lately
//! Forward: takes connections on the host and carries them into the box's network
//! ```
//! An [`instance`] is what a rollback or a fork replaces; [`session`]s and forwarded [`port`]s belong to the box and
//! are connected to the next instance. This crate knows nothing of branches and checkpoints: a root is a directory.

pub mod cgroup;
pub mod confine;
pub mod error;
pub mod init;
pub mod instance;
pub mod port;
pub mod process;
pub mod session;
mod sys;
mod wire;

pub use init::SEED_FD;
pub use wire::Command;
