//! Files opened through the kernel's passthrough: which inode is open how, and on what.
//!
//! The kernel holds one backing file per inode for as long as the inode is open, and refuses every
//! other kind of open meanwhile. So the first open of an inode decides for all that overlap it.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::fuse::wire::BackingFile;

/// How an inode is open.
#[derive(Debug)]
enum Kind {
    /// Straight on a file of the base.
    Backed(BackingFile),
    /// Through the daemon and the page cache.
    Ordinary,
}

/// The inodes that are open, with the number of opens.
#[derive(Debug)]
pub(super) struct Backings {
    device: Arc<OwnedFd>,
    open: Mutex<HashMap<u64, (Kind, u64)>>,
}

impl Backings {
    /// Starts with nothing open in the session of `device`.
    pub(super) fn new(device: Arc<OwnedFd>) -> Self {
        Self {
            device,
            open: Mutex::default(),
        }
    }

    /// Counts an open of `node`. Returns the number of the backing file if this and all other opens of
    /// it go there; `base` is asked for the file if the inode is not open yet.
    pub(super) fn open(
        &self,
        node: u64,
        base: impl FnOnce() -> Result<Option<OwnedFd>>,
    ) -> Result<Option<u32>> {
        let mut open = self.open.lock();
        if let Some((kind, count)) = open.get_mut(&node) {
            *count += 1;
            return Ok(kind.id());
        }
        // A base that the kernel refuses (on a stack of filesystems too deep) is served by us.
        let file = base()?.and_then(|file| BackingFile::new(&self.device, &file).ok());
        let kind = file.map_or(Kind::Ordinary, Kind::Backed);
        let id = kind.id();
        open.insert(node, (kind, 1));
        Ok(id)
    }

    /// Counts an open of `node`, which is open in no other way, through the daemon.
    pub(super) fn open_ordinary(&self, node: u64) {
        let mut open = self.open.lock();
        open.entry(node).or_insert((Kind::Ordinary, 0)).1 += 1;
    }

    /// Counts a release of `node`; the last one lets go of the backing file.
    pub(super) fn release(&self, node: u64) {
        let mut open = self.open.lock();
        if let Some((_, count)) = open.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                open.remove(&node);
            }
        }
    }
}

impl Kind {
    fn id(&self) -> Option<u32> {
        match self {
            Self::Backed(file) => Some(file.id()),
            Self::Ordinary => None,
        }
    }
}
