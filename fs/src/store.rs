//! A store: one directory on disk that holds everything, open in one process at a time.

mod config;
mod counter;
mod lock;
mod sight;
mod stats;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::base::Base;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Ino, LayerId};
use crate::kv::rocks::RocksKv;
use crate::kv::{Batch, Durability, Kv, Step, Table};
use crate::layer::LayerTable;
use crate::layout::key::{self, HashKey, NameHash};
use crate::layout::record::{ConfigRecord, LayerRecord, LayerState};
use crate::version::{self, Version, Visitor};
use crate::view::View;

pub use config::StoreOptions;
pub(crate) use config::random_u64;
use counter::Counter;
use lock::StoreLock;
pub use stats::StoreStats;

/// An open store.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    kv: Box<dyn Kv>,
    config: ConfigRecord,
    base: Option<Base>,
    read_only: bool,
    /// The forest of layers. Rank 4 (see ARCHITECTURE.md): taken last and for a moment.
    pub(crate) layers: RwLock<LayerTable>,
    inos: Counter,
    layer_ids: Counter,
    sequences: Counter,
    /// Serialises what changes branches, checkpoints and layers. Rank 1.
    pub(crate) structure: Mutex<()>,
    /// Open views of branches' heads. Rank 2.
    pub(crate) views: Mutex<HashMap<String, Weak<View>>>,
    /// Held for reading by every operation of a view, for writing by the collector while it moves
    /// entries from one layer to another. Rank 3.
    pub(crate) moving: RwLock<()>,
    /// How many views show each layer. What a view shows is not collected, whether it has a name or
    /// not. Rank 4, as `layers`; never held together with it.
    pub(crate) shown: Mutex<HashMap<LayerId, usize>>,
    /// Held by the collector for as long as it runs. Rank 0.
    pub(crate) collecting: Mutex<()>,
    /// Layers that the collector is folding: they are not whole any more, so nobody may come to see
    /// them. Rank 4.
    pub(crate) folding: Mutex<HashSet<LayerId>>,
    /// Serialises the first look into directories of the base.
    listing: Mutex<()>,
    /// Directories of the base whose names are known to be in the root layer.
    listed: RwLock<HashSet<Ino>>,
    poison: OnceLock<String>,
    /// Held for the life of the store. Last, so that it is released last.
    _lock: Option<StoreLock>,
}

/// The format version that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;

impl Store {
    /// Makes a store with one branch, `main`.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if `dir` holds something, [`Error::BaseUnavailable`] for a bad base.
    pub fn create(dir: &Path, options: &StoreOptions) -> Result<()> {
        config::create(dir, options)
    }

    /// Opens the store in `dir`; on a read-only disk, for reading only.
    ///
    /// # Errors
    /// [`Error::NotAStore`], [`Error::StoreBusy`], [`Error::NewerFormat`], and those of the engine.
    pub fn open(dir: &Path) -> Result<Arc<Store>> {
        let dir = config::require_store(dir)?;
        let lock = StoreLock::take(&dir)?;
        let read_only = lock.read_only();
        let kv = RocksKv::open(&config::db_dir(&dir), read_only)?;
        Self::assemble(dir, Box::new(kv), read_only, Some(lock))
    }

