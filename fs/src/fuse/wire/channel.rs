//! The way to the kernel: requests in, answers out.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;

use crate::fuse::wire::abi::OUT_HEADER_BYTES;
use crate::fuse::wire::sys;

/// A descriptor of a session's device.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    device: Arc<OwnedFd>,
}

impl Channel {
    /// Talks through `device`.
    pub(super) fn new(device: Arc<OwnedFd>) -> Self {
        Self { device }
    }

    /// Returns a channel of the same session with a queue of its own.
    pub(super) fn cloned(&self) -> io::Result<Self> {
        sys::clone_device(self.device.as_fd()).map(|device| Self::new(Arc::new(device)))
    }

    /// Returns the descriptor.
    pub(super) fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// Waits for a request; returns its length, or `None` when the session has ended. `buffer` must be
    /// large enough for what was agreed on.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match nix::unistd::read(&self.device, buffer) {
                Ok(bytes) => return Ok(Some(bytes)),
                // ENOENT: the request was taken back before it was read.
                Err(Errno::ENOENT | Errno::EINTR | Errno::EAGAIN) => {}
                Err(Errno::ENODEV | Errno::ECONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answers request `unique` with a body or, if `error` is given, with that.
    pub(super) fn answer(&self, unique: u64, error: Option<Errno>, body: &[u8]) {
        let body = if error.is_some() { &[] } else { body };
        let header = out_header(unique, error, body.len());
        let pieces = [IoSlice::new(&header), IoSlice::new(body)];
        match nix::sys::uio::writev(&*self.device, &pieces) {
            // ENOENT: the session was ended by force, and nobody waits any more.
            Ok(_) | Err(Errno::ENOENT | Errno::ENODEV | Errno::ECONNABORTED) => {}
            Err(errno) => {
                log::error!("the kernel does not take an answer: {errno}");
                // Whoever waits must not wait for ever.
                let header = out_header(unique, Some(Errno::EIO), 0);
                let _ = nix::unistd::write(&*self.device, &header);
            }
        }
    }
}

/// Returns the head of an answer.
pub(super) fn out_header(
    unique: u64,
    error: Option<Errno>,
    body_bytes: usize,
) -> [u8; OUT_HEADER_BYTES] {
    let len = u32::try_from(OUT_HEADER_BYTES + body_bytes).unwrap_or(u32::MAX);
    let error = error.map_or(0, |errno| -(errno as i32));
    let mut header = [0; OUT_HEADER_BYTES];
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_negative() {
        let header = out_header(9, Some(Errno::ENOENT), 0);
        let expected = [
            &16u32.to_ne_bytes()[..],
            &(-2i32).to_ne_bytes(),
            &9u64.to_ne_bytes(),
        ];
        assert_eq!(header[..], expected.concat());
    }

    #[test]
    fn the_length_counts_the_header() {
        assert_eq!(out_header(1, None, 8)[..4], 24u32.to_ne_bytes());
    }
}
