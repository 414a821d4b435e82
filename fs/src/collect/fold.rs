//! Folding frozen layers that nothing names into their only child.
//!
//! Entries are moved in small batches, each of which changes nothing that anybody can see: only the
//! child and what descends from it see the layer, and to them an entry looks the same in either.
//! Nothing else may look at a layer of which a part has been moved. So it is noted in `meta` until
//! it is gone; [`resume`] completes what was interrupted before anything else is folded.
//!
//! Contents stay where they are. The child *adopts* the layer: the moved locators name it, and its
//! runs go with the child.

use crate::collect::chain::Chain;
use crate::collect::{Collected, hold};
use crate::error::{Error, Result};
use crate::id::{BLOCK_BYTES, BlockIndex, Ino, LayerId};
use crate::kv::{Batch, Durability, Key, Step, Table};
use crate::layout::bitmap::{Bitmap, SEGMENT_BLOCKS};
use crate::layout::key::{self, ChangeOf, FOLDING};
use crate::layout::locator::{Locator, RunOwner};
use crate::layout::record::InodeRecord;
use crate::progress::{Progress, Watch};
use crate::store::Store;

/// Entries moved in one batch: written in about a millisecond, during which operations of views wait.
const ENTRIES_PER_BATCH: u64 = 512;

/// Reads which layer was being folded into which when the store was last written.
pub(crate) fn interrupted(store: &Store) -> Result<Option<(LayerId, LayerId)>> {
    let Some(value) = store.kv().get(Table::Meta, FOLDING)? else {
        return Ok(None);
    };
    let numbers = value.as_chunks::<8>();
    let ([layer, into], []) = numbers else {
        return Err(Error::BadEntry {
            table: Table::Meta.name(),
            what: "the note about folding".to_owned(),
        });
    };
    Ok(Some((
        LayerId(u64::from_le_bytes(*layer)),
        LayerId(u64::from_le_bytes(*into)),
    )))
}

/// Completes a fold that was interrupted.
pub(super) fn resume(
    store: &Store,
    collected: &mut Collected,
    progress: &mut Watch<'_>,
) -> Result<()> {
    let Some((oldest, into)) = interrupted(store)? else {
        return Ok(());
    };
    let chain = {
        let layers = store.layer_table();
        let line = match (layers.get(oldest), layers.get(into)) {
            (Ok(record), Ok(_)) if layers.sees(into, oldest) => layers.line(into, record.parent),
            _ => Vec::new(),
        };
        line.split_first().map(|(into, folded)| Chain {
            folded: folded.to_vec(),
            into: *into,
        })
    };
    match chain {
        Some(chain) => {
            store.folding.lock().extend(&chain.folded);
            go_on(store, &chain, false, collected, progress)
        }
        // Both were given up and removed meanwhile.
        None => {
            let mut batch = Batch::new();
            batch.delete(Table::Meta, Key::from_slice(FOLDING));
            store.write(&batch, Durability::Process)
        }
    }
}

/// Folds a chain, if it still can be.
pub(super) fn fold(
    store: &Store,
    chain: &Chain,
    dry_run: bool,
    collected: &mut Collected,
    progress: &mut Watch<'_>,
) -> Result<()> {
    {
        let _structure = store.structure.lock();
        if !chain.is_unseen(store) {
            return Ok(());
        }
        if !dry_run {
            store.folding.lock().extend(&chain.folded);
        }
    }
    go_on(store, chain, dry_run, collected, progress)
}

fn go_on(
    store: &Store,
    chain: &Chain,
    dry_run: bool,
    collected: &mut Collected,
    progress: &mut Watch<'_>,
) -> Result<()> {
    for layer in &chain.folded {
        let mut fold = Fold {
            store,
            layer: *layer,
            into: chain.into,
            dry_run,
            batch: Batch::new(),
            inode: None,
        };
        fold.all(collected, progress)?;
    }
    collected.layers_folded += chain.folded.len() as u64;
    if dry_run {
        return Ok(());
    }
    finish(store, chain)?;
    let mut folding = store.folding.lock();
    for layer in &chain.folded {
        folding.remove(layer);
    }
    Ok(())
}