    /// Opens a store whose tables are in `kv`, which [`Store::create_in`] has filled. For tests.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_in(dir: &Path, kv: Box<dyn Kv>) -> Result<Arc<Store>> {
        Self::assemble(dir.to_path_buf(), kv, false, None)
    }

    /// Writes what a new store consists of into an empty engine. For tests.
    ///
    /// # Errors
    /// As [`Store::create`].
    pub fn create_in(kv: &dyn Kv, options: &StoreOptions) -> Result<()> {
        config::fill(kv, options)
    }

    fn assemble(
        dir: PathBuf,
        kv: Box<dyn Kv>,
        read_only: bool,
        lock: Option<StoreLock>,
    ) -> Result<Arc<Store>> {
        let config = config::load(&*kv)?;
        let base = config
            .base
            .as_deref()
            .map(|base| Base::open(base, &dir))
            .transpose()?;
        let store = Store {
            inos: Counter::load(&*kv, "next_ino", 4096)?,
            layer_ids: Counter::load(&*kv, "next_layer", 64)?,
            sequences: Counter::load(&*kv, "next_sequence", 65_536)?,
            layers: RwLock::new(load_layers(&*kv)?),
            dir,
            kv,
            config,
            base,
            read_only,
            structure: Mutex::new(()),
            views: Mutex::new(HashMap::new()),
            moving: RwLock::new(()),
            shown: Mutex::new(HashMap::new()),
            collecting: Mutex::new(()),
            folding: Mutex::new(HashSet::new()),
            listing: Mutex::new(()),
            listed: RwLock::new(HashSet::new()),
            poison: OnceLock::new(),
            _lock: lock,
        };
        let store = Arc::new(store);
        if !read_only {
            store.take_root_of_base()?;
        }
        Ok(store)
    }

    /// Returns the directory of the store.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the base directory, if the store has one.
    pub fn base_dir(&self) -> Option<&Path> {
        self.config.base.as_deref()
    }

    /// Returns the base, if the store has one.
    pub(crate) fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    /// Returns whether the store was opened for reading only.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the random number that tells this store from any other.
    pub fn store_id(&self) -> u64 {
        self.config.store_id
    }

    /// Returns the engine, for reading.
    pub(crate) fn kv(&self) -> &dyn Kv {
        &*self.kv
    }

    /// Returns the position of `name` in its directory.
    pub(crate) fn hash(&self, name: &[u8]) -> NameHash {
        NameHash::of(
            HashKey(self.config.hash_key.0, self.config.hash_key.1),
            name,
        )
    }

    /// Makes all changes of `batch`.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after an earlier failure, [`Error::ReadOnly`], and those of the engine.
    pub(crate) fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        if batch.is_empty() && durability == Durability::Process {
            return Ok(());
        }
        self.require_writable()?;
        self.kv
            .write(batch, durability)
            .map_err(|error| self.failed(error))
    }

    /// Puts everything acknowledged so far on the disk.
    ///
    /// # Errors
    /// As every write; after a failure nothing more is written, for nobody can know what of the
    /// unsynced data the kernel has thrown away.
    pub fn sync(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.require_writable()?;
        self.kv.sync().map_err(|error| self.failed(error))
    }

    fn require_writable(&self) -> Result<()> {
        if let Some(first) = self.poison.get() {
            return Err(Error::Poisoned {
                first: first.clone(),
            });
        }
        if self.read_only {
            return Err(Error::ReadOnly {
                what: format!("the store '{}'", self.dir.display()),
            });
        }
        Ok(())
    }

    /// A full disk is reported and can be mended while the store is open; after anything else
    /// nothing is known about what was written, and going on could make it worse.
    fn failed(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::NoSpace {
            let first = self.poison.get_or_init(|| error.to_string());
            log::error!("the store takes no more writes: {first}");
        }
        error
    }

    /// Returns a new inode number.
    pub(crate) fn new_ino(&self) -> Result<Ino> {
        self.inos.next(self).map(Ino)
    }

    /// Returns a new layer id.
    pub(crate) fn new_layer_id(&self) -> Result<LayerId> {
        self.layer_ids.next(self).map(LayerId)
    }

    /// Returns a new sequence number for a run of blocks.
    pub(crate) fn new_sequence(&self) -> Result<u64> {
        self.sequences.next(self)
    }

    /// Returns a number that is greater than every sequence number given so far.
    pub(crate) fn sequences_end(&self) -> u64 {
        self.sequences.end()
    }

    /// Returns the newest version of `thing` that `head` can see.
    pub(crate) fn newest(
        &self,
        table: Table,
        thing: &[u8],
        head: LayerId,
    ) -> Result<Option<Version>> {
        version::newest(&*self.kv, &self.layers, table, thing, head)
    }

    /// Visits the newest visible versions from `from` on while they start with `prefix`.
    pub(crate) fn scan_versions(
        &self,
        table: Table,
        from: &[u8],
        prefix: &[u8],
        head: LayerId,
        visit: &mut Visitor<'_>,
    ) -> Result<()> {
        version::scan(&*self.kv, &self.layers, table, from, prefix, head, visit)
    }

    /// Returns the table of layers, for reading.
    pub(crate) fn layer_table(&self) -> RwLockReadGuard<'_, LayerTable> {
        self.layers.read()
    }

    /// Returns whether nothing was written in a layer.
    pub(crate) fn layer_is_empty(&self, layer: LayerId) -> Result<bool> {
        let from = key::changes_of_layer(layer);
        Ok(self.kv.seek(Table::Changes, &from, from.len())?.is_none())
    }

    /// Makes a layer's record part of `batch`; the caller inserts it into the table afterwards.
    pub(crate) fn put_layer(batch: &mut Batch, id: LayerId, record: &LayerRecord) {
        batch.put(Table::Layers, key::layer(id), record.encode());
    }
}

/// Returns an open layer's record for a child of `parent`.
pub(crate) fn open_layer(parent: LayerId) -> LayerRecord {
    LayerRecord {
        parent: Some(parent),
        state: LayerState::Open,
        pinned: false,
        created_us: now_us(),
        adopted: Vec::new(),
        merged: Vec::new(),
    }
}

/// Returns the microseconds since the epoch.
pub(crate) fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}

fn load_layers(kv: &dyn Kv) -> Result<LayerTable> {
    let mut table = LayerTable::default();
    // Keys are big-endian and parents are older, so a parent always comes before its children.
    kv.scan(Table::Layers, &[], &mut |key, value| {
        let id = LayerId(key::parse_id(Table::Layers, key)?);
        table.insert(id, LayerRecord::decode(value)?)?;
        Ok(Step::Next)
    })?;
    Ok(table)
}
