//! Another process: its memory, and system calls that it makes for us.
//!
//! | module | purpose |
//! |---|---|
//! | `memory` | reads and writes its memory, whatever its protection |
//! | `door` | a stopped thread that makes single calls, and is put back as it was |
//! | `region` | the pages of the tape runner, and running tapes |

mod door;
mod memory;
mod region;

pub use door::{Door, Saved, find_syscall};
pub use memory::Memory;
pub use region::Region;
