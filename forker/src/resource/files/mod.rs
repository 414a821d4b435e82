//! Open files of every kind.
//!
//! [`capture()`] works from outside only: `pidfd_getfd`, `fdinfo`, `kcmp` and what the duplicates
//! answer. [`rebuild()`] makes the descriptions in the caller's process, from where the processes of
//! the tree fetch them; what only they can do comes back as [`InsideCall`]s.
//!
//! | module | purpose |
//! |---|---|
//! | `model` | what an image says about descriptors |
//! | `place` | what the caller is asked for |
//! | `capture`, `classify` | tables, sharing, and which kind each description is |
//! | `rebuild`, `inside` | the way back |
//! | all others | one kind each: state, save, restore, what is refused |

mod capture;
mod classify;
mod device;
mod epoll;
mod event;
mod inotify;
mod inside;
mod lock;
mod memfd;
mod model;
mod pids;
mod pipe;
mod place;
mod process;
mod rebuild;
mod regular;
mod signal;
mod socket;
mod sys;
mod terminal;
mod timer;
mod trouble;

#[cfg(test)]
mod tests;

pub use capture::{FrozenProcess, capture};
pub use device::Device;
pub use epoll::{Epoll, Member};
pub use event::Event;
pub use inotify::{Inotify, Watch};
pub use inside::{Argument, InsideCall};
pub use memfd::Memfd;
pub use model::{Description, Files, Kind, Owner, Slot, Table};
pub use pipe::{Fifo, Pipe};
pub use place::{Outside, Place, Source};
pub use process::Process;
pub use rebuild::{Rebuilt, Timers, rebuild};
pub use regular::Regular;
pub use signal::Signal;
pub use socket::netlink::Netlink;
pub use socket::tcp::{State, Stream, Tcp};
pub use socket::udp::Udp;
pub use socket::unix::{Message, Peer, Unix};
pub use socket::{Options, UnixPath};
pub use terminal::{End, Input, LineEnd, Session, Settings, Terminal, open_master};
pub use timer::Timer;
pub use trouble::Error;
