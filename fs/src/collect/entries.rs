//! Removing the entries of one dead layer, which its changes list.

use crate::collect::Collected;
use crate::error::{Error, Result};
use crate::id::{BLOCK_BYTES, LayerId};
use crate::kv::{Batch, Durability, Key, Step, Table};
use crate::layout::bitmap::{Bitmap, SEGMENT_BLOCKS};
use crate::layout::key::{self, ChangeOf};
use crate::layout::locator::Locator;
use crate::store::Store;

/// Entries removed in one batch: some tens of KiB, written in about a millisecond.
const ENTRIES_PER_BATCH: usize = 1000;
/// Up to so many changes of a layer are removed one by one; more by one range, which costs every
/// later reader of the table a little.
const POINT_DELETES_MAX: usize = 64;

/// A dead layer that has no entries any more, only bytes, changes and its record.
#[derive(Debug)]
pub(super) struct Cleared {
    pub(super) layer: LayerId,
    /// Bytes of contents that lie in its runs.
    pub(super) run_bytes: u64,
    /// Its changes, if they are few.
    changes: Vec<Key>,
    many: bool,
}

impl Cleared {
    /// Makes the end of the layer's changes part of `batch`.
    pub(super) fn remove_changes(&self, batch: &mut Batch) {
        if self.many {
            let end = key::changes_of_layer(LayerId(self.layer.0 + 1));
            batch.delete_range(Table::Changes, key::changes_of_layer(self.layer), end);
        } else {
            for change in &self.changes {
                batch.delete(Table::Changes, change.clone());
            }
        }
    }
}

/// Removes all versions that `layer` wrote. Its changes stay until the layer itself goes: they say
/// what is left to do if this is interrupted.
pub(super) fn clear(store: &Store, layer: LayerId, collected: &mut Collected) -> Result<Cleared> {
    let all = key::changes_of_layer(layer);
    let mut cleared = Cleared {
        layer,
        run_bytes: 0,
        changes: Vec::new(),
        many: false,
    };
    let mut from = all.clone();
    loop {
        let mut entries: Vec<(Table, Key)> = Vec::new();
        let mut last: Option<Key> = None;
        store
            .kv()
            .scan(Table::Changes, &from, &mut |found, value| {
                if !found.starts_with(&all) {
                    return Ok(Step::Stop);
                }
                if entries.len() >= ENTRIES_PER_BATCH {
                    return Ok(Step::Stop);
                }
                let (_, of, thing) = key::parse_change(found)?;
                match (of, of.table()) {
                    (_, Some(table)) => entries.push((table, key::versioned(thing, layer))),
                    (ChangeOf::Blocks, None) => {
                        let (ino, segment) = key::parse_segment(thing)?;
                        if segment > u64::MAX / SEGMENT_BLOCKS - 1 {
                            return Err(Error::BadEntry {
                                table: Table::Changes.name(),
                                what: format!("segment {segment} of inode {ino}"),
                            });
                        }
                        entries.extend(Bitmap::decode(value)?.blocks(segment).map(|block| {
                            (Table::Map, key::versioned(&key::block(ino, block), layer))
                        }));
                    }
                    (_, None) => {}
                }
                if cleared.changes.len() < POINT_DELETES_MAX {
                    cleared.changes.push(Key::from_slice(found));
                } else {
                    cleared.many = true;
                }
                last = Some(Key::from_slice(found));
                Ok(Step::Next)
            })?;
        let Some(last) = last else { break };
        remove(store, &entries, &mut cleared, collected)?;
        from = last;
        from.push(0);
    }
    Ok(cleared)
}

fn remove(
    store: &Store,
    entries: &[(Table, Key)],
    cleared: &mut Cleared,
    collected: &mut Collected,
) -> Result<()> {
    let mut batch = Batch::new();
    for chunk in entries.chunk_by(|a, b| a.0 == b.0) {
        let table = chunk.first().map_or(Table::Map, |(table, _)| *table);
        let keys: Vec<Key> = chunk.iter().map(|(_, key)| key.clone()).collect();
        for (key, value) in keys.iter().zip(store.kv().get_many(table, &keys)?) {
            // An interrupted collection has removed it already.
            let Some(value) = value else { continue };
            collected.entries_removed += 1;
            collected.bytes_freed += (key.len() + value.len()) as u64;
            if table == Table::Map {
                let holder = match Locator::decode(&value) {
                    Ok(Locator::Run(_)) => Some(cleared.layer),
                    Ok(Locator::Shared(_, owner)) => Some(store.layer_table().holder(owner.layer)),
                    _ => None,
                };
                if holder == Some(cleared.layer) {
                    cleared.run_bytes += BLOCK_BYTES;
                }
            }
            batch.delete(table, key.clone());
        }
    }
    if collected.dry_run {
        return Ok(());
    }
    store.write(&batch, Durability::Process)
}
