//! The differences between two layers, by path, in time proportional to what was changed since
//! their common ancestor.

mod moves;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::attr::{Attr, FileKind};
use crate::entity::{LayerDelta, Place, Side, Tree};
use crate::error::Result;
use crate::id::{Ino, LayerId};
use crate::layout::record::InodeRecord;
use crate::store::Store;

use moves::Moves;

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// There was nothing before.
    Added,
    /// There is nothing now.
    Removed,
    /// The content is another one: bytes of a file, target of a link, number of a device.
    Modified,
    /// The content is the same, but not mode, owner or extended attributes.
    Metadata,
    /// It had another path before. What is below a renamed directory is not listed.
    Renamed,
    /// It was something of another kind.
    TypeChanged,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Path below the root without leading slash: the new one, or if there is none, the old one.
    pub path: Vec<u8>,
    /// What happened.
    pub kind: ChangeKind,
    /// What was there before.
    pub old: Option<Attr>,
    /// What is there now.
    pub new: Option<Attr>,
    /// The path that it had before it was renamed.
    pub renamed_from: Option<Vec<u8>>,
}

/// Returns what must be done to `a` to make it `b`, sorted by path. A file that was renamed and
/// changed is listed twice. Differences in times alone are none.
///
/// `a` may be newer than `b`, or lie on another branch. Heads of branches may be given, once what
/// programs wrote has been flushed to them.
///
/// # Errors
/// [`Error::BadLayer`](crate::Error::BadLayer) if a layer does not exist, and those of reading.
pub fn diff(store: &Arc<Store>, a: LayerId, b: LayerId) -> Result<Vec<Change>> {
    compare(store, a, b, false)
}

/// As [`diff`]; a modification time of something other than a directory counts as metadata.
///
/// # Errors
/// As [`diff`].
pub fn diff_with_times(store: &Arc<Store>, a: LayerId, b: LayerId) -> Result<Vec<Change>> {
    compare(store, a, b, true)
}

fn compare(store: &Arc<Store>, a: LayerId, b: LayerId, times: bool) -> Result<Vec<Change>> {
    let [mut delta, other] = LayerDelta::since_common(store, a, b)?;
    delta.merge(other);
    let (old, new) = (Tree::new(store, a), Tree::new(store, b));
    let mut side = Side::new(&new);
    side.match_reborn(&old, &delta.names)?;
    let mut differ = Differ {
        old,
        side,
        delta,
        times,
        changes: Vec::new(),
    };
    let moves = differ.names()?;
    differ.states(&moves)?;
    let mut changes = differ.changes;
    changes.sort_by(|a, b| (&a.path, a.kind).cmp(&(&b.path, b.kind)));
    Ok(changes)
}

struct Differ<'a> {
    old: Tree,
    side: Side<'a>,
    delta: LayerDelta,
    times: bool,
    changes: Vec<Change>,
}

