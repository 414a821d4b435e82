//! The engine on disk. The only place, with the files in `rocks/`, that names RocksDB.
//!
//! One column family for each [`Table`], one write-ahead log for all of them: that makes a batch
//! atomic over tables, and makes what a power cut leaves a prefix of the batches written.
//!
//! **After a failure.** A failed write, flush or sync stops all writing; reading goes on. When the disk was
//! full, RocksDB looks at the free space every five seconds and goes on by itself once there is as much as
//! the largest write buffer (64 MiB): a retried write then succeeds, and everything acknowledged before is
//! still there. With less, and after every other failure, the engine must be opened again.
//!
//! The caller holds a lock of its own on the store before it opens this one, so nobody sees RocksDB's
//! message about its `LOCK` file.

mod options;
mod read;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, Range, ReadOptions, WriteBatch, WriteOptions,
};

use super::{Batch, Durability, Key, Kv, Table, Visitor, Write};
use crate::error::{Error, Result};

use read::RocksSnapshot;

/// What an entry of a batch takes beside key and value, at most: tag, column family, two lengths.
const BATCH_ENTRY_OVERHEAD_BYTES: usize = 16;

/// A [`Kv`] in a directory on disk.
pub struct RocksKv {
    db: DB,
    dir: PathBuf,
    read_only: bool,
    /// Whether the last that failed did so because the disk was full. What RocksDB says afterwards
    /// is only that there was an error before.
    full: AtomicBool,
}

impl RocksKv {
    /// Opens the database in `dir`; creates it there, and the directory, unless `read_only`.
    ///
    /// Batches that were in the log only are read back and written to tables, so opening after a crash
    /// takes time in proportion to the log's size (at most about 256 MiB). A read-only database reads
    /// them into memory, writes nothing, and does not see what others write later.
    ///
    /// # Errors
    /// [`Error::Engine`] if the directory cannot be used, or holds something else or damage;
    /// [`Error::Io`] if it cannot be created.
    pub fn open(dir: &Path, read_only: bool) -> Result<RocksKv> {
        if read_only {
            // The binding would create the directory.
            if !dir.join("CURRENT").exists() {
                return Err(Error::Engine {
                    step: "open",
                    message: format!("there is no database in '{}'", dir.display()),
                    no_space: false,
                });
            }
        } else {
            fs::create_dir_all(dir).map_err(|source| {
                Error::io(format!("create the directory '{}'", dir.display()), source)
            })?;
        }
        let db_options = options::database();
        let cache = options::block_cache();
        let families = Table::ALL
            .map(|table| ColumnFamilyDescriptor::new(table.name(), options::table(table, &cache)));
        let db = if read_only {
            DB::open_cf_descriptors_read_only(&db_options, dir, families, false)
        } else {
            DB::open_cf_descriptors(&db_options, dir, families)
        };
        let db = db.map_err(failed_to("open"))?;
        let kv = Self {
            db,
            dir: dir.to_owned(),
            read_only,
            full: AtomicBool::new(false),
        };
        for table in Table::ALL {
            kv.family(table)?;
        }
        Ok(kv)
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes everything that is only in memory and in the log to table files. Tests and statistics
    /// need it, nothing else: durability is [`Kv::sync`].
    ///
    /// # Errors
    /// [`Error::Engine`] if the disk fails or is full.
    pub fn flush(&self) -> Result<()> {
        for table in Table::ALL {
            self.db
                .flush_cf(self.family(table)?)
                .map_err(failed_to("flush"))?;
        }
        Ok(())
    }

    /// Merges all files of `table`, so that removed entries take no space any more. Expensive.
    ///
    /// # Errors
    /// [`Error::Engine`] if there is no such table on disk.
    pub fn compact(&self, table: Table) -> Result<()> {
        self.db
            .compact_range_cf(self.family(table)?, None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }

    /// Returns how many bytes `table` takes: its files with their blobs, and what is in memory only.
    /// A property that the engine does not know counts as zero.
    pub fn live_bytes(&self, table: Table) -> u64 {
        const PARTS: [&str; 3] = [
            "rocksdb.live-sst-files-size",
            "rocksdb.live-blob-file-size",
            "rocksdb.cur-size-all-mem-tables",
        ];
        PARTS.iter().map(|part| self.property(table, part)).sum()
    }

    /// Makes a copy of the database in `dir`, which must not exist, out of hard links to its files. It
    /// holds everything written so far.
    ///
    /// # Errors
    /// [`Error::Engine`] if `dir` exists, or the disk fails or is full.
    pub fn checkpoint_files(&self, dir: &Path) -> Result<()> {
        let checkpoint = Checkpoint::new(&self.db).map_err(failed_to("copy itself"))?;
        checkpoint
            .create_checkpoint(dir)
            .map_err(failed_to("copy itself"))
    }

    fn family(&self, table: Table) -> Result<&ColumnFamily> {
        self.db
            .cf_handle(table.name())
            .ok_or_else(|| Error::Engine {
                step: "find a table",
                message: format!("there is no table '{}'", table.name()),
                no_space: false,
            })
    }

    /// Remembers whether the disk is full, and tells it where RocksDB tells only of an earlier error.
    fn note_space(&self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Ok(()) => {
                // Nearly always it is unset, and reading shares the line among writers.
                if self.full.load(Ordering::Relaxed) {
                    self.full.store(false, Ordering::Relaxed);
                }
                Ok(())
            }
            Err(Error::Engine {
                step,
                message,
                no_space,
            }) => {
                let again = message.contains("previous error") && self.full.load(Ordering::Relaxed);
                let no_space = no_space || again;
                self.full.store(no_space, Ordering::Relaxed);
                Err(Error::Engine {
                    step,
                    message,
                    no_space,
                })
            }
            Err(other) => Err(other),
        }
    }

    fn property(&self, table: Table, name: &str) -> u64 {
        let Ok(family) = self.family(table) else {
            return 0;
        };
        self.db
            .property_int_value_cf(family, name)
            .ok()
            .flatten()
            .unwrap_or(0)
    }

    /// Copies the batch into RocksDB's form: once, into a buffer of the final size.
    fn encode(&self, batch: &Batch) -> Result<WriteBatch> {
        let bytes: usize = batch.writes().iter().map(encoded_bytes).sum();
        let mut encoded = WriteBatch::with_capacity_bytes(bytes);
        // Neighbours are mostly of one table, and finding its handle compares names.
        let mut last: Option<(Table, &ColumnFamily)> = None;
        for write in batch.writes() {
            let (Write::Put(table, ..) | Write::Delete(table, _) | Write::DeleteRange(table, ..)) =
                write;
            let family = match last {
                Some((known, family)) if known == *table => family,
                _ => self.family(*table)?,
            };
            last = Some((*table, family));
            match write {
                Write::Put(_, key, value) => encoded.put_cf(family, key, value),
                Write::Delete(_, key) => encoded.delete_cf(family, key),
                // RocksDB fails in the middle of a logged batch if a range ends before it starts.
                Write::DeleteRange(_, from, to) if from >= to => {}
                Write::DeleteRange(_, from, to) => encoded.delete_range_cf(family, from, to),
            }
        }
        Ok(encoded)
    }
}

impl fmt::Debug for RocksKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksKv")
            .field("dir", &self.dir)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl Kv for RocksKv {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(ReadOptions::default(), table, key)
    }

