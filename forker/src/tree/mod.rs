//! Process trees.
//!
//! | module | purpose |
//! |---|---|
//! | `freeze` | stops every thread of a tree, and lets it go again |
//! | `model` | what an image says of processes and threads |
//! | `order` | in which order processes are made, so that each has its parent, session and group |

mod freeze;
pub mod model;
pub mod order;

pub use freeze::{Frozen, FrozenProcess, FrozenThread, freeze};
