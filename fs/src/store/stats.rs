//! Counts and sizes of a store, for people and for watching.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::kv::{Step, Table};
use crate::layout::record::LayerState;
use crate::store::{FORMAT_VERSION, Store};

/// Counts and sizes of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStats {
    /// Version of the format on disk.
    pub format: u32,
    /// Random number that tells this store from any other, as 16 hexadecimal digits.
    pub store_id: String,
    /// The directory that lies under all layers.
    pub base: Option<PathBuf>,
    /// Branches.
    pub branches: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Layers that are being written, and heads that were left and not yet collected.
    pub layers_open: u64,
    /// Layers that never change again.
    pub layers_frozen: u64,
    /// Layers that the collector is taking apart.
    pub layers_dead: u64,
    /// Branches of which a view is open.
    pub views: u64,
    /// About how many bytes the entries of each table take on the disk, by the table's name.
    pub table_bytes: BTreeMap<String, u64>,
    /// Size of all files in the store's directory: the tables, what in them was overwritten and not
    /// yet collected, and the log.
    pub disk_bytes: u64,
}

/// Greater than any key: keys begin with a number that is far from its greatest value, or with a
/// name in UTF-8.
const BEHIND_ALL_KEYS: [u8; 40] = [0xff; 40];

impl Store {
    /// Returns counts and sizes.
    ///
    /// # Errors
    /// Those of the engine, and [`Error::Io`] if the directory cannot be read.
    pub fn stats(&self) -> Result<StoreStats> {
        let (mut layers_open, mut layers_frozen, mut layers_dead) = (0, 0, 0);
        for (_, record) in self.layer_table().iter() {
            match record.state {
                LayerState::Open => layers_open += 1,
                LayerState::Frozen => layers_frozen += 1,
                LayerState::Dead => layers_dead += 1,
            }
        }
        let views = self
            .views
            .lock()
            .values()
            .filter(|view| view.strong_count() > 0)
            .count();
        let mut table_bytes = BTreeMap::new();
        for table in Table::ALL {
            let bytes = self.kv.size_bytes(table, &[], &BEHIND_ALL_KEYS)?;
            table_bytes.insert(table.name().to_owned(), bytes);
        }
        Ok(StoreStats {
            format: FORMAT_VERSION,
            store_id: format!("{:016x}", self.store_id()),
            base: self.base_dir().map(Path::to_path_buf),
            branches: self.count(Table::Branches)?,
            checkpoints: self.count(Table::Checkpoints)?,
            layers_open,
            layers_frozen,
            layers_dead,
            views: u64::try_from(views).unwrap_or(u64::MAX),
            table_bytes,
            disk_bytes: dir_bytes(&self.dir, None)?,
        })
    }

    fn count(&self, table: Table) -> Result<u64> {
        let mut count = 0;
        self.kv.scan(table, &[], &mut |_, _| {
            count += 1;
            Ok(Step::Next)
        })?;
        Ok(count)
    }
}

/// Returns the sizes of all files below `dir`. The engine removes files at any time, so what is
/// gone when it is looked at counts nothing, and neither does what is mounted there: `device` is that of
/// the directory above.
fn dir_bytes(dir: &Path, device: Option<u64>) -> Result<u64> {
    let failed = |error| Error::io(format!("read '{}'", dir.display()), error);
    let Some(own) = unless_gone(fs::symlink_metadata(dir)).map_err(failed)? else {
        return Ok(0);
    };
    if device.is_some_and(|device| device != own.dev()) {
        return Ok(0);
    }
    let Some(entries) = unless_gone(fs::read_dir(dir)).map_err(failed)? else {
        return Ok(0);
    };
    let mut bytes = 0;
    for entry in entries {
        let Some(entry) = unless_gone(entry).map_err(failed)? else {
            continue;
        };
        let Some(meta) = unless_gone(entry.metadata()).map_err(failed)? else {
            continue;
        };
        bytes += if meta.is_dir() {
            dir_bytes(&entry.path(), Some(own.dev()))?
        } else {
            meta.len()
        };
    }
    Ok(bytes)
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
