//! Which names the branch takes over, and whether what comes out is a tree.

use std::collections::{BTreeMap, BTreeSet};

use crate::attr::FileKind;
use crate::entity::Place;
use crate::error::Result;
use crate::id::Ino;
use crate::merge::Plan;

type Names = BTreeMap<Ino, BTreeSet<Place>>;

/// Names that entities lost and got on each side.
#[derive(Debug, Default)]
pub(super) struct Moved {
    pub(super) our_lost: Names,
    pub(super) our_got: Names,
    pub(super) their_lost: Names,
    pub(super) their_got: Names,
}

fn note(lost: &mut Names, got: &mut Names, place: &Place, was: Option<Ino>, is: Option<Ino>) {
    if was != is {
        if let Some(was) = was {
            lost.entry(was).or_default().insert(place.clone());
        }
        if let Some(is) = is {
            got.entry(is).or_default().insert(place.clone());
        }
    }
}

impl Plan<'_> {
    /// Decides about every name that their side changed.
    pub(super) fn merge_names(&mut self) -> Result<Moved> {
        let mut moved = Moved::default();
        for place in self.ours.places(&self.our_delta.names) {
            let was = self.old.name(place.0, &place.1)?.map(|found| found.ino);
            let is = self.ours.name(&place)?.map(|(entity, _)| entity);
            note(&mut moved.our_lost, &mut moved.our_got, &place, was, is);
        }
        for place in self.theirs.places(&self.their_delta.names) {
            let was = self.old.name(place.0, &place.1)?.map(|found| found.ino);
            let ours = self.ours.name(&place)?;
            let theirs = self.theirs.name(&place)?;
            let (our, their) = (ours.map(|(e, _)| e), theirs.map(|(e, _)| e));
            note(
                &mut moved.their_lost,
                &mut moved.their_got,
                &place,
                was,
                their,
            );
            if their != was && their == our {
                self.already_there += 1;
            }
            if their == was || their == our {
                continue;
            }
            if our == was {
                self.names.insert(place, their);
                continue;
            }
            let path = self.place_path(&place)?;
            let what = match (was, ours, theirs) {
                (_, Some((_, a)), Some((_, b))) if a != b => "of different kinds on both sides",
                (None, ..) => "added on both sides with different content",
                (Some(_), None, _) => "removed or renamed here, replaced there",
                (Some(_), _, None) => "replaced here, removed or renamed there",
                (Some(_), ..) => "replaced on both sides",
            };
            self.conflict(&path, what);
        }
        Ok(moved)
    }

    /// Refuses what would not be a tree: names in directories that are gone, directories with two
    /// names, circles.
    pub(super) fn check_shape(&mut self, moved: &Moved) -> Result<()> {
        for place in self
            .names
            .iter()
            .filter(|(_, to)| to.is_some())
            .map(|(place, _)| place.clone())
            .collect::<Vec<_>>()
        {
            let known = self.old.record(place.0)?.is_some();
            if known && self.ours.record(place.0)?.is_none() {
                let path = self.place_path(&place)?;
                self.conflict(
                    &path,
                    "its directory was removed here, added or changed there",
                );
            }
        }
        for place in moved.our_got.values().flatten() {
            let known = self.old.record(place.0)?.is_some();
            if known
                && self.ours.record(place.0)?.is_some()
                && self.theirs.record(place.0)?.is_none()
            {
                let path = self.place_path(place)?;
                self.conflict(&path, "added here, its directory was removed there");
            }
        }
        for (entity, theirs) in &moved.their_got {
            let both_lost = match (moved.our_lost.get(entity), moved.their_lost.get(entity)) {
                (Some(a), Some(b)) => !a.is_disjoint(b),
                _ => false,
            };
            if let Some(ours) = moved.our_got.get(entity)
                && both_lost
                && ours != theirs
            {
                let path = self.entity_path(*entity)?;
                self.conflict(&path, "renamed on both sides to different paths");
            }
            self.check_circle(*entity)?;
        }
        Ok(())
    }

    /// Refuses a directory that comes to lie below itself because each side moved one of two.
    fn check_circle(&mut self, entity: Ino) -> Result<()> {
        let (Some(ours), Some(_)) = (self.ours.record(entity)?, self.theirs.record(entity)?) else {
            return Ok(());
        };
        if ours.attr.kind != FileKind::Directory {
            return Ok(());
        }
        let parents: BTreeMap<Ino, Ino> = self
            .names
            .iter()
            .filter_map(|(place, to)| to.map(|to| (to, place.0)))
            .collect();
        let mut seen = BTreeSet::new();
        let mut at = entity;
        while at != Ino::ROOT {
            if !seen.insert(at) {
                let path = self.entity_path(entity)?;
                self.conflict(&path, "moved below what the other side moved below it");
                break;
            }
            at = match parents.get(&at) {
                Some(parent) => *parent,
                None => match self.ours.record(at)? {
                    Some(record) => self.ours.entity(record.parent),
                    // Its own names are refused where they are decided.
                    None => break,
                },
            };
        }
        Ok(())
    }
}
