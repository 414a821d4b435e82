//! What carries operations out.

pub mod path;
pub mod view;
