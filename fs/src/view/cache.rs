//! Inodes of a head in memory.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::id::{Ino, LayerId};
use crate::layout::record::InodeRecord;

/// The visible version of an inode, and the layer that wrote it.
#[derive(Clone, Debug)]
pub(crate) struct InodeVersion {
    pub(crate) layer: LayerId,
    pub(crate) record: InodeRecord,
}

const SHARDS: usize = 64;
/// Inodes a shard keeps at most; about 300 bytes each. A full shard starts anew: what is in use
/// comes back at once, and keeping an order of use would cost more than it saves.
const SHARD_INODES_MAX: usize = 4096;

/// A bounded cache. Whoever changes an inode puts the new version in after it was written, under
/// the inode's lock; a reader puts in what it read under the same lock or only if nothing is there.
#[derive(Debug)]
pub(super) struct InodeCache {
    shards: Vec<Mutex<HashMap<Ino, Arc<InodeVersion>>>>,
}

impl InodeCache {
    pub(super) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect(),
        }
    }

    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, Arc<InodeVersion>>> {
        let at = usize::try_from(ino.0 % SHARDS as u64).unwrap_or(0);
        &self.shards[at]
    }

    pub(super) fn get(&self, ino: Ino) -> Option<Arc<InodeVersion>> {
        self.shard(ino).lock().get(&ino).cloned()
    }

    pub(super) fn put(&self, ino: Ino, version: Arc<InodeVersion>) {
        let mut shard = self.shard(ino).lock();
        if shard.len() >= SHARD_INODES_MAX && !shard.contains_key(&ino) {
            shard.clear();
        }
        shard.insert(ino, version);
    }

    pub(super) fn remove(&self, ino: Ino) {
        self.shard(ino).lock().remove(&ino);
    }
}
