//! Removing runs at which nothing points, and making small what is used only in part.
//!
//! References are counted in one look at the whole map, as it was at one moment. A run is given away
//! if nothing pointed at it then: all operations that had been given a sequence number before that
//! moment have ended, younger runs are left alone, and a new reference is always a copy of another.
//! So it never matters *which* block of a run was overwritten.
//!
//! Memory: one byte for each run of the stretch of sequence numbers that is looked at, at most
//! [`PAGES_MAX`] pages; a store with more runs is looked at several times.

use std::collections::BTreeMap;

use crate::collect::{Collected, hold};
use crate::error::Result;
use crate::id::{BLOCK_BYTES, BlockIndex, Ino, LayerId};
use crate::kv::{Batch, Durability, Key, Step, Table};
use crate::layout::key;
use crate::layout::locator::{Locator, RunOwner, RunPlace};
use crate::layout::record::LayerState;
use crate::progress::{Progress, Watch};
use crate::store::Store;

/// Sequence numbers for which references are counted together.
const PAGE: u64 = 4096;
/// Pages counted at once: 16 MiB.
const PAGES_MAX: usize = 4096;
/// Runs removed in one batch.
const RUNS_PER_BATCH: usize = 256;
const WHAT: &str = "looking for unused contents, in runs";

/// Removes the runs that nothing uses and rewrites those of which at most half is used.
pub(super) fn sweep(
    store: &Store,
    collected: &mut Collected,
    progress: &mut Watch<'_>,
) -> Result<()> {
    let end = {
        let _moving = hold(store);
        store.sequences_end()
    };
    let mut done = 0;
    let mut from = 0;
    while from < end {
        let counts = References::count(store, from, end, progress)?;
        let mut pass = Pass {
            store,
            counts: &counts,
            batch: Batch::new(),
            collected,
        };
        store.kv().scan(Table::Data, &[], &mut |found, value| {
            done += 1;
            progress(Progress {
                done,
                total: None,
                what: WHAT,
            })?;
            pass.run(found, value)?;
            Ok(Step::Next)
        })?;
        pass.flush(1)?;
        from = counts.end;
    }
    if collected.dry_run {
        return Ok(());
    }
    disown(store)
}

/// How many versions of blocks point at each run.
struct References {
    pages: BTreeMap<u64, Box<[u8]>>,
    from: u64,
    /// Runs from here on are not counted.
    end: u64,
}

impl References {
    fn count(store: &Store, from: u64, end: u64, progress: &mut Watch<'_>) -> Result<Self> {
        let mut counts = Self {
            pages: BTreeMap::new(),
            from,
            end,
        };
        let mut done = 0u64;
        store.kv().scan(Table::Map, &[], &mut |_, value| {
            done += 1;
            if done.is_multiple_of(1024) {
                progress(Progress {
                    done,
                    total: None,
                    what: "counting references to contents, in blocks",
                })?;
            }
            if let Locator::Run(place) | Locator::Shared(place, _) = Locator::decode(value)? {
                counts.add(place.sequence);
            }
            Ok(Step::Next)
        })?;
        Ok(counts)
    }

    fn add(&mut self, sequence: u64) {
        if !(self.from..self.end).contains(&sequence) {
            return;
        }
        let (page, at) = (
            sequence / PAGE,
            usize::try_from(sequence % PAGE).unwrap_or(0),
        );
        let counts = self
            .pages
            .entry(page)
            .or_insert_with(|| vec![0; usize::try_from(PAGE).unwrap_or(0)].into());
        counts[at] = counts[at].saturating_add(1);
        if self.pages.len() > PAGES_MAX
            && let Some((last, _)) = self.pages.pop_last()
        {
            self.end = last * PAGE;
        }
    }

    /// Returns how many point at a run; [`None`] if that was not counted.
    fn of(&self, sequence: u64) -> Option<u8> {
        if !(self.from..self.end).contains(&sequence) {
            return None;
        }
        let page = self.pages.get(&(sequence / PAGE));
        let at = usize::try_from(sequence % PAGE).unwrap_or(0);
        Some(page.and_then(|page| page.get(at)).copied().unwrap_or(0))
    }
}

/// One look at all runs.
struct Pass<'a> {
    store: &'a Store,
    counts: &'a References,
    batch: Batch,
    collected: &'a mut Collected,
}

impl Pass<'_> {
    fn run(&mut self, found: &[u8], value: &[u8]) -> Result<()> {
        let (layer, object, first, sequence) = key::parse_run(found)?;
        let Some(used) = self.counts.of(sequence) else {
            return Ok(());
        };
        if used == 0 {
            self.collected.runs_removed += 1;
            self.collected.bytes_freed += value.len() as u64;
            self.batch.delete(Table::Data, Key::from_slice(found));
            return self.flush(RUNS_PER_BATCH);
        }
        let blocks = (value.len() as u64).div_ceil(BLOCK_BYTES);
        if u64::from(used) * 2 <= blocks {
            let run = Run {
                owner: RunOwner {
                    layer,
                    object,
                    first,
                },
                sequence,
                bytes: value,
            };
            let freed = run.rewrite(self.store, used, self.collected.dry_run)?;
            self.collected.runs_rewritten += u64::from(freed > 0);
            self.collected.bytes_freed += freed;
        }
        Ok(())
    }

    fn flush(&mut self, at_least: usize) -> Result<()> {
        if self.batch.len() < at_least {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        if self.collected.dry_run {
            return Ok(());
        }
        self.store.write(&batch, Durability::Process)
    }
}

