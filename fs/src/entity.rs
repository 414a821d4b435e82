//! One layer as a tree of paths, for the operations on whole layers.

mod delta;
mod side;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::attr::FileKind;
use crate::error::Result;
use crate::id::{BlockIndex, Ino, LayerId};
use crate::layout::record::{DentryRecord, InodeRecord};
use crate::store::Store;
use crate::view::View;

pub(crate) use delta::LayerDelta;
pub(crate) use side::{Place, Side};

/// Blocks compared in one go.
const WINDOW_BLOCKS: u64 = 1024;

/// Extended attributes by name.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

/// A layer, read-only. Unlike a branch's view it may look at a layer that is still open; what the
/// branch writes meanwhile may or may not be seen.
#[derive(Debug)]
pub(crate) struct Tree {
    view: View,
}

impl Tree {
    pub(crate) fn new(store: &Arc<Store>, layer: LayerId) -> Self {
        Self {
            view: View::new(Arc::clone(store), layer, None, true),
        }
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Returns an inode that has a name.
    pub(crate) fn record(&self, ino: Ino) -> Result<Option<InodeRecord>> {
        self.view.find_record(ino)
    }

    /// Returns what a name stands for.
    pub(crate) fn name(&self, parent: Ino, name: &[u8]) -> Result<Option<DentryRecord>> {
        self.view.find_name(parent, name)
    }

    /// Returns all names of an inode that lead to it, in order.
    pub(crate) fn names(&self, ino: Ino) -> Result<Vec<(Ino, Vec<u8>)>> {
        if self.record(ino)?.is_none() {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for (parent, name) in self.view.names_of(ino)? {
            if ino != Ino::ROOT
                && self
                    .name(parent, &name)?
                    .is_some_and(|found| found.ino == ino)
            {
                names.push((parent, name));
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Returns the path of a directory, empty for the root; [`None`] if it is not in the tree.
    pub(crate) fn dir_path(&self, dir: Ino) -> Result<Option<Vec<u8>>> {
        match self.record(dir)? {
            Some(_) => self.view.path_of(dir),
            None => Ok(None),
        }
    }

    /// Returns the path of a name in a directory.
    pub(crate) fn path(&self, parent: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.dir_path(parent)?.map(|mut path| {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            path
        }))
    }

    /// Returns all extended attributes of an inode.
    pub(crate) fn xattrs(&self, ino: Ino) -> Result<Xattrs> {
        let mut all = Xattrs::new();
        for name in self.view.listxattr(ino)? {
            let value = self.view.getxattr(ino, &name)?;
            all.insert(name, value);
        }
        Ok(all)
    }

    /// Returns whether what programs read of a file is the same here and in another tree.
    ///
    /// With `changed`, only those blocks of it can differ: it is the same inode in both.
    pub(crate) fn same_content(
        &self,
        mine: &InodeRecord,
        other: &Tree,
        theirs: &InodeRecord,
        changed: Option<&ChangedBlocks>,
    ) -> Result<bool> {
        if mine.attr.kind != theirs.attr.kind || mine.attr.rdev != theirs.attr.rdev {
            return Ok(false);
        }
        match mine.attr.kind {
            FileKind::Symlink => return Ok(mine.target == theirs.target),
            FileKind::Regular => {}
            _ => return Ok(true),
        }
        if mine.attr.size != theirs.attr.size {
            return Ok(false);
        }
        let end = Store::blocks_of(mine.attr.size);
        let rest = changed.map_or(0, |changed| changed.all_from.min(end));
        let same = |first: u64, count: u64| {
            self.view
                .same_blocks(mine, &other.view, theirs, BlockIndex(first), count)
        };
        if let Some(changed) = changed {
            for block in changed.blocks.iter().filter(|block| **block < rest) {
                if !same(*block, 1)? {
                    return Ok(false);
                }
            }
        }
        // Where neither has anything there is nothing to compare, however large the file.
        let mut extents = Vec::new();
        if rest < end {
            extents = self.view.extents(mine)?;
            extents.extend(other.view.extents(theirs)?);
        }
        for extent in extents {
            let mut first = extent.start.max(rest);
            while first < extent.end {
                let count = WINDOW_BLOCKS.min(extent.end - first);
                if !same(first, count)? {
                    return Ok(false);
                }
                first += count;
            }
        }
        Ok(true)
    }
}

/// Which blocks of an inode two layers may have different.
#[derive(Debug)]
pub(crate) struct ChangedBlocks {
    /// These.
    pub(crate) blocks: std::collections::BTreeSet<u64>,
    /// And all from this one on.
    pub(crate) all_from: u64,
}
