//! An engine that a store and its test hold together.

use std::sync::Arc;

use branchpoint_fs::error::Result;
use branchpoint_fs::kv::{Batch, Durability, Key, Kv, Table, Visitor};

/// Passes everything on to an engine that others hold too.
#[derive(Debug)]
pub struct SharedKv<K>(pub Arc<K>);

impl<K: Kv> Kv for SharedKv<K> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(table, key)
    }

    fn get_many(&self, table: Table, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        self.0.get_many(table, keys)
    }

    fn seek(
        &self,
        table: Table,
        from: &[u8],
        prefix_bytes: usize,
    ) -> Result<Option<(Key, Vec<u8>)>> {
        self.0.seek(table, from, prefix_bytes)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visitor<'_>) -> Result<()> {
        self.0.scan(table, from, visit)
    }

    fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.0.write(batch, durability)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn size_bytes(&self, table: Table, from: &[u8], to: &[u8]) -> Result<u64> {
        self.0.size_bytes(table, from, to)
    }
}
