//! The collector: takes apart what no branch, checkpoint or view can see.
//!
//! A layer is live if a branch's head, a checkpoint's layer, the root layer or a layer that an open
//! view shows is that layer or a descendant of it. The others are marked dead, in one batch under
//! `store.structure`, and from then on nobody can come to see them. What follows needs no lock: the
//! entries of the dead are removed in bounded batches, the youngest layer first, and then their
//! bytes, their changes and their records.
//!
//! **After a crash.** Dead layers stay marked, their changes are removed last, and removing an entry
//! twice is harmless: the next collection does again what this one had not finished.
//!
//! **Pinned layers.** A merge may let a layer point at runs of a layer that is no ancestor of it; the
//! owner is pinned then. The runs of a dead pinned layer stay until no entry points at them, and so
//! does its record, moved below the root layer because its parents go. There is no race: a new
//! reference is always a copy of one that the head in question can see, so when a scan of the map
//! finds none, none can arise.
//!
//! **Folding.** A frozen layer with one child and no name is folded into the child: of each thing
//! the newer version stays. See `collect/fold.rs`.
//!
//! **Sweeping.** Runs at which nothing points are removed, and those of which little is used are
//! written anew. See `collect/sweep.rs`.
//!
//! Whatever is removed from under a view is so in small batches, each under `store.moving`, for
//! which operations of views wait about as long as for one of their own. Nothing else waits.

mod chain;
mod entries;
pub(crate) mod fold;
mod plan;
mod sweep;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLockWriteGuard;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::LayerId;
use crate::kv::{Batch, Durability, Step, Table};
use crate::layout::key;
use crate::layout::locator::Locator;
use crate::progress::{Progress, Watch};
use crate::store::Store;

use entries::Cleared;

/// Layers whose last traces go in one batch.
const LAYERS_PER_BATCH: usize = 256;
/// How long operations of views may have to wait for the collector while it waits for one of them.
const PATIENCE: Duration = Duration::from_millis(1);
/// How long they go on undisturbed after that.
const PAUSE: Duration = Duration::from_millis(2);

/// What a collection did, or, if it was a dry run, would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    /// Nothing was changed: this is what there is to do.
    pub dry_run: bool,
    /// Layers that stay because something can see them.
    pub layers_live: u64,
    /// Layers that were removed.
    pub layers_removed: u64,
    /// Dead layers of which only bytes stay, because other layers share them.
    pub layers_kept: u64,
    /// Layers that were folded into the one that follows them.
    pub layers_folded: u64,
    /// Entries removed: versions of inodes, names, attributes and blocks.
    pub entries_removed: u64,
    /// Runs of blocks removed because nothing used any of their blocks.
    pub runs_removed: u64,
    /// Runs of blocks written anew without those of their blocks that nothing used.
    pub runs_rewritten: u64,
    /// Bytes of the removed entries and contents, before compression. The engine gives them back to
    /// the disk when it next compacts the files in which they lay.
    pub bytes_freed: u64,
}

/// Removes everything that nothing can see. With `dry_run` only counts it, and about: what one step
/// leaves to the next is not known before it was done.
///
/// Operations of views, branches and checkpoints go on meanwhile. A second collection waits.
///
/// # Errors
/// Those of the store; [`Error::Interrupted`](crate::Error::Interrupted), or what else `progress`
/// returns; [`Error::BadEntry`](crate::Error::BadEntry) if the changes of a dead layer are
/// damaged, which then stays. What was removed before stays removed.
pub fn collect(store: &Arc<Store>, dry_run: bool, progress: &mut Watch<'_>) -> Result<Collected> {
    let _collecting = store.collecting.lock();
    let dead = plan::give_up(store, dry_run)?;
    let mut collected = Collected {
        dry_run,
        layers_live: u64::try_from(store.layer_table().len().saturating_sub(dead.len()))
            .unwrap_or(0),
        ..Collected::default()
    };
    let total = Some(dead.len() as u64);
    let mut cleared = Vec::with_capacity(dead.len());
    for (done, layer) in (0..).zip(&dead) {
        progress(Progress {
            done,
            total,
            what: "removing what nothing can see, in layers",
        })?;
        cleared.push(entries::clear(store, *layer, &mut collected)?);
    }
    let kept = still_shared(store, &dead)?;
    for layers in cleared.chunks(LAYERS_PER_BATCH) {
        bury(store, layers, &kept, &mut collected)?;
    }
    progress(Progress {
        done: dead.len() as u64,
        total,
        what: "removing what nothing can see, in layers",
    })?;
    fold_all(store, &mut collected, progress)?;
    sweep::sweep(store, &mut collected, progress)?;
    Ok(collected)
}

