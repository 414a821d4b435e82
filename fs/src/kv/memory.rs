//! An engine that keeps everything in memory, for tests and models.
//!
//! It promises what [`Kv`] promises and nothing else: atomic batches, and scans of the state at the
//! time of the call. Nothing survives the process, so [`Kv::sync`] has nothing to do.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;

use super::{Batch, Durability, Key, Kv, Step, Table, Visitor, Write};
use crate::error::Result;

type Entries = BTreeMap<Key, Vec<u8>>;

/// The tables, each shared with whoever scans it or holds a clone; a write copies a shared one.
type Tables = [Arc<Entries>; Table::ALL.len()];

/// A [`Kv`] in memory. [`Clone`] takes a snapshot: the two share nothing that either can change.
#[derive(Debug, Default)]
pub struct MemoryKv {
    /// Held for the time of one lookup or one batch, never while a visitor runs: a visitor may read
    /// and write the engine.
    tables: RwLock<Tables>,
}

impl MemoryKv {
    /// Returns an empty engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns how many entries `table` has.
    pub fn len(&self, table: Table) -> usize {
        self.table(table).len()
    }

    /// Returns whether no table has an entry.
    pub fn is_empty(&self) -> bool {
        self.tables.read().iter().all(|entries| entries.is_empty())
    }

    fn table(&self, table: Table) -> Arc<Entries> {
        Arc::clone(&self.tables.read()[table as usize])
    }
}

impl Clone for MemoryKv {
    fn clone(&self) -> Self {
        Self {
            tables: RwLock::new(self.tables.read().clone()),
        }
    }
}

/// Two engines are equal when all their tables are.
impl PartialEq for MemoryKv {
    fn eq(&self, other: &Self) -> bool {
        // One after the other: two locks at once, in an order that the caller chose, could deadlock.
        let tables = self.tables.read().clone();
        tables == *other.tables.read()
    }
}

impl Eq for MemoryKv {}

impl Kv for MemoryKv {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.tables.read()[table as usize].get(key).cloned())
    }

    fn seek(
        &self,
        table: Table,
        from: &[u8],
        prefix_bytes: usize,
    ) -> Result<Option<(Key, Vec<u8>)>> {
        debug_assert!(
            prefix_bytes >= table.prefix_bytes(),
            "filters of {} need more",
            table.name()
        );
        let tables = self.tables.read();
        let found = first_from(&tables[table as usize], Bound::Included(from));
        Ok(found
            .filter(|(key, _)| from.get(..prefix_bytes).is_some_and(|p| key.starts_with(p)))
            .map(|(key, value)| (key.clone(), value.clone())))
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visitor<'_>) -> Result<()> {
        let entries = self.table(table);
        let mut range = entries.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        while let Some((key, value)) = range.next() {
            match visit(key, value)? {
                Step::Next => {}
                Step::Seek(next) => {
                    debug_assert!(next > *key, "a scan only goes forward");
                    range = entries.range::<[u8], _>((Bound::Included(&*next), Bound::Unbounded));
                }
                Step::Stop => break,
            }
        }
        Ok(())
    }

    fn write(&self, batch: &Batch, _durability: Durability) -> Result<()> {
        let mut tables = self.tables.write();
        for write in batch.writes() {
            match write {
                Write::Put(table, key, value) => {
                    entries_mut(&mut tables, *table).insert(key.clone(), value.clone());
                }
                Write::Delete(table, key) => {
                    entries_mut(&mut tables, *table).remove(key);
                }
                Write::DeleteRange(table, from, to) => {
                    delete_range(entries_mut(&mut tables, *table), from, to);
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn size_bytes(&self, table: Table, from: &[u8], to: &[u8]) -> Result<u64> {
        let entries = self.table(table);
        let bytes: usize = entries
            .range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
            .take_while(|(key, _)| key.as_slice() < to)
            .map(|(key, value)| key.len() + value.len())
            .sum();
        Ok(bytes as u64)
    }

    fn snapshot(&self) -> Result<Box<dyn Kv + '_>> {
        Ok(Box::new(self.clone()))
    }
}

fn entries_mut(tables: &mut Tables, table: Table) -> &mut Entries {
    Arc::make_mut(&mut tables[table as usize])
}

fn first_from<'a>(entries: &'a Entries, from: Bound<&[u8]>) -> Option<(&'a Key, &'a Vec<u8>)> {
    entries.range::<[u8], _>((from, Bound::Unbounded)).next()
}

/// Removes the keys of the range; one that ends before it starts is empty, as in RocksDB.
fn delete_range(entries: &mut Entries, from: &Key, to: &Key) {
    if from >= to {
        return;
    }
    let mut tail = entries.split_off(from.as_slice());
    let mut rest = tail.split_off(to.as_slice());
    entries.append(&mut rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::suite;

    #[test]
    fn keeps_the_promises_of_the_trait() {
        suite::run_all(&mut || Box::new(MemoryKv::new()));
    }

    #[test]
    fn clone_is_a_snapshot() {
        let kv = MemoryKv::new();
        suite::put(&kv, Table::Meta, b"a", b"1");
        let snapshot = kv.clone();
        assert_eq!(kv, snapshot);
        suite::put(&kv, Table::Meta, b"a", b"2");
        assert_ne!(kv, snapshot);
        assert_eq!(
            snapshot.get(Table::Meta, b"a").unwrap(),
            Some(b"1".to_vec())
        );
        assert_eq!((kv.len(Table::Meta), kv.is_empty()), (1, false));
    }

    #[test]
    fn sizes_count_keys_and_values() {
        let kv = MemoryKv::new();
        suite::put(&kv, Table::Data, b"aa", &[0; 100]);
        suite::put(&kv, Table::Data, b"bb", &[0; 50]);
        assert_eq!(kv.size_bytes(Table::Data, b"a", b"b").unwrap(), 102);
        assert_eq!(kv.size_bytes(Table::Data, b"a", b"c").unwrap(), 154);
        assert_eq!(kv.size_bytes(Table::Data, b"c", b"a").unwrap(), 0);
    }
}
