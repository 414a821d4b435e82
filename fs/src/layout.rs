//! Bytes on disk ⇄ types. Pure functions without I/O; `docs/format.md` says the same in tables.
//!
//! Integers in keys are big-endian so that byte order is number order. Layers in keys are inverted,
//! so that the newest version of a thing comes first and one seek to `thing ‖ !head` lands on the
//! newest candidate that `head` could see. Integers in values are little-endian.

pub mod bitmap;
pub mod key;
pub mod locator;
pub mod record;
pub mod wire;