    fn get_many(&self, table: Table, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        self.get_many_with(&ReadOptions::default(), table, keys)
    }

    fn seek(
        &self,
        table: Table,
        from: &[u8],
        prefix_bytes: usize,
    ) -> Result<Option<(Key, Vec<u8>)>> {
        self.seek_with(ReadOptions::default(), table, from, prefix_bytes)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visitor<'_>) -> Result<()> {
        self.scan_with(ReadOptions::default(), table, from, visit)
    }

    fn snapshot(&self) -> Result<Box<dyn Kv + '_>> {
        Ok(Box::new(RocksSnapshot::of(self)))
    }

    fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        if self.read_only {
            return Err(read_only());
        }
        let mut write = WriteOptions::default();
        write.set_sync(durability == Durability::Disk);
        let written = self.db.write_opt(self.encode(batch)?, &write);
        self.note_space(written.map_err(failed_to("write")))
    }

    fn sync(&self) -> Result<()> {
        if self.read_only {
            return Err(read_only());
        }
        // Asking for a sync after a failed write is an error of its own to RocksDB, a worse one, after
        // which it does not look for free space any more.
        if self.full.load(Ordering::Relaxed) {
            return Err(Error::Engine {
                step: "sync its log",
                message: "the disk is full".to_owned(),
                no_space: true,
            });
        }
        let synced = self.db.flush_wal(true);
        self.note_space(synced.map_err(failed_to("sync its log")))
    }

    /// Only what has reached table files is counted: up to [`RocksKv::flush`], some tens of the newest
    /// megabytes are missing. Values in blob files are counted by their share of the table's keys.
    fn size_bytes(&self, table: Table, from: &[u8], to: &[u8]) -> Result<u64> {
        if from >= to {
            return Ok(0);
        }
        let sizes = self
            .db
            .get_approximate_sizes_cf(self.family(table)?, &[Range::new(from, to)]);
        let in_tables = sizes.first().copied().unwrap_or(0);
        let tables = self.property(table, "rocksdb.live-sst-files-size");
        let blobs = self.property(table, "rocksdb.live-blob-file-size");
        let share =
            u128::from(blobs) * u128::from(in_tables.min(tables)) / u128::from(tables.max(1));
        Ok(in_tables.saturating_add(u64::try_from(share).unwrap_or(u64::MAX)))
    }
}

fn encoded_bytes(write: &Write) -> usize {
    BATCH_ENTRY_OVERHEAD_BYTES
        + match write {
            Write::Put(_, key, value) => key.len() + value.len(),
            Write::Delete(_, key) => key.len(),
            Write::DeleteRange(_, from, to) => from.len() + to.len(),
        }
}

fn read_only() -> Error {
    Error::ReadOnly {
        what: "the store".to_owned(),
    }
}

/// Returns the translation of RocksDB's errors for `step`.
fn failed_to(step: &'static str) -> impl Fn(rocksdb::Error) -> Error {
    move |error| {
        let message = error.into_string();
        let no_space = is_no_space(&message);
        Error::Engine {
            step,
            message,
            no_space,
        }
    }
}

/// Errors reach us as text only. The words are those of RocksDB's `NoSpace` and `SpaceLimit` sub-codes
/// and of the C library's text for a quota.
fn is_no_space(message: &str) -> bool {
    [
        "No space left",
        "Space limit reached",
        "Disk quota exceeded",
    ]
    .iter()
    .any(|words| message.contains(words))
}

#[cfg(test)]
mod tests;
