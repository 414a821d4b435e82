//! Freezes, captures, restores and forks process trees. Of the module
//! map below, in the order of the data path, only `proc` is there yet; the rest is the plan:
//!
//! | module | purpose |
//! |---|---|
//! | `sys` | system calls, the only crate where `unsafe` is normal |
//! | `trace` | ptrace as a typestate: `Running`, `Stopped`, `Exited` |
//! | `remote` | memory of another process, and the tape runner that executes calls inside it |
//! | `proc` | parsers of `/proc`: text in, structs out |
//! | `resource` | one file for each kernel resource: state, save, restore, what is refused |
//! | `dirty` | which pages were written since the parent checkpoint |
//! | `image` | the format of a process image |
//! | `checkpoint`, `restore`, `fork` | the numbered steps, each with its undo |
//! | `host` | the trait through which a filesystem branch is asked for |

pub mod proc;
