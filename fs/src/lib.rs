//! The store, the view and the kernel adapter of Branchpoint.
//!
//! The data path of a `write` on a mounted branch, top to bottom: the kernel's request arrives in
//! `fuse`, which decodes it and calls the [`view`] of the branch's head; the view finds out what the
//! write replaces ([`version`]: the newest version that the head can see), collects its changes, and
//! writes them as one batch to the [`kv`] engine, in the bytes that [`layout`] defines. A `read` takes
//! the same way and ends, for what nobody wrote yet, in the [`base`].
//!
//! Dependence goes one way: `fuse → view → branch → store → layer, version → kv, layout → id`.

pub mod apply;
pub mod archive;
pub mod attr;
pub mod base;
pub mod branch;
pub mod check;
pub mod collect;
pub mod diff;
mod entity;
pub mod error;
pub mod fuse;
pub mod id;
pub mod kv;
pub mod layer;
pub mod layout;
pub mod merge;
pub mod progress;
mod rdev;
pub mod store;
mod sys;
mod tree;
pub mod version;
pub mod view;

pub use error::{Error, ErrorKind, Result};