impl Differ<'_> {
    /// Lists names that came, went or moved. Returns them.
    fn names(&mut self) -> Result<Moves> {
        let mut moves = Moves::default();
        for place in self.side.places(&self.delta.names) {
            let was = self.old.name(place.0, &place.1)?.map(|found| found.ino);
            let is = self.side.name(&place)?.map(|(entity, _)| entity);
            if was != is {
                moves.note(place, was, is);
            }
        }
        moves.pair();
        for (entity, from, to) in &moves.renamed {
            let (Some(path), Some(from)) = (self.new_path(to)?, self.old_path(from)?) else {
                continue;
            };
            let (old, new) = (self.old_attr(*entity)?, self.new_attr(*entity)?);
            let kind = ChangeKind::Renamed;
            // A file below a renamed directory that was moved along is not renamed by itself.
            self.changes.push(Change {
                path,
                kind,
                old,
                new,
                renamed_from: Some(from),
            });
        }
        for (place, entity) in &moves.removed {
            let now = moves.added.get(place);
            let replaced = moves.renamed.iter().any(|(_, _, to)| to == place);
            let Some(path) = self.old_path(place)? else {
                continue;
            };
            let old = self.old_attr(*entity)?;
            match now {
                Some(now) => self.replaced(path, *entity, *now)?,
                // The path is there, listed as the renamed thing's.
                None if replaced => {}
                None => self.push(path, ChangeKind::Removed, old, None),
            }
        }
        for (place, entity) in &moves.added {
            if moves.removed.contains_key(place) {
                continue;
            }
            let Some(path) = self.new_path(place)? else {
                continue;
            };
            let new = self.new_attr(*entity)?;
            self.push(path, ChangeKind::Added, None, new);
        }
        Ok(moves)
    }

    /// One path led to one thing and leads to another.
    fn replaced(&mut self, path: Vec<u8>, was: Ino, is: Ino) -> Result<()> {
        let (Some(old), Some(new)) = (self.old.record(was)?, self.side.record(is)?) else {
            return Ok(());
        };
        if old.attr.kind != new.attr.kind {
            self.push(
                path,
                ChangeKind::TypeChanged,
                Some(old.attr),
                Some(new.attr),
            );
        } else if let Some(kind) = self.difference(&old, &new)? {
            self.push(path, kind, Some(old.attr), Some(new.attr));
        }
        Ok(())
    }

    /// Lists what kept its path and is not what it was.
    fn states(&mut self, moves: &Moves) -> Result<()> {
        let mut entities: BTreeSet<Ino> = self
            .delta
            .inodes
            .iter()
            .map(|ino| self.side.entity(*ino))
            .collect();
        entities.extend(self.side.aliased());
        for entity in entities {
            let (Some(old), Some(new)) = (self.old.record(entity)?, self.side.record(entity)?)
            else {
                continue;
            };
            let Some(kind) = self.difference(&old, &new)? else {
                continue;
            };
            if new.attr.ino == Ino::ROOT {
                self.push(Vec::new(), kind, Some(old.attr), Some(new.attr));
            }
            for (dir, name) in self.side.tree.names(new.attr.ino)? {
                let place = (self.side.entity(dir), name);
                if moves.added.contains_key(&place) {
                    continue;
                }
                if let Some(path) = self.new_path(&place)? {
                    self.push(path, kind, Some(old.attr), Some(new.attr));
                }
            }
        }
        Ok(())
    }

    fn difference(&self, old: &InodeRecord, new: &InodeRecord) -> Result<Option<ChangeKind>> {
        let changed = self.delta.changed_blocks(old, new);
        if !self
            .old
            .same_content(old, self.side.tree, new, changed.as_ref())?
        {
            return Ok(Some(ChangeKind::Modified));
        }
        let plain = |attr: &Attr| (attr.perm, attr.uid, attr.gid);
        let times = self.times && old.attr.kind != FileKind::Directory;
        let same = plain(&old.attr) == plain(&new.attr)
            && !(times && old.attr.mtime != new.attr.mtime)
            && self.old.xattrs(old.attr.ino)? == self.side.tree.xattrs(new.attr.ino)?;
        Ok((!same).then_some(ChangeKind::Metadata))
    }

    fn push(&mut self, path: Vec<u8>, kind: ChangeKind, old: Option<Attr>, new: Option<Attr>) {
        self.changes.push(Change {
            path,
            kind,
            old,
            new,
            renamed_from: None,
        });
    }

    fn old_path(&self, place: &Place) -> Result<Option<Vec<u8>>> {
        self.old.path(place.0, &place.1)
    }

    fn new_path(&self, place: &Place) -> Result<Option<Vec<u8>>> {
        self.side.path(place)
    }

    fn old_attr(&self, entity: Ino) -> Result<Option<Attr>> {
        Ok(self.old.record(entity)?.map(|record| record.attr))
    }

    fn new_attr(&self, entity: Ino) -> Result<Option<Attr>> {
        Ok(self.side.record(entity)?.map(|record| record.attr))
    }
}