fn fold_all(store: &Store, collected: &mut Collected, progress: &mut Watch<'_>) -> Result<()> {
    let dry_run = collected.dry_run;
    if !dry_run {
        fold::resume(store, collected, progress)?;
    }
    let chains = chain::find(store)?;
    let total = Some(chains.len() as u64);
    for (done, chain) in (0..).zip(&chains) {
        progress(Progress {
            done,
            total,
            what: "folding layers, in lines of them",
        })?;
        fold::fold(store, chain, dry_run, collected, progress)?;
    }
    collected.layers_live = collected
        .layers_live
        .saturating_sub(collected.layers_folded);
    Ok(())
}

/// Keeps operations of views out. A long reader does not make the others wait: this waits instead.
fn hold(store: &Store) -> RwLockWriteGuard<'_, ()> {
    loop {
        if let Some(guard) = store.moving.try_write_for(PATIENCE) {
            return guard;
        }
        std::thread::park_timeout(PAUSE);
    }
}

/// Returns those pinned layers among `dead` at whose runs an entry of a living layer points.
fn still_shared(store: &Store, dead: &[LayerId]) -> Result<HashSet<LayerId>> {
    // An adopted layer's runs are those of the layer that adopted it.
    let mut owners = std::collections::HashMap::new();
    {
        let table = store.layer_table();
        for layer in dead {
            let record = table.get(*layer)?;
            if record.pinned {
                owners.insert(*layer, *layer);
                owners.extend(record.adopted.iter().map(|adopted| (*adopted, *layer)));
            }
        }
    }
    let mut kept = HashSet::new();
    if owners.is_empty() {
        return Ok(kept);
    }
    let gone: HashSet<LayerId> = dead.iter().copied().collect();
    store.kv().scan(Table::Map, &[], &mut |found, value| {
        if let Locator::Shared(_, owner) = Locator::decode(value)?
            && let Some(layer) = owners.get(&owner.layer)
            && !gone.contains(&key::layer_of(Table::Map, found)?)
        {
            kept.insert(*layer);
        }
        Ok(Step::Next)
    })?;
    Ok(kept)
}

/// Removes the last of dead layers without entries: bytes, changes, records. Younger layers come
/// first, so at any moment the parent of every layer is there.
fn bury(
    store: &Store,
    layers: &[Cleared],
    kept: &HashSet<LayerId>,
    collected: &mut Collected,
) -> Result<()> {
    let mut batch = Batch::new();
    let mut table = Vec::new();
    for cleared in layers {
        let layer = cleared.layer;
        let mut record = store.layer_table().get(layer)?.clone();
        cleared.remove_changes(&mut batch);
        if kept.contains(&layer) {
            collected.layers_kept += 1;
            if record.parent != Some(LayerId::ROOT) {
                record.parent = Some(LayerId::ROOT);
                Store::put_layer(&mut batch, layer, &record);
                table.push((layer, Some(record)));
            }
            continue;
        }
        collected.layers_removed += 1;
        collected.bytes_freed += cleared.run_bytes;
        for owner in std::iter::once(layer).chain(record.adopted.iter().copied()) {
            let (from, to) = (
                key::runs_of_layer(owner),
                key::runs_of_layer(LayerId(owner.0 + 1)),
            );
            // A range that holds nothing would cost every later reader a little for nothing.
            if store.kv().seek(Table::Data, &from, from.len())?.is_some() {
                batch.delete_range(Table::Data, from, to);
            }
        }
        batch.delete(Table::Layers, key::layer(layer));
        table.push((layer, None));
    }
    if collected.dry_run {
        return Ok(());
    }
    store.write(&batch, Durability::Process)?;
    let mut layers = store.layers.write();
    for (layer, record) in table {
        layers.remove(layer);
        if let Some(record) = record {
            layers.insert(layer, record)?;
        }
    }
    Ok(())
}
