//! Telling the kernel to forget. Only from threads that answer no requests: the kernel may have to
//! wait for an answer before it can forget.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;

use crate::error::{Error, Result};

/// A message's header: its length, what it says, and no request that it would answer.
const HEADER_BYTES: usize = 16;

// Numbers of the notifications, from linux/fuse.h.
const INVALIDATE_INODE: u32 = 2;
const INVALIDATE_ENTRY: u32 = 3;
const INCREMENT_EPOCH: u32 = 8;

/// The way to the kernel of one session.
#[derive(Debug)]
pub(super) struct Notifier {
    device: Arc<OwnedFd>,
    /// Whether names can be expired all at once; found out when that is first wanted.
    epochs: OnceLock<bool>,
}

impl Notifier {
    /// Sends through a descriptor of the session's device.
    pub(super) fn new(device: Arc<OwnedFd>) -> Self {
        Self {
            device,
            epochs: OnceLock::new(),
        }
    }

    /// With `false`, behaves as on a kernel that cannot expire all names at once.
    pub(super) fn with_epochs(self, epochs: bool) -> Self {
        if !epochs {
            // It is fresh, so nothing is known yet.
            let _ = self.epochs.set(false);
        }
        self
    }

    /// Says whether the kernel can expire all names at once (Linux 6.16 and newer).
    pub(super) fn has_epochs(&self) -> Result<bool> {
        match self.epochs.get() {
            Some(known) => Ok(*known),
            // Once too often does no harm: the kernel asks again for what it knew.
            None => {
                let can = self.expire_all_entries()?;
                Ok(*self.epochs.get_or_init(|| can))
            }
        }
    }

    /// Returns whether the session is alive. After that, its device number may be another mount's.
    pub(super) fn is_connected(&self) -> bool {
        let mut wanted = [PollFd::new(self.device.as_fd(), PollFlags::empty())];
        // The kernel reports an error as soon as the last mount is gone or the session was ended.
        matches!(poll(&mut wanted, PollTimeout::ZERO), Ok(0))
    }

    /// Makes the kernel ask again for every name, whether it knows it to exist or not. Returns false
    /// if it cannot (Linux before 6.16).
    pub(super) fn expire_all_entries(&self) -> Result<bool> {
        if self.epochs.get() == Some(&false) {
            return Ok(false);
        }
        match write(&*self.device, &message(INCREMENT_EPOCH, &[])) {
            Ok(_) => Ok(true),
            Err(Errno::EINVAL) => Ok(false),
            Err(error) => Err(Error::io("expire the kernel's directory entries", error)),
        }
    }

    /// Makes the kernel drop the pages and attributes of an inode. Waits until pages that it was
    /// writing back are written. An inode that it does not know is no error.
    pub(super) fn invalidate_inode(&self, node: u64) -> Result<()> {
        let mut body = Vec::with_capacity(24);
        body.extend_from_slice(&node.to_ne_bytes());
        // From the first byte, to the last.
        body.extend_from_slice(&0i64.to_ne_bytes());
        body.extend_from_slice(&0i64.to_ne_bytes());
        self.send(
            INVALIDATE_INODE,
            &body,
            "drop an inode from the kernel's cache",
        )
    }

    /// Makes the kernel ask for an inode's attributes again and keep its pages. An inode that it
    /// does not know is no error.
    pub(super) fn invalidate_attributes(&self, node: u64) -> Result<()> {
        let mut body = Vec::with_capacity(24);
        body.extend_from_slice(&node.to_ne_bytes());
        // A negative offset: no pages.
        body.extend_from_slice(&(-1i64).to_ne_bytes());
        body.extend_from_slice(&0i64.to_ne_bytes());
        let step = "drop attributes from the kernel's cache";
        self.send(INVALIDATE_INODE, &body, step)
    }

    /// Makes the kernel drop one name. A name that it does not know is no error.
    pub(super) fn invalidate_entry(&self, parent: u64, name: &[u8]) -> Result<()> {
        let Ok(len) = u32::try_from(name.len()) else {
            return Ok(());
        };
        let mut body = Vec::with_capacity(17 + name.len());
        body.extend_from_slice(&parent.to_ne_bytes());
        body.extend_from_slice(&len.to_ne_bytes());
        body.extend_from_slice(&0u32.to_ne_bytes());
        body.extend_from_slice(name);
        body.push(0);
        self.send(
            INVALIDATE_ENTRY,
            &body,
            "drop a name from the kernel's cache",
        )
    }

    fn send(&self, what: u32, body: &[u8], step: &str) -> Result<()> {
        match write(&*self.device, &message(what, body)) {
            // ENODEV: the mount is gone, and with it all that it remembered.
            Ok(_) | Err(Errno::ENOENT | Errno::ENODEV) => Ok(()),
            Err(error) => Err(Error::io(step, error)),
        }
    }
}

fn message(what: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend_from_slice(&len.to_ne_bytes());
    message.extend_from_slice(&what.to_ne_bytes());
    message.extend_from_slice(&0u64.to_ne_bytes());
    message.extend_from_slice(body);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_message_is_a_bare_header() {
        let expected: Vec<u8> = [16u32, 8, 0, 0]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        assert_eq!(message(INCREMENT_EPOCH, &[]), expected);
    }
}
