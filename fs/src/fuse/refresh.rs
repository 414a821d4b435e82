//! Makes the kernel ask again how much space a file takes once it was written: nothing else tells
//! it, and it would believe for hours what it heard first.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::fuse::notify::Notifier;

/// A file written piece by piece is mentioned once in this time.
const PAUSE: Duration = Duration::from_millis(1);

/// Tells the kernel about files that take more or less space than before.
#[derive(Debug)]
pub(super) struct Refresher {
    notifier: Arc<Notifier>,
    later: Sender<u64>,
}

impl Refresher {
    /// Starts the thread that tells; it ends with this.
    pub(super) fn start(device: Arc<OwnedFd>) -> Result<Self> {
        let notifier = Arc::new(Notifier::new(device));
        let (later, nodes) = mpsc::channel();
        let theirs = Arc::clone(&notifier);
        std::thread::Builder::new()
            .name("bp-refresh".to_owned())
            .spawn(move || tell(&theirs, &nodes))
            .map_err(|error| Error::io("start the thread that refreshes attributes", error))?;
        Ok(Self { notifier, later })
    }

    /// Mentions a file from a thread that answers requests. The kernel may be about to drop the
    /// inode and wait for its last writes to be answered before it takes the message, so such a
    /// thread must not wait for the kernel.
    pub(super) fn mention(&self, node: u64) {
        // A receiver that is gone means that the session is over.
        let _ = self.later.send(node);
    }

    /// Tells the kernel now. Only while a request for that very inode is being answered whose
    /// sender has it open, for then it cannot be about to be dropped.
    pub(super) fn tell_at_once(&self, node: u64) {
        let _ = self.notifier.invalidate_attributes(node);
    }
}

fn tell(notifier: &Notifier, nodes: &Receiver<u64>) {
    while let Ok(first) = nodes.recv() {
        let mut mentioned: HashSet<u64> = nodes.try_iter().collect();
        mentioned.insert(first);
        for node in mentioned {
            if let Err(error) = notifier.invalidate_attributes(node) {
                log::warn!("{error}");
                return;
            }
        }
        std::thread::sleep(PAUSE);
    }
}
