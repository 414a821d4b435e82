//! Freezes, captures, restores and forks process trees. The modules, in the order of the data path:
//!
//! | module | purpose |
//! |---|---|
//! | `sys` | system calls, the only modules with `unsafe` code |
//! | `arch` | what depends on the processor |
//! | `trace` | one traced thread: stopped by construction |
//! | `remote` | memory of another process, and the tape runner that executes calls inside it |
//! | `proc` | parsers of `/proc`: text in, structs out |
//! | `resource` | one file for each kernel resource: state, save, restore, what is refused |
//! | `memory` | which mappings and pages, and how they come to be again |
//! | `tree` | processes and threads: how they are stopped, and in which order they are made |
//! | `image`, `snapshot` | the format of a process image, and what is in it |
//! | `checkpoint`, `restore` | the numbered steps, each with its undo |
//! | `report`, `error`, `fault` | what was kept how well; what went wrong; what a test lets fail |

pub mod arch;
pub mod checkpoint;
pub mod error;
pub mod fault;
pub mod image;
pub mod memory;
pub mod proc;
pub mod remote;
pub mod report;
pub mod resource;
pub mod restore;
pub mod snapshot;
pub mod sys;
pub mod trace;
pub mod tree;

pub use error::{Error, Result};
