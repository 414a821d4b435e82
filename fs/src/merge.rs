//! Merging one line into a branch, by file, against the common ancestor.
//!
//! What only one side changed since then comes from that side; what both changed to the same is
//! fine; anything else is a conflict, and then nothing is changed. Names, content, mode, owner and
//! extended attributes are looked at one by one and by inode, so a rename here and an edit there
//! come together. No bytes are copied: both lines point at the same runs afterwards.

mod names;
mod states;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::branch::{Revision, Scratch};
use crate::diff::{Change, ChangeKind, diff};
use crate::entity::{LayerDelta, Place, Side, Tree};
use crate::error::{Error, Result};
use crate::id::{Ino, LayerId};
use crate::progress::Watch;
use crate::store::Store;
use crate::view::View;

/// What a merge did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MergeOutcome {
    /// Paths added.
    pub added: u64,
    /// Paths removed.
    pub removed: u64,
    /// Paths whose content changed, or with it the kind of file.
    pub modified: u64,
    /// Paths whose attributes alone changed.
    pub metadata: u64,
    /// Paths renamed.
    pub renamed: u64,
    /// Changes that the target had made itself already.
    pub already_there: u64,
    /// The source had nothing that the target had not.
    pub nothing_to_do: bool,
    /// The target's head now.
    pub head: LayerId,
}

impl MergeOutcome {
    fn count(&mut self, changes: &[Change]) {
        for change in changes {
            *match change.kind {
                ChangeKind::Added => &mut self.added,
                ChangeKind::Removed => &mut self.removed,
                ChangeKind::Modified | ChangeKind::TypeChanged => &mut self.modified,
                ChangeKind::Metadata => &mut self.metadata,
                ChangeKind::Renamed => &mut self.renamed,
            } += 1;
        }
    }
}

/// A merge of which everything is written but what makes it visible.
#[derive(Debug)]
pub struct Prepared {
    store: Arc<Store>,
    into: String,
    /// Held until the end, so that the collector leaves what is merged alone.
    source: Arc<View>,
    /// [`None`] if the branch has everything already, and it is known.
    scratch: Option<Scratch>,
    outcome: MergeOutcome,
}

impl Prepared {
    /// Returns what the merge does, if there is nothing left to do.
    pub fn done(&self) -> Option<&MergeOutcome> {
        self.scratch.is_none().then_some(&self.outcome)
    }

    /// Makes the merge the branch's present, in one batch. A view of it that was open answers ESTALE
    /// afterwards; [`Store::view`] gives its successor.
    ///
    /// # Errors
    /// [`Error::BranchBusy`] if the branch was changed since [`prepare`], and those of every write;
    /// the branch is as it was then.
    pub fn finish(self) -> Result<MergeOutcome> {
        let mut outcome = self.outcome;
        if let Some(scratch) = self.scratch {
            let merged = Some(self.source.head());
            outcome.head = self.store.adopt_scratch(&self.into, scratch, merged)?;
        }
        Ok(outcome)
    }
}

/// Merges `source` into branch `into`. What programs wrote to mounts of both has been flushed.
///
/// A view of `into` that was open answers ESTALE afterwards; [`Store::view`] gives its successor.
/// If this is interrupted, `into` is as it was.
///
/// # Errors
/// As [`prepare`] and [`Prepared::finish`].
pub fn merge(
    store: &Arc<Store>,
    source: &Revision,
    into: &str,
    progress: &mut Watch<'_>,
) -> Result<MergeOutcome> {
    prepare(store, source, into, progress)?.finish()
}

