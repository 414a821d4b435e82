//! Another process: its memory, and system calls that it makes for us.
//!
//! | module | purpose |
//! |---|---|
//! | `memory` | reads and writes its memory, whatever its protection |
//! | `tape` | a list of system calls, as the runner inside reads it |
//! | `inside` | a stopped process with the runner mapped into it |
