//! Which layers are folded into which.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::id::LayerId;
use crate::kv::{Step, Table};
use crate::layout::bitmap::Bitmap;
use crate::layout::key::{self, ChangeOf};
use crate::layout::record::LayerState;
use crate::store::Store;

use super::plan;

/// A layer is folded if it has at most so many times the entries of what it is folded into: then
/// an entry is moved a few times in its life, however often checkpoints come and go above a large
/// layer, and what stays unfolded on a line grows with the logarithm of its size alone.
const GROWTH: u64 = 8;
/// Layers of up to so many entries are always folded.
const SMALL_ENTRIES: u64 = 4096;
/// Entries counted at most.
const COUNTED_MAX: u64 = 1 << 24;

/// A line of layers that are folded into the one that follows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// The youngest first: newer entries win by being there already.
    pub(super) folded: Vec<LayerId>,
    /// The child of the youngest of them.
    pub(super) into: LayerId,
}

/// Who may see which layers.
struct Lines {
    /// By a view.
    shown: HashSet<LayerId>,
    /// By a view, by whoever knows a name, or by a later merge.
    seen: HashSet<LayerId>,
    /// The only child of each layer that has one.
    child: HashMap<LayerId, Option<LayerId>>,
}

impl Lines {
    fn read(store: &Store) -> Result<Self> {
        let shown: HashSet<LayerId> = store.shown.lock().keys().copied().collect();
        let mut seen: HashSet<LayerId> = plan::named(store)?.into_iter().collect();
        seen.extend(&shown);
        let mut child = HashMap::new();
        for (id, record) in store.layer_table().iter() {
            // A later merge compares with what it was.
            seen.extend(&record.merged);
            if let Some(parent) = record.parent {
                let only = child.entry(parent).or_insert(Some(id));
                if *only != Some(id) {
                    *only = None;
                }
            }
        }
        Ok(Self { shown, seen, child })
    }

    /// Returns what a layer may be folded into: its only child, if nothing but that child's line
    /// sees it, and both are frozen. Something that a view shows is no target: a view of a frozen
    /// layer may be writing what belongs to a checkpoint.
    fn target(&self, store: &Store, layer: LayerId) -> Option<LayerId> {
        let child = self.child.get(&layer).copied().flatten()?;
        let layers = store.layer_table();
        let frozen = |id| {
            let state = layers.get(id).map(|record| record.state);
            state.is_ok_and(|state| state == LayerState::Frozen)
        };
        let unseen = layer != LayerId::ROOT && !self.seen.contains(&layer);
        (unseen && frozen(layer) && frozen(child) && !self.shown.contains(&child)).then_some(child)
    }
}

impl Chain {
    /// Returns whether what [`find`] found still holds; under `store.structure`. What had no name and
    /// was seen by nobody cannot have got a name or a child since.
    pub(super) fn is_unseen(&self, store: &Store) -> bool {
        let layers = store.layer_table();
        let shown = store.shown.lock();
        let mut into = self.into;
        let frozen_and_unseen = |layer| {
            let state = layers.get(layer).map(|record| record.state);
            state.is_ok_and(|state| state == LayerState::Frozen) && !shown.contains_key(&layer)
        };
        frozen_and_unseen(into)
            && self.folded.iter().all(|layer| {
                let child = layers
                    .get(into)
                    .is_ok_and(|child| child.parent == Some(*layer));
                into = *layer;
                child && frozen_and_unseen(*layer)
            })
    }
}

/// Returns all chains, the oldest targets first.
pub(super) fn find(store: &Store) -> Result<Vec<Chain>> {
    let targets: HashMap<LayerId, LayerId> = {
        let _structure = store.structure.lock();
        let lines = Lines::read(store)?;
        let ids: Vec<LayerId> = store.layer_table().iter().map(|(id, _)| id).collect();
        let pairs = ids.into_iter();
        pairs
            .filter_map(|id| Some((id, lines.target(store, id)?)))
            .collect()
    };
    let parents: HashMap<LayerId, LayerId> = targets
        .iter()
        .map(|(layer, into)| (*into, *layer))
        .collect();
    let mut ends: Vec<LayerId> = parents.keys().copied().collect();
    ends.retain(|into| !targets.contains_key(into));
    ends.sort_unstable();
    let mut chains = Vec::new();
    for end in ends {
        let mut chain = Chain {
            folded: Vec::new(),
            into: end,
        };
        let mut size = entries(store, end, COUNTED_MAX)?;
        let mut at = end;
        while let Some(layer) = parents.get(&at).copied() {
            let most = SMALL_ENTRIES.max(size.saturating_mul(GROWTH));
            let its = entries(store, layer, most.saturating_add(1))?;
            if its <= most {
                chain.folded.push(layer);
                size = size.saturating_add(its);
            } else {
                chains.push(std::mem::replace(
                    &mut chain,
                    Chain {
                        folded: Vec::new(),
                        into: layer,
                    },
                ));
                size = entries(store, layer, COUNTED_MAX)?;
            }
            at = layer;
        }
        chains.push(chain);
    }
    chains.retain(|chain| !chain.folded.is_empty());
    Ok(chains)
}

/// Counts the entries of a layer, or at least `enough` of them.
fn entries(store: &Store, layer: LayerId, enough: u64) -> Result<u64> {
    let all = key::changes_of_layer(layer);
    let mut count = 0;
    store.kv().scan(Table::Changes, &all, &mut |found, value| {
        if !found.starts_with(&all) || count >= enough {
            return Ok(Step::Stop);
        }
        count += match key::parse_change(found)? {
            (_, ChangeOf::Blocks, _) => Bitmap::decode(value)?.count(),
            _ => 1,
        };
        Ok(Step::Next)
    })?;
    Ok(count)
}