/// Does everything of a merge but the last step. Programs may go on in both branches meanwhile; what
/// they change in `into` makes the last step fail.
///
/// Both sides are compared with the youngest state that both have behind them, earlier merges
/// included: what was merged once, and what became of it since, is not asked again.
///
/// # Errors
/// [`Error::Conflicts`] with all of them, [`Error::BadInput`] for a branch into itself,
/// [`Error::NoSuchBranch`], and those of reading and writing. After an error `into` is as it was.
pub fn prepare(
    store: &Arc<Store>,
    source: &Revision,
    into: &str,
    progress: &mut Watch<'_>,
) -> Result<Prepared> {
    if matches!(source, Revision::Branch { name, .. } if name == into) {
        let what = format!("'{into}' cannot be merged into itself");
        return Err(Error::BadInput { what });
    }
    let source = store.snapshot(source.layer())?;
    let scratch = store.scratch_on(into)?;
    let (theirs, layer) = (source.head(), scratch.view().head());
    let (ours, base) = {
        let layers = store.layer_table();
        let ours = layers.get(layer)?.parent.unwrap_or(layer);
        let base = layers.merge_base(ours, theirs).ok_or(Error::BadLayer {
            layer: theirs,
            what: "it has another root",
        })?;
        (ours, base)
    };
    // Nothing else may keep it.
    let _base = store.view_at(base)?;
    let our_delta = LayerDelta::between(store, base, ours)?;
    let their_delta = LayerDelta::between(store, base, theirs)?;
    let trees = [base, ours, theirs].map(|layer| Tree::new(store, layer));
    let plan = Plan::make(&trees, our_delta, their_delta)?;
    let mut outcome = MergeOutcome {
        added: 0,
        removed: 0,
        modified: 0,
        metadata: 0,
        renamed: 0,
        already_there: plan.already_there,
        nothing_to_do: plan.is_empty(),
        head: scratch.head(),
    };
    if !outcome.nothing_to_do {
        write::write(&plan, scratch.view(), progress)?;
        outcome.count(&diff(store, ours, layer)?);
        // On the disk before anything names it.
        store.sync()?;
    }
    Ok(Prepared {
        store: Arc::clone(store),
        into: into.to_owned(),
        scratch: (base != theirs).then_some(scratch),
        source,
        outcome,
    })
}

/// What has to be done to our side.
struct Plan<'a> {
    old: &'a Tree,
    ours: Side<'a>,
    theirs: Side<'a>,
    our_delta: LayerDelta,
    their_delta: LayerDelta,
    /// Names that will stand for what they stand for on their side.
    names: BTreeMap<Place, Option<Ino>>,
    /// What becomes of entities that both sides have.
    states: BTreeMap<Ino, states::Taken>,
    already_there: u64,
    conflicts: BTreeSet<String>,
}

impl<'a> Plan<'a> {
    fn make(trees: &'a [Tree; 3], our_delta: LayerDelta, their_delta: LayerDelta) -> Result<Self> {
        let [old, our_tree, their_tree] = trees;
        let (mut ours, mut theirs) = (Side::new(our_tree), Side::new(their_tree));
        ours.match_reborn(old, &our_delta.names)?;
        theirs.match_reborn(old, &their_delta.names)?;
        theirs.match_added(old, &ours, &their_delta.names)?;
        let mut plan = Self {
            old,
            ours,
            theirs,
            our_delta,
            their_delta,
            names: BTreeMap::new(),
            states: BTreeMap::new(),
            already_there: 0,
            conflicts: BTreeSet::new(),
        };
        let moved = plan.merge_names()?;
        plan.merge_states(&moved)?;
        plan.check_shape(&moved)?;
        if plan.conflicts.is_empty() {
            Ok(plan)
        } else {
            Err(Error::Conflicts {
                paths: plan.conflicts.into_iter().collect(),
            })
        }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.states.is_empty()
    }

    fn conflict(&mut self, path: &[u8], what: &str) {
        self.conflicts
            .insert(format!("{}: {what}", String::from_utf8_lossy(path)));
    }

    /// Returns a path at which people know a place.
    fn place_path(&self, place: &Place) -> Result<Vec<u8>> {
        let paths = [
            self.ours.path(place)?,
            self.theirs.path(place)?,
            self.old.path(place.0, &place.1)?,
        ];
        let path = paths.into_iter().flatten().next();
        Ok(path.unwrap_or_else(|| place.1.clone()))
    }

    /// Returns a path at which people know an entity.
    fn entity_path(&self, entity: Ino) -> Result<Vec<u8>> {
        let trees = [
            (self.ours.tree, self.ours.ino(entity)),
            (self.theirs.tree, self.theirs.ino(entity)),
            (self.old, entity),
        ];
        for (tree, ino) in trees {
            if let Some((parent, name)) = tree.names(ino)?.first()
                && let Some(path) = tree.path(*parent, name)?
            {
                return Ok(path);
            }
        }
        Ok(Vec::new())
    }
}
