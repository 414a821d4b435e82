//! The seam to the key-value engine: ordered tables, atomic batches, one log.
//!
//! Everything above speaks to a [`Kv`]. `rocks` is the only place that names RocksDB, `memory` serves
//! the model tests, `faulty` wraps either and fails or cuts at the N-th write.

pub mod faulty;
pub mod memory;
pub mod rocks;
#[cfg(test)]
mod suite;

use smallvec::SmallVec;

use crate::error::Result;

/// A key; most fit without an allocation.
pub type Key = SmallVec<[u8; 48]>;

/// The tables of a store (column families in RocksDB). `docs/format.md` gives keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Table {
    /// Format version, counters, configuration.
    Meta,
    /// One record for each layer.
    Layers,
    /// One record for each branch, by name.
    Branches,
    /// One record for each checkpoint, by id.
    Checkpoints,
    /// Attributes of inodes, versioned by layer.
    Inodes,
    /// Names in directories, versioned by layer.
    Dentries,
    /// Names of an inode beyond the first, versioned by layer.
    Links,
    /// Extended attributes, versioned by layer.
    Xattrs,
    /// Where the bytes of a block are, versioned by layer.
    Map,
    /// Bytes of blocks, by layer.
    Data,
    /// What a layer changed, by layer.
    Changes,
    /// What is known about inodes of the base.
    Base,
}

impl Table {
    /// All tables.
    pub const ALL: [Table; 12] = [
        Table::Meta,
        Table::Layers,
        Table::Branches,
        Table::Checkpoints,
        Table::Inodes,
        Table::Dentries,
        Table::Links,
        Table::Xattrs,
        Table::Map,
        Table::Data,
        Table::Changes,
        Table::Base,
    ];

    /// Returns the table's name on disk and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Meta => "meta",
            Table::Layers => "layers",
            Table::Branches => "branches",
            Table::Checkpoints => "checkpoints",
            Table::Inodes => "inodes",
            Table::Dentries => "dentries",
            Table::Links => "links",
            Table::Xattrs => "xattrs",
            Table::Map => "map",
            Table::Data => "data",
            Table::Changes => "changes",
            Table::Base => "base",
        }
    }

    /// Returns how many leading bytes of a key all versions of one thing share. Lookups never need
    /// entries with another prefix, so an engine may keep filters over it. Zero: no such prefix.
    pub const fn prefix_bytes(self) -> usize {
        match self {
            Table::Inodes | Table::Links => 8,
            Table::Dentries | Table::Xattrs | Table::Map => 16,
            Table::Meta
            | Table::Layers
            | Table::Branches
            | Table::Checkpoints
            | Table::Data
            | Table::Changes
            | Table::Base => 0,
        }
    }
}

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a key.
    Put(Table, Key, Vec<u8>),
    /// Removes a key, if it is there.
    Delete(Table, Key),
    /// Removes all keys from the first (inclusive) to the second (exclusive).
    DeleteRange(Table, Key, Key),
}

/// Changes that are made together or not at all, in order.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    writes: Vec<Write>,
}

impl Batch {
    /// Returns an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, table: Table, key: impl Into<Key>, value: Vec<u8>) {
        self.writes.push(Write::Put(table, key.into(), value));
    }

    /// Removes `key`.
    pub fn delete(&mut self, table: Table, key: impl Into<Key>) {
        self.writes.push(Write::Delete(table, key.into()));
    }

    /// Removes all keys from `from` (inclusive) to `to` (exclusive).
    pub fn delete_range(&mut self, table: Table, from: impl Into<Key>, to: impl Into<Key>) {
        self.writes
            .push(Write::DeleteRange(table, from.into(), to.into()));
    }

    /// Returns the changes in order.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Returns whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns how many changes it has.
    pub fn len(&self) -> usize {
        self.writes.len()
    }
}

/// When a batch counts as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives a crash of this process; a power cut may take it, with everything after it.
    Process,
    /// It and everything before it are on the disk.
    Disk,
}

/// What a visitor of [`Kv::scan`] wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next entry.
    Next,
    /// The first entry at or after this key, which must be greater than the present one.
    Seek(Key),
    /// No more.
    Stop,
}

/// What [`Kv::scan`] calls with the key and value of each entry.
pub type Visitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<Step> + 'a;

/// An ordered, atomic, logged key-value engine.
pub trait Kv: Send + Sync + std::fmt::Debug {
    /// Returns the value of `key`.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) if the engine cannot read, or finds damage.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Returns the values of `keys`, in their order.
    ///
    /// # Errors
    /// As [`Kv::get`].
    fn get_many(&self, table: Table, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(table, key)).collect()
    }

    /// Returns the first entry at or after `from` that shares its first `prefix_bytes` bytes. For a
    /// table with filters `prefix_bytes` must be at least the table's [`Table::prefix_bytes`].
    ///
    /// # Errors
    /// As [`Kv::get`].
    fn seek(
        &self,
        table: Table,
        from: &[u8],
        prefix_bytes: usize,
    ) -> Result<Option<(Key, Vec<u8>)>>;

    /// Visits entries at or after `from` in key order, of the state at the time of the call, until
    /// the visitor says stop, fails, or none are left.
    ///
    /// # Errors
    /// As [`Kv::get`], and whatever the visitor returns.
    fn scan(&self, table: Table, from: &[u8], visit: &mut Visitor<'_>) -> Result<()>;

    /// Makes all changes of `batch`, atomically over all tables.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine); then none of the changes is visible.
    fn write(&self, batch: &Batch, durability: Durability) -> Result<()>;

    /// Puts everything written so far on the disk.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine); then nothing is known about what is on the disk.
    fn sync(&self) -> Result<()>;

    /// Returns about how many bytes the entries from `from` to `to` take on the disk.
    ///
    /// # Errors
    /// As [`Kv::get`].
    fn size_bytes(&self, table: Table, from: &[u8], to: &[u8]) -> Result<u64>;

    /// Returns the state at the time of the call, for reading: later writes do not show in it.
    ///
    /// # Errors
    /// As [`Kv::get`].
    fn snapshot(&self) -> Result<Box<dyn Kv + '_>>;
}

/// An engine can outlive the store that uses it, or be looked at beside it.
impl<K: Kv + ?Sized> Kv for std::sync::Arc<K> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        (**self).get(table, key)
    }

    fn get_many(&self, table: Table, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        (**self).get_many(table, keys)
    }

    fn seek(
        &self,
        table: Table,
        from: &[u8],
        prefix_bytes: usize,
    ) -> Result<Option<(Key, Vec<u8>)>> {
        (**self).seek(table, from, prefix_bytes)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visitor<'_>) -> Result<()> {
        (**self).scan(table, from, visit)
    }

    fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        (**self).write(batch, durability)
    }

    fn sync(&self) -> Result<()> {
        (**self).sync()
    }

    fn size_bytes(&self, table: Table, from: &[u8], to: &[u8]) -> Result<u64> {
        (**self).size_bytes(table, from, to)
    }

    fn snapshot(&self) -> Result<Box<dyn Kv + '_>> {
        (**self).snapshot()
    }
}