/// A run of which a part is used.
struct Run<'a> {
    owner: RunOwner,
    sequence: u64,
    bytes: &'a [u8],
}

impl Run<'_> {
    /// Writes the used blocks as runs of their own, if all `used` references are those of the layer
    /// that holds the run. Returns how many bytes that frees.
    fn rewrite(&self, store: &Store, used: u8, dry_run: bool) -> Result<u64> {
        let _moving = hold(store);
        let (holder, record) = {
            let layers = store.layer_table();
            let holder = layers.holder(self.owner.layer);
            (holder, layers.get(holder).cloned())
        };
        // Others may share the runs of a pinned layer: they cannot be found from here.
        if !record.is_ok_and(|record| !record.pinned && record.state != LayerState::Dead) {
            return Ok(0);
        }
        let live = self.live(store, holder)?;
        if live.len() != usize::from(used) {
            return Ok(0);
        }
        let mut batch = Batch::new();
        let mut kept = 0;
        for group in live.chunk_by(|(a, _), (b, _)| *b == *a + 1) {
            kept += self.put(store, holder, group, dry_run, &mut batch)?;
        }
        let owner = self.owner;
        let old = key::run(owner.layer, owner.object, owner.first, self.sequence);
        batch.delete(Table::Data, old);
        if !dry_run {
            store.write(&batch, Durability::Process)?;
        }
        Ok((self.bytes.len() as u64).saturating_sub(kept))
    }

    /// Returns those blocks of the run that are used, by their index in it.
    fn live(&self, store: &Store, holder: LayerId) -> Result<Vec<(u8, RunPlace)>> {
        let blocks = u8::try_from((self.bytes.len() as u64).div_ceil(BLOCK_BYTES)).unwrap_or(0);
        let keys: Vec<Key> = (0..blocks)
            .map(|index| {
                let block = BlockIndex(self.owner.first.0 + u64::from(index));
                key::versioned(&key::block(self.owner.object, block), holder)
            })
            .collect();
        let values = store.kv().get_many(Table::Map, &keys)?;
        let mut live = Vec::new();
        for (index, value) in (0..blocks).zip(values) {
            let Some(value) = value else { continue };
            let place = match Locator::decode(&value)? {
                Locator::Run(place) if holder == self.owner.layer => place,
                Locator::Shared(place, owner) if owner == self.owner => place,
                _ => continue,
            };
            if place.sequence == self.sequence && place.index == index {
                live.push((index, place));
            }
        }
        Ok(live)
    }

    /// Makes some neighbours a run of `holder`. Checksums stay what they were: damage is not made
    /// good by copying it.
    fn put(
        &self,
        store: &Store,
        holder: LayerId,
        group: &[(u8, RunPlace)],
        dry_run: bool,
        batch: &mut Batch,
    ) -> Result<u64> {
        let block = usize::try_from(BLOCK_BYTES).unwrap_or(0);
        let (Some((start, _)), Some((last, _))) = (group.first(), group.last()) else {
            return Ok(0);
        };
        let end = self.bytes.len().min((usize::from(*last) + 1) * block);
        let bytes = &self.bytes[usize::from(*start) * block..end];
        if dry_run {
            return Ok(bytes.len() as u64);
        }
        let object: Ino = self.owner.object;
        let first = BlockIndex(self.owner.first.0 + u64::from(*start));
        let sequence = store.new_sequence()?;
        let count = u8::try_from(group.len()).unwrap_or(u8::MAX);
        for (index, (old, place)) in (0..count).zip(group) {
            let place = RunPlace {
                index,
                count,
                checksum: place.checksum,
                sequence,
            };
            let thing = key::block(object, BlockIndex(self.owner.first.0 + u64::from(*old)));
            let entry = key::versioned(&thing, holder);
            batch.put(Table::Map, entry, Locator::Run(place).encode());
        }
        let run = key::run(holder, object, first, sequence);
        batch.put(Table::Data, run, bytes.to_vec());
        Ok(bytes.len() as u64)
    }
}

/// Forgets adopted layers of which no run is left.
fn disown(store: &Store) -> Result<()> {
    let holders: Vec<(LayerId, Vec<LayerId>)> = {
        let layers = store.layer_table();
        let all = layers
            .iter()
            .filter(|(_, record)| !record.adopted.is_empty());
        all.map(|(id, record)| (id, record.adopted.clone()))
            .collect()
    };
    for (holder, mut adopted) in holders {
        let before = adopted.len();
        let mut kept = Vec::new();
        for layer in adopted.drain(..) {
            let from = key::runs_of_layer(layer);
            if store.kv().seek(Table::Data, &from, from.len())?.is_some() {
                kept.push(layer);
            }
        }
        if kept.len() == before {
            continue;
        }
        let _structure = store.structure.lock();
        let _moving = hold(store);
        let mut record = store.layer_table().get(holder)?.clone();
        record.adopted.clone_from(&kept);
        let mut batch = Batch::new();
        Store::put_layer(&mut batch, holder, &record);
        store.write(&batch, Durability::Process)?;
        let mut layers = store.layers.write();
        layers.update(holder, |record| record.adopted = kept)?;
    }
    Ok(())
}
