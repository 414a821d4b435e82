//! Which names came, which went, and which are renames.

use std::collections::{BTreeMap, BTreeSet};

use crate::entity::Place;
use crate::id::Ino;

/// Names that stand for something else than before.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Names that an entity lost and did not get back elsewhere.
    pub(super) removed: BTreeMap<Place, Ino>,
    /// Names that an entity got without losing another.
    pub(super) added: BTreeMap<Place, Ino>,
    /// Entities that lost one name and got another.
    pub(super) renamed: Vec<(Ino, Place, Place)>,
}

impl Moves {
    /// Notes that a place led to `was` and leads to `is`.
    pub(super) fn note(&mut self, place: Place, was: Option<Ino>, is: Option<Ino>) {
        if let Some(was) = was {
            self.removed.insert(place.clone(), was);
        }
        if let Some(is) = is {
            self.added.insert(place, is);
        }
    }

    /// Finds the renames.
    pub(super) fn pair(&mut self) {
        let mut lost: BTreeMap<Ino, BTreeSet<Place>> = BTreeMap::new();
        for (place, entity) in &self.removed {
            lost.entry(*entity).or_default().insert(place.clone());
        }
        let got: Vec<(Place, Ino)> = self
            .added
            .iter()
            .map(|(place, entity)| (place.clone(), *entity))
            .collect();
        for (to, entity) in got {
            let Some(from) = lost.get_mut(&entity).and_then(BTreeSet::pop_first) else {
                continue;
            };
            self.removed.remove(&from);
            self.added.remove(&to);
            self.renamed.push((entity, from, to));
        }
    }
}
