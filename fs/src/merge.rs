//! Merging one line into another: three-way, by file, against the common ancestor.
//!
//! The changes of the source since the common ancestor are carried out, one by one, on a layer of
//! their own on top of the target's frozen head. Only if none of them conflicts does that layer
//! become the target's head, in one batch. So an interrupted merge, or one with conflicts, leaves
//! nothing but an unreachable layer, which the collector removes.

mod carry;
mod transplant;

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use crate::branch::Revision;
use crate::diff::{Change, diff, look};
use crate::error::{Error, Result};
use crate::id::LayerId;
use crate::progress::Progress;
use crate::store::Store;

/// What a merge did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MergeOutcome {
    /// Paths added.
    pub added: u64,
    /// Paths removed.
    pub removed: u64,
    /// Paths whose content changed.
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
    fn new(head: LayerId) -> Self {
        Self {
            added: 0,
            removed: 0,
            modified: 0,
            metadata: 0,
            renamed: 0,
            already_there: 0,
            nothing_to_do: false,
            head,
        }
    }
}

/// Merges `source` into branch `into`.
///
/// A view of `into` that was open answers ESTALE afterwards; [`Store::view`] gives its successor.
///
/// # Errors
/// [`Error::Conflicts`] with all of them, [`Error::NoSuchBranch`], and those of reading and
/// writing. After an error `into` is as it was.
pub fn merge(
    store: &Arc<Store>,
    source: &Revision,
    into: &str,
    progress: &mut dyn FnMut(Progress),
) -> Result<MergeOutcome> {
    let theirs = source.layer();
    let ours = store.branch(into)?.head;
    let base = {
        let table = store.layer_table();
        table.common_ancestor(theirs, ours).ok_or(Error::BadLayer {
            layer: theirs,
            what: "it has another root",
        })?
    };
    let their_changes = diff(store, base, theirs)?;
    if their_changes.is_empty() {
        return Ok(MergeOutcome {
            nothing_to_do: true,
            ..MergeOutcome::new(ours)
        });
    }
    let our_changes = diff(store, base, ours)?;
    let scratch = store.scratch_on(into)?;
    let mut carry = carry::Carry::new(
        look(store, base)?,
        look(store, theirs)?,
        Arc::clone(scratch.view()),
        by_path(&our_changes),
        MergeOutcome::new(ours),
    );
    carry.all(&their_changes, progress)?;
    let (mut outcome, conflicts) = carry.finish();
    if !conflicts.is_empty() {
        return Err(Error::Conflicts { paths: conflicts });
    }
    let changed =
        outcome.added + outcome.removed + outcome.modified + outcome.metadata + outcome.renamed;
    if changed == 0 {
        outcome.nothing_to_do = true;
        outcome.head = ours;
        return Ok(outcome);
    }
    let head: LayerId = store.adopt_scratch(into, scratch)?;
    outcome.head = head;
    Ok(outcome)
}

fn by_path(changes: &[Change]) -> HashMap<Vec<u8>, Change> {
    let mut paths = HashMap::new();
    for change in changes {
        if let Some(from) = &change.renamed_from {
            paths.insert(from.clone(), change.clone());
        }
        paths.insert(change.path.clone(), change.clone());
    }
    paths
}