/// Takes the layers, in which nothing is left, out of the forest.
fn finish(store: &Store, chain: &Chain) -> Result<()> {
    let mut with_runs = Vec::new();
    for layer in &chain.folded {
        let adopted = store.layer_table().get(*layer)?.adopted.clone();
        for owner in std::iter::once(*layer).chain(adopted) {
            let from = key::runs_of_layer(owner);
            if store.kv().seek(Table::Data, &from, from.len())?.is_some() {
                with_runs.push(owner);
            }
        }
    }
    // No layer comes to be or goes while what descends from this one is brought in order.
    let _structure = store.structure.lock();
    let descendants = store.layer_table().descendants(chain.into);
    let _moving = hold(store);
    let mut record = store.layer_table().get(chain.into)?.clone();
    let mut batch = Batch::new();
    for layer in &chain.folded {
        let folded = store.layer_table().get(*layer)?.clone();
        record.parent = folded.parent;
        record.pinned |= folded.pinned;
        record.merged.extend(folded.merged);
        batch.delete(Table::Layers, key::layer(*layer));
    }
    record.adopted.extend(with_runs);
    record.adopted.sort_unstable();
    record.adopted.dedup();
    record.merged.sort_unstable();
    record.merged.dedup();
    Store::put_layer(&mut batch, chain.into, &record);
    batch.delete(Table::Meta, Key::from_slice(FOLDING));
    store.write(&batch, Durability::Process)?;
    let mut layers = store.layers.write();
    layers.fold(&chain.folded, chain.into, record, &descendants)
}

/// One layer whose entries are being moved.
struct Fold<'a> {
    store: &'a Store,
    layer: LayerId,
    into: LayerId,
    dry_run: bool,
    batch: Batch,
    /// The inode last looked at, as the child sees it.
    inode: Option<(Ino, Option<InodeRecord>)>,
}

