//! The tree of a store for people: the layers that have a name or at which lines fork.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::branch::CheckpointInfo;
use crate::error::Result;
use crate::id::{BLOCK_BYTES, LayerId};
use crate::kv::{Step, Table};
use crate::layer::LayerTable;
use crate::layout::bitmap::Bitmap;
use crate::layout::key::{self, ChangeOf};
use crate::store::Store;

/// The part of the forest of layers that branches and checkpoints can reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogTree {
    /// Sorted by layer, so that parents come before their children. The first is the root.
    pub nodes: Vec<LogNode>,
}

/// A layer that is a branch's head, carries checkpoints, is where lines fork, or is the root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogNode {
    /// The layer.
    pub layer: LayerId,
    /// The nearest ancestor that is shown.
    pub parent: Option<LayerId>,
    /// The checkpoints that lie on it, oldest first.
    pub checkpoints: Vec<CheckpointInfo>,
    /// The branches of which it is the head.
    pub branches: Vec<String>,
    /// Microseconds since the epoch at which the layer was made.
    pub created_us: u64,
    /// Content held by the layers from this one up to but without `parent`, in whole blocks and
    /// before compression.
    pub private_bytes: u64,
    /// Content held by all layers behind: the sum of the `private_bytes` of its ancestors. Not all
    /// of it needs to be visible any more.
    pub shared_bytes: u64,
}

impl Store {
    /// Returns the tree of branches and checkpoints.
    ///
    /// # Errors
    /// Those of the engine, and those for damaged records.
    pub fn log(&self) -> Result<LogTree> {
        let _structure = self.structure.lock();
        let branches = self.branch_records()?;
        let checkpoints = self.checkpoint_records()?;
        let mut shown = Self::named_layers(&branches, &checkpoints);
        shown.insert(LayerId::ROOT);
        let layers = self.layer_table();
        let live = live_layers(&layers, &shown)?;
        shown.extend(forks(&layers, &live)?);
        // The lock on the layers is every lookup's; reading bitmaps takes longer than a moment.
        let mut parents = HashMap::new();
        for id in &live {
            let record = layers.get(*id)?;
            parents.insert(*id, (record.parent, record.created_us));
        }
        drop(layers);
        let held = self.held_bytes(&live)?;

        let mut nodes = Vec::new();
        // Of each live layer: the node that it counts to as a parent, and what is held up to it.
        let mut nearest: HashMap<LayerId, (Option<LayerId>, u64)> = HashMap::new();
        let mut totals: HashMap<LayerId, u64> = HashMap::new();
        for id in &live {
            let (parent, created_us) = parents.get(id).copied().unwrap_or_default();
            let (above, pending) = parent
                .and_then(|parent| nearest.get(&parent).copied())
                .unwrap_or_default();
            let private_bytes = pending + held.get(id).copied().unwrap_or(0);
            if !shown.contains(id) {
                nearest.insert(*id, (above, private_bytes));
                continue;
            }
            let shared_bytes = above
                .and_then(|above| totals.get(&above).copied())
                .unwrap_or_default();
            totals.insert(*id, shared_bytes + private_bytes);
            nearest.insert(*id, (Some(*id), 0));
            nodes.push(LogNode {
                layer: *id,
                parent: above,
                checkpoints: Vec::new(),
                branches: Vec::new(),
                created_us,
                private_bytes,
                shared_bytes,
            });
        }

        let places: HashMap<LayerId, usize> = nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (node.layer, at))
            .collect();
        for (name, record) in branches {
            if let Some(at) = places.get(&record.head) {
                nodes[*at].branches.push(name);
            }
        }
        for (id, record) in checkpoints {
            if let Some(at) = places.get(&record.layer) {
                nodes[*at].checkpoints.push(CheckpointInfo::new(id, record));
            }
        }
        for node in &mut nodes {
            node.checkpoints
                .sort_by_key(|info| (info.created_us, info.id));
        }
        Ok(LogTree { nodes })
    }

    /// Returns the bytes of content that each of `layers` (sorted) holds; those without any are
    /// left out. One scan that jumps from the block bitmaps of one layer to those of the next.
    fn held_bytes(&self, layers: &[LayerId]) -> Result<HashMap<LayerId, u64>> {
        let mut held = HashMap::new();
        let mut wanted = layers.iter().copied();
        let Some(mut layer) = wanted.next() else {
            return Ok(held);
        };
        let from = key::change(layer, ChangeOf::Blocks, &[]);
        self.kv().scan(Table::Changes, &from, &mut |found, value| {
            let (at, of, _) = key::parse_change(found)?;
            while (layer, ChangeOf::Blocks) < (at, of) {
                let Some(next) = wanted.next() else {
                    return Ok(Step::Stop);
                };
                layer = next;
            }
            if (at, of) < (layer, ChangeOf::Blocks) {
                return Ok(Step::Seek(key::change(layer, ChangeOf::Blocks, &[])));
            }
            *held.entry(at).or_insert(0) += Bitmap::decode(value)?.count() * BLOCK_BYTES;
            Ok(Step::Next)
        })?;
        Ok(held)
    }
}

/// Returns the layers that `named` can see, sorted.
fn live_layers(layers: &LayerTable, named: &HashSet<LayerId>) -> Result<Vec<LayerId>> {
    let mut live = HashSet::new();
    for head in named {
        let mut at = Some(*head);
        while let Some(id) = at
            && live.insert(id)
        {
            at = layers.get(id)?.parent;
        }
    }
    let mut live: Vec<LayerId> = live.into_iter().collect();
    live.sort_unstable();
    Ok(live)
}

/// Returns the layers with two live children or more.
fn forks(layers: &LayerTable, live: &[LayerId]) -> Result<Vec<LayerId>> {
    let mut children: HashMap<LayerId, u64> = HashMap::new();
    for id in live {
        if let Some(parent) = layers.get(*id)?.parent {
            *children.entry(parent).or_insert(0) += 1;
        }
    }
    Ok(children
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(id, _)| id)
        .collect())
}
