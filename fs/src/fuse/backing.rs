//! Files opened through the kernel's passthrough: which inode is open how, and on what.
//!
//! The kernel holds one backing file per inode for as long as the inode is open, and refuses every
//! other kind of open meanwhile. So the first open of an inode decides for all that overlap it.

use std::collections::HashMap;
use std::sync::Arc;

use fuser::BackingId;
use parking_lot::Mutex;

/// How an inode is open.
#[derive(Debug)]
enum Kind {
    /// Straight on a file of the base.
    Backed(Arc<BackingId>),
    /// Through the daemon and the page cache.
    Ordinary,
}

/// The inodes that are open, with the number of opens.
#[derive(Debug, Default)]
pub(super) struct Backings {
    open: Mutex<HashMap<u64, (Kind, u64)>>,
}

impl Backings {
    /// Counts an open of `node`. Returns the backing file if this and all other opens of it go there;
    /// `make` is asked for one if the inode is not open yet.
    pub(super) fn open<E>(
        &self,
        node: u64,
        make: impl FnOnce() -> Result<Option<BackingId>, E>,
    ) -> Result<Option<Arc<BackingId>>, E> {
        let mut open = self.open.lock();
        if let Some((kind, count)) = open.get_mut(&node) {
            *count += 1;
            return Ok(match kind {
                Kind::Backed(id) => Some(id.clone()),
                Kind::Ordinary => None,
            });
        }
        let id = make()?.map(Arc::new);
        let kind = id.clone().map_or(Kind::Ordinary, Kind::Backed);
        open.insert(node, (kind, 1));
        Ok(id)
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