impl Fold<'_> {
    fn all(&mut self, collected: &mut Collected, progress: &mut Watch<'_>) -> Result<()> {
        let all = key::changes_of_layer(self.layer);
        let mut from = all.clone();
        loop {
            progress(Progress {
                done: collected.entries_removed,
                total: None,
                what: "folding layers, entries removed",
            })?;
            let mut changes: Vec<(Key, Vec<u8>)> = Vec::new();
            let mut weight = 0;
            let kv = self.store.kv();
            kv.scan(Table::Changes, &from, &mut |found, value| {
                if !found.starts_with(&all) || weight >= ENTRIES_PER_BATCH {
                    return Ok(Step::Stop);
                }
                weight += match key::parse_change(found)? {
                    (_, ChangeOf::Blocks, _) => Bitmap::decode(value)?.count().max(1),
                    _ => 1,
                };
                changes.push((Key::from_slice(found), value.to_vec()));
                Ok(Step::Next)
            })?;
            let Some((last, _)) = changes.last() else {
                return Ok(());
            };
            from = last.clone();
            from.push(0);
            for (found, value) in &changes {
                let (_, of, thing) = key::parse_change(found)?;
                match (of, of.table()) {
                    (_, Some(table)) => self.thing(of, table, thing, collected)?,
                    (ChangeOf::Blocks, None) => self.blocks(thing, value, collected)?,
                    (_, None) => self.orphan(of, thing)?,
                }
                self.batch.delete(Table::Changes, found.clone());
            }
            let mut batch = std::mem::take(&mut self.batch);
            if self.dry_run {
                continue;
            }
            let mut note = self.layer.0.to_le_bytes().to_vec();
            note.extend_from_slice(&self.into.0.to_le_bytes());
            batch.put(Table::Meta, Key::from_slice(FOLDING), note);
            let _moving = hold(self.store);
            self.store.write(&batch, Durability::Process)?;
            // What a new version hides is decided anew for the next batch.
            self.inode = None;
        }
    }

    /// Moves a version unless the child has one of its own.
    fn thing(
        &mut self,
        of: ChangeOf,
        table: Table,
        thing: &[u8],
        collected: &mut Collected,
    ) -> Result<()> {
        let old = key::versioned(thing, self.layer);
        let found = self.store.newest(table, thing, self.into)?;
        let useless =
            of == ChangeOf::Xattr && self.inode(key::leading_ino(table, thing)?)?.is_none();
        if let Some((layer, value)) = &found
            && *layer == self.layer
            && !useless
        {
            let new = key::versioned(thing, self.into);
            self.batch.put(table, new, value.clone());
            let change = key::change(self.into, of, thing);
            self.batch.put(Table::Changes, change, Vec::new());
        } else {
            let value = self.store.kv().get(table, &old)?.unwrap_or_default();
            collected.entries_removed += 1;
            collected.bytes_freed += (old.len() + value.len()) as u64;
            let hides = found.is_some_and(|(layer, value)| layer == self.into && value.is_empty());
            if hides && !self.is_older(table, thing)? {
                // What it hid is gone with this.
                self.batch.delete(table, key::versioned(thing, self.into));
                let change = key::change(self.into, of, thing);
                self.batch.delete(Table::Changes, change);
                collected.entries_removed += 1;
            }
        }
        self.batch.delete(table, old);
        Ok(())
    }

    /// Returns whether something older than both would come to sight without a tombstone.
    fn is_older(&self, table: Table, thing: &[u8]) -> Result<bool> {
        let parent = self.store.layer_table().get(self.layer)?.parent;
        let older = match parent {
            Some(parent) => self.store.newest(table, thing, parent)?,
            None => None,
        };
        Ok(older.is_some_and(|(_, value)| !value.is_empty()))
    }

    /// Returns an inode as the child sees it.
    fn inode(&mut self, ino: Ino) -> Result<Option<&InodeRecord>> {
        if self.inode.as_ref().is_none_or(|(known, _)| *known != ino) {
            let found = self
                .store
                .newest(Table::Inodes, &key::inode(ino), self.into)?;
            let record = match found {
                Some((_, value)) if !value.is_empty() => Some(InodeRecord::decode(ino, &value)?),
                _ => None,
            };
            self.inode = Some((ino, record));
        }
        Ok(self.inode.as_ref().and_then(|(_, record)| record.as_ref()))
    }

    /// Moves the blocks of one segment that the child sees. A truncation hides what older layers than
    /// its own wrote; in the child, a block would not be older any more, so it must not get there.
    fn blocks(&mut self, thing: &[u8], value: &[u8], collected: &mut Collected) -> Result<()> {
        let (ino, segment) = key::parse_segment(thing)?;
        if segment > u64::MAX / SEGMENT_BLOCKS - 1 {
            return Err(Error::BadEntry {
                table: Table::Changes.name(),
                what: format!("segment {segment} of inode {ino}"),
            });
        }
        let change = key::change(self.into, ChangeOf::Blocks, thing);
        let mut own = match self.store.kv().get(Table::Changes, &change)? {
            Some(value) => Bitmap::decode(&value)?,
            None => Bitmap::default(),
        };
        let mut moved = false;
        for block in Bitmap::decode(value)?.blocks(segment) {
            let entry = key::block(ino, block);
            let old = key::versioned(&entry, self.layer);
            let found = self.store.newest(Table::Map, &entry, self.into)?;
            let layer = self.layer;
            let hidden = self.inode(ino)?.is_none_or(|record| {
                record
                    .oldest_visible(block.0)
                    .is_some_and(|oldest| oldest > layer)
            });
            match found {
                Some((found, value)) if found == layer && !hidden => {
                    let new = key::versioned(&entry, self.into);
                    self.batch
                        .put(Table::Map, new, self.shared_locator(ino, block, value)?);
                    own.set(Bitmap::place(block).1);
                    moved = true;
                }
                _ => {
                    let value = self.store.kv().get(Table::Map, &old)?.unwrap_or_default();
                    collected.entries_removed += 1;
                    collected.bytes_freed += (old.len() + value.len()) as u64;
                    if self.dry_run && matches!(Locator::decode(&value), Ok(Locator::Run(_))) {
                        // Else counted when the run is removed.
                        collected.bytes_freed += BLOCK_BYTES;
                    }
                }
            }
            self.batch.delete(Table::Map, old);
        }
        if moved {
            self.batch.put(Table::Changes, change, own.encode());
        }
        Ok(())
    }

    /// Returns the locator of a block for another layer.
    fn shared_locator(&self, ino: Ino, block: BlockIndex, value: Vec<u8>) -> Result<Vec<u8>> {
        let Locator::Run(place) = Locator::decode(&value)? else {
            return Ok(value);
        };
        let first = block.0.checked_sub(u64::from(place.index));
        let owner = RunOwner {
            layer: self.layer,
            object: ino,
            first: BlockIndex(first.ok_or_else(|| Error::BadEntry {
                table: Table::Map.name(),
                what: format!("block {} of inode {ino} lies before its run", block.0),
            })?),
        };
        Ok(Locator::Shared(place, owner).encode())
    }

    /// Moves the note that an inode without names was in use, while there is such an inode.
    fn orphan(&mut self, of: ChangeOf, thing: &[u8]) -> Result<()> {
        let record = self.inode(key::leading_ino(Table::Changes, thing)?)?;
        if record.is_some_and(|record| record.attr.nlink == 0) {
            let change = key::change(self.into, of, thing);
            self.batch.put(Table::Changes, change, Vec::new());
        }
        Ok(())
    }
}
