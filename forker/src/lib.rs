//! Freezes, captures, restores and forks process trees. The modules, in the order of the data path:
//!
//! | module | purpose |
//! |---|---|
//! | `sys` | system calls, the only modules with `unsafe` code |
//! | `arch` | what depends on the processor |
//! | `trace` | one traced thread: stopped by construction |
//! | `remote` | memory of another process, and the tape runner that executes calls inside it |
//! | `proc` | parsers of `/proc`: text in, structs out |
//! | `memory` | memory of processes: what it consists of, copied out, rebuilt and filled |
//! | `image` | the format of a process image |
//! | `resource` | one module for each kind of kernel resource |
//! | `report`, `error` | what was kept how well; what went wrong |

pub mod arch;
pub mod error;
pub mod image;
pub mod memory;
pub mod proc;
pub mod remote;
pub mod report;
pub mod resource;
pub mod sys;
pub mod trace;

pub use error::{Error, Result};
