//! Reading, of the present or of a snapshot.

use rocksdb::{DB, PrefixRange, ReadOptions, SnapshotWithThreadMode};

use super::{RocksKv, failed_to, read_only};
use crate::error::Result;
use crate::kv::{Batch, Durability, Key, Kv, Step, Table, Visitor};

impl RocksKv {
    pub(super) fn get_with(
        &self,
        mut read: ReadOptions,
        table: Table,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        // Each block of content has a checksum of its own, which the reader verifies: RocksDB's over
        // the whole run, of which mostly one block is wanted, was more than half of a read's time.
        read.set_verify_checksums(table != Table::Data);
        self.db
            .get_cf_opt(self.family(table)?, key, &read)
            .map_err(failed_to("read"))
    }

    pub(super) fn get_many_with(
        &self,
        read: &ReadOptions,
        table: Table,
        keys: &[Key],
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let sorted = keys.is_sorted();
        self.db
            .batched_multi_get_cf_opt(self.family(table)?, keys, sorted, read)
            .into_iter()
            .map(|value| {
                value
                    .map(|value| value.map(|v| v.to_vec()))
                    .map_err(failed_to("read"))
            })
            .collect()
    }

    pub(super) fn seek_with(
        &self,
        mut read: ReadOptions,
        table: Table,
        from: &[u8],
        prefix_bytes: usize,
    ) -> Result<Option<(Key, Vec<u8>)>> {
        debug_assert!(
            prefix_bytes >= table.prefix_bytes(),
            "filters of {} need more",
            table.name()
        );
        let Some(prefix) = from.get(..prefix_bytes) else {
            return Ok(None);
        };
        // Lets the filters answer, and ends the search where the prefix ends. One entry is wanted, so
        // read-ahead stays off, which is the default.
        read.set_prefix_same_as_start(true);
        if prefix_bytes > table.prefix_bytes() {
            // The filters know a shorter prefix, or none. Without this bound the search would step over
            // the tombstones of everything that follows.
            read.set_iterate_range(PrefixRange(prefix));
        }
        let mut iter = self.db.raw_iterator_cf_opt(self.family(table)?, read);
        iter.seek(from);
        match iter.item() {
            Some((key, value)) if key.starts_with(prefix) => {
                Ok(Some((Key::from(key), value.to_vec())))
            }
            Some(_) => Ok(None),
            None => iter.status().map(|()| None).map_err(failed_to("seek")),
        }
    }

    pub(super) fn scan_with(
        &self,
        mut read: ReadOptions,
        table: Table,
        from: &[u8],
        visit: &mut Visitor<'_>,
    ) -> Result<()> {
        // A scan crosses prefixes, of which the filters know nothing.
        read.set_total_order_seek(true);
        let mut iter = self.db.raw_iterator_cf_opt(self.family(table)?, read);
        iter.seek(from);
        while let Some((key, value)) = iter.item() {
            match visit(key, value)? {
                Step::Next => iter.next(),
                Step::Seek(next) => {
                    debug_assert!(*next > *key, "a scan only goes forward");
                    iter.seek(next);
                }
                Step::Stop => return Ok(()),
            }
        }
        iter.status().map_err(failed_to("scan"))
    }
}

/// The tables as they were at one moment.
pub(super) struct RocksSnapshot<'a> {
    kv: &'a RocksKv,
    /// [`None`] if nothing is written anyway.
    at: Option<SnapshotWithThreadMode<'a, DB>>,
}

impl<'a> RocksSnapshot<'a> {
    pub(super) fn of(kv: &'a RocksKv) -> Self {
        let at = (!kv.read_only).then(|| kv.db.snapshot());
        Self { kv, at }
    }

    fn options(&self) -> ReadOptions {
        let mut read = ReadOptions::default();
        if let Some(at) = &self.at {
            read.set_snapshot(at);
        }
        read
    }
}

impl std::fmt::Debug for RocksSnapshot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RocksSnapshot")
            .field("kv", self.kv)
            .finish_non_exhaustive()
    }
}

impl Kv for RocksSnapshot<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.kv.get_with(self.options(), table, key)
    }

    fn get_many(&self, table: Table, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        self.kv.get_many_with(&self.options(), table, keys)
    }

    fn seek(
        &self,
        table: Table,
        from: &[u8],
        prefix_bytes: usize,
    ) -> Result<Option<(Key, Vec<u8>)>> {
        self.kv.seek_with(self.options(), table, from, prefix_bytes)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visitor<'_>) -> Result<()> {
        self.kv.scan_with(self.options(), table, from, visit)
    }

    fn write(&self, _batch: &Batch, _durability: Durability) -> Result<()> {
        Err(read_only())
    }

    fn sync(&self) -> Result<()> {
        Err(read_only())
    }

    fn size_bytes(&self, table: Table, from: &[u8], to: &[u8]) -> Result<u64> {
        self.kv.size_bytes(table, from, to)
    }

    fn snapshot(&self) -> Result<Box<dyn Kv + '_>> {
        Err(crate::error::Error::Unsupported {
            what: "a snapshot of a snapshot",
        })
    }
}
