//! What differs between two layers, by path, in time proportional to what was changed since their
//! common ancestor.
//!
//! The delta of the layers on both lines names every inode and every name that may differ. From
//! these the paths are followed upwards, so that the walk from the root down visits only
//! directories on the way to a change.

mod compare;
mod delta;
mod walk;

use std::sync::Arc;

use crate::attr::Attr;
use crate::error::{Error, Result};
use crate::id::LayerId;
use crate::layout::record::LayerState;
use crate::store::Store;
use crate::view::View;

pub(crate) use compare::{same_content, same_xattrs};

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It has other content.
    Modified,
    /// It has another mode, owner or extended attributes, and the same content.
    Metadata,
    /// The same inode was at another path before. Content may differ too.
    Renamed,
    /// It is a file of another kind.
    TypeChanged,
}

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path below the root, without leading slash: in the new layer, or if it is gone, in the
    /// old one.
    pub path: Vec<u8>,
    /// What happened to it.
    pub kind: ChangeKind,
    /// What it was.
    pub old: Option<Attr>,
    /// What it is.
    pub new: Option<Attr>,
    /// The path before, of something renamed.
    pub renamed_from: Option<Vec<u8>>,
}

/// Returns what differs between layers `a` (old) and `b` (new), sorted by path. A directory that
/// moved is one change; times do not count.
///
/// # Errors
/// [`Error::BadLayer`] for a layer that is no branch's head and not frozen, and those of reading.
pub fn diff(store: &Arc<Store>, a: LayerId, b: LayerId) -> Result<Vec<Change>> {
    if a == b {
        return Ok(Vec::new());
    }
    let delta = delta::between(store, a, b)?;
    let (old, new) = (look(store, a)?, look(store, b)?);
    walk::walk(&old, &new, delta)
}

/// Returns a view of a layer: of an open one, its branch's.
///
/// # Errors
/// [`Error::BadLayer`] for a layer that nobody can look at.
pub(crate) fn look(store: &Arc<Store>, layer: LayerId) -> Result<Arc<View>> {
    let state = store.layer_table().get(layer)?.state;
    if state != LayerState::Open {
        return store.view_at(layer);
    }
    let branch = store
        .branches()?
        .into_iter()
        .find(|branch| branch.head == layer);
    let what = "it is open and no branch's head";
    let branch = branch.ok_or(Error::BadLayer { layer, what })?;
    store.view(&branch.name)
}
