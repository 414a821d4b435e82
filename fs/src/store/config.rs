//! Making a store, and finding out what one is.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::attr::{Attr, FileKind, Timestamp};
use crate::error::{Error, Result};
use crate::id::{Ino, LayerId};
use crate::kv::rocks::RocksKv;
use crate::kv::{Batch, Durability, Kv, Table};
use crate::layout::key;
use crate::layout::record::{BranchRecord, ConfigRecord, InodeRecord, LayerRecord, LayerState};
use crate::store::counter::Counter;
use crate::store::{FORMAT_VERSION, Store, now_us, open_layer};

/// How a store is made.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// A directory that lies under all layers and is never changed.
    pub base: Option<PathBuf>,
}

const FORMAT_KEY: &[u8] = b"format";
const CONFIG_KEY: &[u8] = b"config";
/// The name of the branch that every new store has.
const FIRST_BRANCH: &str = "main";
const FIRST_OPEN_LAYER: LayerId = LayerId(2);

pub(super) fn db_dir(dir: &Path) -> PathBuf {
    dir.join("db")
}

/// Returns the absolute path of `dir` if it is a store.
pub(super) fn require_store(dir: &Path) -> Result<PathBuf> {
    let is_store = db_dir(dir).join("CURRENT").exists();
    match dir.canonicalize() {
        Ok(path) if is_store => Ok(path),
        _ => Err(Error::NotAStore {
            path: dir.to_path_buf(),
        }),
    }
}

pub(super) fn create(dir: &Path, options: &StoreOptions) -> Result<()> {
    let base = match &options.base {
        None => None,
        Some(base) => {
            let unavailable = |source| Error::BaseUnavailable {
                path: base.clone(),
                source,
            };
            let path = base.canonicalize().map_err(unavailable)?;
            fs::read_dir(&path).map_err(unavailable)?;
            Some(path)
        }
    };
    let made = match fs::read_dir(dir) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(Error::NotEmpty {
                    path: dir.to_path_buf(),
                });
            }
            false
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .map_err(|error| Error::io(format!("create '{}'", dir.display()), error))?;
            true
        }
        Err(error) => return Err(Error::io(format!("read '{}'", dir.display()), error)),
    };
    let filled = fill_directory(dir, base);
    if filled.is_err() {
        // Half a store would be in the way of the next attempt. What cannot be removed stays.
        drop(fs::remove_dir_all(db_dir(dir)));
        if made {
            drop(fs::remove_dir(dir));
        }
    }
    filled
}

fn fill_directory(dir: &Path, base: Option<PathBuf>) -> Result<()> {
    let real = dir
        .canonicalize()
        .map_err(|error| Error::io(format!("find '{}'", dir.display()), error))?;
    if let Some(base) = base.as_deref().filter(|base| base.starts_with(&real)) {
        return Err(Error::BadPath {
            path: base.to_owned(),
            reason: "it lies in the store itself; a base must be outside, or above it".to_owned(),
        });
    }
    // Whoever can read the store can read every file in every branch.
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
        .map_err(|error| Error::io(format!("protect '{}'", dir.display()), error))?;
    let kv = RocksKv::open(&db_dir(dir), false)?;
    fill(&kv, &StoreOptions { base })
}

/// Writes the first entries in one synced batch: a store is there wholly or not at all.
pub(super) fn fill(kv: &dyn Kv, options: &StoreOptions) -> Result<()> {
    let config = ConfigRecord {
        base: options.base.clone(),
        hash_key: (random_u64()?, random_u64()?),
        store_id: random_u64()?,
    };
    let root = LayerRecord {
        parent: None,
        state: LayerState::Frozen,
        pinned: true,
        created_us: now_us(),
        adopted: Vec::new(),
        merged: Vec::new(),
    };
    let branch = BranchRecord {
        head: FIRST_OPEN_LAYER,
        checkpoint: None,
        created_us: now_us(),
    };
    let mut batch = Batch::new();
    batch.put(
        Table::Meta,
        FORMAT_KEY,
        FORMAT_VERSION.to_le_bytes().to_vec(),
    );
    batch.put(Table::Meta, CONFIG_KEY, config.encode());
    Counter::init(&mut batch, "next_ino", Ino::ROOT.0 + 1);
    Counter::init(&mut batch, "next_layer", FIRST_OPEN_LAYER.0 + 1);
    Counter::init(&mut batch, "next_sequence", 1);
    Store::put_layer(&mut batch, LayerId::ROOT, &root);
    Store::put_layer(&mut batch, FIRST_OPEN_LAYER, &open_layer(LayerId::ROOT));
    batch.put(Table::Branches, FIRST_BRANCH.as_bytes(), branch.encode());
    if options.base.is_none() {
        let root_dir = empty_root();
        let thing = key::inode(Ino::ROOT);
        batch.put(
            Table::Inodes,
            key::versioned(&thing, LayerId::ROOT),
            root_dir.encode(),
        );
    }
    kv.write(&batch, Durability::Disk)
}

fn empty_root() -> InodeRecord {
    let now = Timestamp::now();
    InodeRecord {
        attr: Attr {
            ino: Ino::ROOT,
            kind: FileKind::Directory,
            perm: 0o755,
            nlink: 2,
            uid: nix::unistd::getuid().as_raw(),
            gid: nix::unistd::getgid().as_raw(),
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        },
        parent: Ino::ROOT,
        name: Vec::new(),
        born: LayerId::ROOT,
        in_base: false,
        has_xattrs: false,
        target: Vec::new(),
        cuts: Vec::new(),
    }
}

pub(super) fn load(kv: &dyn Kv) -> Result<ConfigRecord> {
    let missing = |what: &str| Error::BadEntry {
        table: "meta",
        what: format!("{what} is missing"),
    };
    let format = kv
        .get(Table::Meta, FORMAT_KEY)?
        .ok_or_else(|| missing("the format version"))?;
    let format: [u8; 4] = format
        .as_slice()
        .try_into()
        .map_err(|_| missing("the format version"))?;
    match u32::from_le_bytes(format) {
        found if found > FORMAT_VERSION => {
            return Err(Error::NewerFormat {
                found,
                known: FORMAT_VERSION,
            });
        }
        _ => {}
    }
    let config = kv
        .get(Table::Meta, CONFIG_KEY)?
        .ok_or_else(|| missing("the configuration"))?;
    ConfigRecord::decode(&config)
}

/// Returns eight random bytes from the kernel.
pub(crate) fn random_u64() -> Result<u64> {
    use std::io::Read;
    let mut bytes = [0; 8];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Error::io("read '/dev/urandom'", error))?;
    Ok(u64::from_le_bytes(bytes))
}
