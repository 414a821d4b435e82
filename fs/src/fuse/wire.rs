//! The transport: FUSE's own protocol, spoken with the kernel over `/dev/fuse`.
//!
//! ```text
//! channel: bytes in ─► request: decoded ─► dispatch: service called ─► encode ─► channel: bytes out
//! server: the agreement at the start (init), the threads     helper: mounting without privileges
//! ```
//!
//! The kernel names a file by a node id of ours, which need not be its inode number: that is what lets
//! one session show several views. No request is trusted to be as long as its kind says.

mod abi;
mod bytes;
mod channel;
mod convert;
mod count;
mod dispatch;
mod encode;
mod helper;
mod init;
mod request;
mod server;
mod sys;

pub(super) use count::Counts;
pub(super) use dispatch::Dispatcher;
pub(super) use helper::attach as attach_by_helper;
pub(super) use server::{Server, agree};

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// A file known to the kernel's passthrough, until this is dropped.
#[derive(Debug)]
pub(super) struct BackingFile {
    device: Arc<OwnedFd>,
    id: u32,
}

impl BackingFile {
    /// Makes `file` known to the session of `device`. Fails if the kernel does not want it: on a
    /// stack of filesystems too deep, for instance.
    pub(super) fn new(device: &Arc<OwnedFd>, file: &OwnedFd) -> io::Result<Self> {
        let id = sys::open_backing(device.as_fd(), file.as_fd())?;
        Ok(Self {
            device: Arc::clone(device),
            id,
        })
    }

    /// Returns the kernel's number for it.
    pub(super) fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for BackingFile {
    fn drop(&mut self) {
        if let Err(error) = sys::close_backing(self.device.as_fd(), self.id) {
            log::debug!(
                "cannot close backing file {} of device {}: {error}",
                self.id,
                self.device.as_raw_fd()
            );
        }
    }
}
