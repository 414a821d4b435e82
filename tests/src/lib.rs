//! What the tests of Branchpoint share: the model that judges, the executors that carry operations
//! out, and the guards that hold mounts, disks and processes.
//!
//! A random operation ([`op::Op`]) names what it works on by index. The model ([`model::Tree`])
//! resolves it to an [`act::Act`] on things that exist, carries it out, and so does an executor: on a
//! view ([`exec::view`]) or on a directory of the running system ([`exec::path`]). All answer with an
//! [`act::Outcome`], and the answers must be equal.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::missing_panics_doc, reason = "likewise")]

pub mod act;
pub mod cli;
pub mod disk;
pub mod dump;
pub mod exec;
pub mod guard;
pub mod model;
pub mod op;
pub mod rig;
pub mod seed;
pub mod subject;
pub mod sys;
pub mod walk;
