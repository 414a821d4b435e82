//! One side of a comparison, in the other side's inode numbers.
//!
//! Many programs save a file by writing another one and renaming it over the first, and a removed
//! directory may be made again. To people that is the same file at the same path. So an inode that
//! took a dead one's place is treated as the dead one: both are the same *entity*, whose number is
//! that of the older inode.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::attr::FileKind;
use crate::entity::Tree;
use crate::error::Result;
use crate::id::Ino;
use crate::layout::record::InodeRecord;

/// A name in a directory, the directory as an entity.
pub(crate) type Place = (Ino, Vec<u8>);

/// A tree whose inodes are looked at as entities.
#[derive(Debug)]
pub(crate) struct Side<'a> {
    pub(crate) tree: &'a Tree,
    entities: HashMap<Ino, Ino>,
    inos: HashMap<Ino, Ino>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(tree: &'a Tree) -> Self {
        Self {
            tree,
            entities: HashMap::new(),
            inos: HashMap::new(),
        }
    }

    /// Returns the entity that an inode of this side is.
    pub(crate) fn entity(&self, ino: Ino) -> Ino {
        self.entities.get(&ino).copied().unwrap_or(ino)
    }

    /// Returns the inode that an entity is on this side.
    pub(crate) fn ino(&self, entity: Ino) -> Ino {
        self.inos.get(&entity).copied().unwrap_or(entity)
    }

    /// Returns the entities that are another inode on this side.
    pub(crate) fn aliased(&self) -> impl Iterator<Item = Ino> {
        self.inos.keys().copied()
    }

    /// Returns the inode of an entity, if it has a name on this side.
    pub(crate) fn record(&self, entity: Ino) -> Result<Option<InodeRecord>> {
        self.tree.record(self.ino(entity))
    }

    /// Returns the entity for which a name stands.
    pub(crate) fn name(&self, place: &Place) -> Result<Option<(Ino, FileKind)>> {
        let found = self.tree.name(self.ino(place.0), &place.1)?;
        Ok(found.map(|found| (self.entity(found.ino), found.kind)))
    }

    /// Returns a path of a name on this side.
    pub(crate) fn path(&self, place: &Place) -> Result<Option<Vec<u8>>> {
        self.tree.path(self.ino(place.0), &place.1)
    }

    /// Returns changed names of this side with directories as entities.
    pub(crate) fn places(&self, names: &BTreeMap<Ino, BTreeSet<Vec<u8>>>) -> BTreeSet<Place> {
        let each = names.iter().flat_map(|(parent, names)| {
            let parent = self.entity(*parent);
            names.iter().map(move |name| (parent, name.clone()))
        });
        each.collect()
    }

    fn alias(&mut self, ino: Ino, entity: Ino) {
        self.entities.insert(ino, entity);
        self.inos.insert(entity, ino);
    }

    /// Finds the inodes of this side that took the place of one of `old`, at or below the changed
    /// `names`: the same path and kind, the old one gone here and the new one unknown there.
    pub(crate) fn match_reborn(
        &mut self,
        old: &Tree,
        names: &BTreeMap<Ino, BTreeSet<Vec<u8>>>,
    ) -> Result<()> {
        let mut dirs: VecDeque<(Ino, Ino)> = VecDeque::new();
        for dir in names.keys() {
            if old.record(*dir)?.is_some() {
                dirs.push_back((*dir, *dir));
            }
        }
        while let Some((dir, old_dir)) = dirs.pop_front() {
            for name in names.get(&dir).into_iter().flatten() {
                let (Some(was), Some(is)) = (old.name(old_dir, name)?, self.tree.name(dir, name)?)
                else {
                    continue;
                };
                let taken = self.entities.contains_key(&is.ino) || self.inos.contains_key(&was.ino);
                if was.kind == is.kind
                    && was.ino != is.ino
                    && !taken
                    && old.record(is.ino)?.is_none()
                    && self.tree.record(was.ino)?.is_none()
                {
                    self.alias(is.ino, was.ino);
                    if is.kind == FileKind::Directory {
                        dirs.push_back((is.ino, was.ino));
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds what this side and `other` both made, of one kind, at one path since the tree `old`.
    pub(crate) fn match_added(
        &mut self,
        old: &Tree,
        other: &Side<'_>,
        names: &BTreeMap<Ino, BTreeSet<Vec<u8>>>,
    ) -> Result<()> {
        let mut dirs: VecDeque<Ino> = VecDeque::new();
        for dir in names.keys() {
            let entity = self.entity(*dir);
            if old.record(entity)?.is_some() && other.record(entity)?.is_some() {
                dirs.push_back(*dir);
            }
        }
        while let Some(dir) = dirs.pop_front() {
            let entity = self.entity(dir);
            for name in names.get(&dir).into_iter().flatten() {
                let place = (entity, name.clone());
                let (Some(mine), Some((theirs, kind))) =
                    (self.tree.name(dir, name)?, other.name(&place)?)
                else {
                    continue;
                };
                let made_here = old.record(self.entity(mine.ino))?.is_none();
                let made_there = old.record(theirs)?.is_none();
                if !made_here || !made_there || mine.kind != kind {
                    continue;
                }
                let taken =
                    self.entities.contains_key(&mine.ino) || self.inos.contains_key(&theirs);
                if mine.ino != theirs {
                    if taken || other.record(mine.ino)?.is_some() {
                        continue;
                    }
                    self.alias(mine.ino, theirs);
                }
                if kind == FileKind::Directory {
                    dirs.push_back(mine.ino);
                }
            }
        }
        Ok(())
    }
}
