//! The store, the view and the kernel adapter of Branchpoint.
pub mod attr;
pub mod error;
pub mod id;
pub mod kv;
pub mod base;
mod sys;
