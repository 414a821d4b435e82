//! Which layers are dead.

use std::collections::HashSet;

use crate::error::Result;
use crate::id::LayerId;
use crate::kv::{Batch, Durability, Step, Table};
use crate::layout::record::{BranchRecord, CheckpointRecord, LayerState};
use crate::store::Store;

/// Marks the layers that nothing can see as dead, all in one batch; returns them and those marked
/// earlier, the youngest first, so that children come before their parents.
pub(super) fn give_up(store: &Store, dry_run: bool) -> Result<Vec<LayerId>> {
    // New layers, and views of unnamed ones, come to be under the same lock.
    let _structure = store.structure.lock();
    let live = live(store)?;
    let mut dead: Vec<LayerId> = {
        let table = store.layer_table();
        table
            .iter()
            .map(|(id, _)| id)
            .filter(|id| !live.contains(id))
            .collect()
    };
    dead.sort_unstable_by(|a, b| b.cmp(a));
    if dry_run {
        return Ok(dead);
    }
    let mut batch = Batch::new();
    let mut marked = Vec::new();
    for layer in &dead {
        let mut record = store.layer_table().get(*layer)?.clone();
        if record.state != LayerState::Dead {
            record.state = LayerState::Dead;
            Store::put_layer(&mut batch, *layer, &record);
            marked.push(*layer);
        }
    }
    store.write(&batch, Durability::Process)?;
    let mut table = store.layers.write();
    for layer in marked {
        table.update(layer, |record| record.state = LayerState::Dead)?;
    }
    drop(table);
    Ok(dead)
}

/// Returns the layers that a branch or a checkpoint names.
pub(super) fn named(store: &Store) -> Result<Vec<LayerId>> {
    let mut named = Vec::new();
    store.kv().scan(Table::Branches, &[], &mut |_, value| {
        named.push(BranchRecord::decode(value)?.head);
        Ok(Step::Next)
    })?;
    store.kv().scan(Table::Checkpoints, &[], &mut |_, value| {
        named.push(CheckpointRecord::decode(value)?.layer);
        Ok(Step::Next)
    })?;
    Ok(named)
}

/// Returns the layers that a name or a view keeps, with all their ancestors.
fn live(store: &Store) -> Result<HashSet<LayerId>> {
    let mut roots = named(store)?;
    roots.push(LayerId::ROOT);
    roots.extend(store.shown.lock().keys().copied());
    let table = store.layer_table();
    let mut live = HashSet::new();
    for root in roots {
        let mut at = Some(root);
        while let Some(layer) = at
            && live.insert(layer)
        {
            at = table.get(layer)?.parent;
        }
    }
    Ok(live)
}
