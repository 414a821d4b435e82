//! One module for each kind of kernel resource: state, save, restore, what is refused.

pub mod files;
