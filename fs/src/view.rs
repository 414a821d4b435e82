//! The filesystem as seen from one head: POSIX operations as plain Rust functions.
//!
//! No kernel adapter's types, no permission checks (the kernel makes them from the attributes it
//! gets), one file for each family of operations. Every operation reads what it needs, collects its
//! changes in an [`edit::Edit`], and writes them as one atomic batch.

mod acl;
mod allocate;
mod annex;
mod cache;
mod content;
mod copy;
mod create;
mod delta;
mod edit;
mod file;
pub(crate) mod graft;
mod listing;
mod names;
mod op;
mod orphan;
mod preserve;
mod remove;
mod rename;
mod setattr;
mod shown;
mod truncate;
mod xattr;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};

use crate::attr::{Attr, Statfs, Timestamp};
use crate::error::{Error, Result};
use crate::id::{Ino, LayerId};
use crate::layout::bitmap::Bitmap;
use crate::store::Store;

use cache::InodeCache;
pub use delta::Delta;
use op::Locks;
use shown::Shown;

/// The longest name of a directory entry, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Bitmaps kept in memory at most; about 100 bytes each. They are on disk too.
const BITMAPS_MAX: usize = 1 << 16;

/// A view of one head. Of an open layer there is exactly one.
#[derive(Debug)]
pub struct View {
    store: Arc<Store>,
    shown: Shown,
    /// Held for reading by every operation, for writing while the head changes: nothing is under
    /// way when a layer is frozen.
    gate: RwLock<Gate>,
    read_only: bool,
    branch: Mutex<Option<String>>,
    locks: Locks,
    /// Held while a rename may change the shape of the tree.
    tree: Mutex<()>,
    inodes: InodeCache,
    /// Which blocks the head holds: a part of table `changes`.
    owned: Mutex<HashMap<(Ino, u64), Bitmap>>,
    /// How often each inode is known outside, by the kernel for instance.
    references: Mutex<HashMap<Ino, u64>>,
    /// Access times newer than the stored ones. They are stored with the inode's next change:
    /// reading does not make a layer differ from its parent.
    atimes: Mutex<HashMap<Ino, Timestamp>>,
}

/// What the gate guards.
#[derive(Debug)]
pub(crate) struct Gate {
    head: LayerId,
    /// Another view has taken this one's place; operations fail with ESTALE.
    retired: bool,
}

impl View {
    pub(crate) fn new(
        store: Arc<Store>,
        head: LayerId,
        branch: Option<String>,
        read_only: bool,
    ) -> Self {
        Self {
            read_only: read_only || store.read_only(),
            shown: Shown::new(Arc::clone(&store), head),
            store,
            gate: RwLock::new(Gate {
                head,
                retired: false,
            }),
            branch: Mutex::new(branch),
            locks: Locks::new(),
            tree: Mutex::new(()),
            inodes: InodeCache::new(),
            owned: Mutex::new(HashMap::new()),
            references: Mutex::new(HashMap::new()),
            atimes: Mutex::new(HashMap::new()),
        }
    }

    /// Returns the store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the layer in which the next change goes, or which is shown.
    pub fn head(&self) -> LayerId {
        self.gate.read().head
    }

    /// Returns whether nothing can be changed.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the branch whose head is shown, if it is a branch's.
    pub fn branch(&self) -> Option<String> {
        self.branch.lock().clone()
    }

    pub(crate) fn set_branch(&self, name: Option<String>) {
        *self.branch.lock() = name;
    }

    /// Waits for operations under way and keeps new ones out until the guard is dropped.
    pub(crate) fn close_gate(&self) -> RwLockWriteGuard<'_, Gate> {
        self.gate.write()
    }

    /// Goes on in `head`, a new layer on the frozen one.
    pub(crate) fn advance(&self, gate: &mut Gate, head: LayerId) {
        self.shown.advance(head);
        gate.head = head;
        // What the cache says of attributes stays true, what it says of the head's own blocks not.
        self.owned.lock().clear();
    }

    /// Ends this view: another one has taken its place.
    pub(crate) fn retire(&self, gate: &mut Gate) {
        gate.retired = true;
    }

    /// Counts `count` more references to `ino` from outside.
    pub fn remember(&self, ino: Ino, count: u64) {
        *self.references.lock().entry(ino).or_insert(0) += count;
    }

    /// Counts `count` references fewer. With the last one, an inode without a name is removed.
    pub fn forget(&self, ino: Ino, count: u64) {
        let gone = {
            let mut references = self.references.lock();
            match references.get_mut(&ino) {
                Some(held) if *held > count => {
                    *held -= count;
                    false
                }
                Some(_) => references.remove(&ino).is_some(),
                None => false,
            }
        };
        if gone {
            self.atimes.lock().remove(&ino);
            self.remove_if_orphan(ino);
        }
    }

    /// Returns whether somebody outside knows `ino`.
    pub fn knows(&self, ino: Ino) -> bool {
        self.references.lock().contains_key(&ino)
    }

    /// Takes all references, for the view that takes this one's place.
    pub fn take_references(&self) -> Vec<(Ino, u64)> {
        self.references.lock().drain().collect()
    }

    /// Forgets all references: nobody outside knows an inode any more. Those without a name are removed.
    pub(crate) fn end_references(&self) {
        self.references.lock().clear();
        self.atimes.lock().clear();
        if self.read_only {
            return;
        }
        if let Err(error) = self.remove_orphans(&[])
            && error.errno() != nix::errno::Errno::ESTALE
        {
            log::warn!("cannot remove inodes that have no name left: {error}");
        }
    }

    /// Adds references that another view had.
    pub fn adopt_references(&self, references: &[(Ino, u64)]) {
        let mut held = self.references.lock();
        for (ino, count) in references {
            *held.entry(*ino).or_insert(0) += count;
        }
    }

    /// Returns the numbers of the disk on which the store lies.
    ///
    /// # Errors
    /// [`Error::Io`] if the system does not tell.
    pub fn statfs(&self) -> Result<Statfs> {
        let dir = self.store.dir();
        let disk = nix::sys::statvfs::statvfs(dir).map_err(|errno| {
            Error::io(format!("look at the disk of '{}'", dir.display()), errno)
        })?;
        let block_bytes = u32::try_from(disk.fragment_size()).unwrap_or(4096);
        Ok(Statfs {
            block_bytes,
            blocks: disk.blocks(),
            blocks_free: disk.blocks_free(),
            blocks_available: disk.blocks_available(),
            inodes: disk.files(),
            inodes_free: disk.files_free(),
            name_bytes_max: 255,
        })
    }

    /// Puts everything acknowledged on the disk; there is one log, so that is not only this file.
    ///
    /// # Errors
    /// As [`Store::sync`].
    pub fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        if self.read_only {
            Ok(())
        } else {
            self.store.sync()
        }
    }

    fn with_newer_atime(&self, mut attr: Attr) -> Attr {
        if let Some(atime) = self.atimes.lock().get(&attr.ino)
            && *atime > attr.atime
        {
            attr.atime = *atime;
        }
        attr
    }
}
