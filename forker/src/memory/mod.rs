//! The memory of processes: what it consists of, which of its pages nothing else keeps, how they are
//! copied out and how the same memory comes to be again.
//!
//! | module | purpose |
//! |---|---|
//! | `space` | what an address space consists of, as it is kept in an image |
//! | `scan` | reads it from `/proc`; what cannot be kept becomes a line of the report |
//! | `pages` | which pages nothing else keeps |
//! | `copy` | copies them out while the process stands still |
//! | `store` | the trait behind which the pages are kept |
//! | `shared`, `sysv` | memory that several processes share, without and with a System V identifier |
//! | `calls` | a list of system calls that a process must make itself |
//! | `place`, `attach`, `plan` | the calls by which a process maps all of it again |
//! | `fill` | brings the pages back |
//! | `finish` | the calls that set what would have been in the way: guard pages, locks, seals |
//!
//! The order of a restore: shared memory is created and filled, the process empties itself and maps
//! everything by [`plan::lay_out`], [`fill::fill`] brings its pages, and [`finish::finish`] does the rest.

mod attach;
pub mod calls;
pub mod copy;
pub mod fill;
pub mod finish;
pub mod pages;
pub mod place;
pub mod plan;
pub mod scan;
pub mod shared;
pub mod space;
pub mod store;
pub mod sysv;
