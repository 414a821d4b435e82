//! The kernel adapter: shows a [`View`](crate::view::View) as a mounted filesystem.
//!
//! The way to be fast is not to be asked. So the kernel keeps whatever it was told for hours
//! (entries that exist and entries that do not, attributes, pages, directories), opens files without
//! a message and collects writes in its page cache; the daemon is the only other writer, and says
//! exactly what changed when it puts another view in place.
//!
//! ```text
//! kernel ─► wire (decode, answer) ─► service (nodes → slot + inode) ─► view
//!                      session: mount, threads, unmount        flush: kernel's dirty pages → view
//!                      notify: invalidation                    switch: another view in place
//! ```
//!
//! `service` knows nothing of the protocol; only `wire` does. A person's mount shows one view in a session
//! of its own (`mount`); boxes share one session with a slot for each (`slots`, `hub`).

mod backing;
mod control;
mod device;
mod flush;
mod holders;
mod hub;
mod mount;
mod mountpoint;
mod node;
mod notify;
mod options;
mod pace;
mod refresh;
mod service;
mod session;
mod slot;
mod slots;
mod source;
mod switch;
mod sys;
mod wire;

pub use mount::Mount;
pub use mountpoint::clean_stale_mount;
pub use options::MountOptions;
pub use slots::{AttachedSlot, SlotMount};
pub use source::store_of_source;
