//! First sight of the base: names and attributes of a directory are taken into the root layer when
//! somebody first looks into it. From then on every lookup is a lookup in the store, whether a name
//! comes from the base or not; only contents of files are still read from the base.

use std::collections::HashMap;

use crate::attr::{Attr, FileKind};
use crate::base::{Base, BaseStat};
use crate::error::{Error, Result};
use crate::id::{Ino, LayerId};
use crate::kv::{Batch, Durability, Table};
use crate::layout::key;
use crate::layout::record::{BaseRecord, DentryRecord, InodeRecord};
use crate::store::Store;

/// Entries taken in one batch: bounds the memory that a huge directory needs.
const ENTRIES_PER_BATCH: usize = 1000;

impl Store {
    /// Takes the base's root directory into the root layer, once in the life of a store.
    pub(super) fn take_root_of_base(&self) -> Result<()> {
        let Some(base) = &self.base else {
            return Ok(());
        };
        let thing = key::versioned(&key::inode(Ino::ROOT), LayerId::ROOT);
        if self.kv.get(Table::Inodes, &thing)?.is_some() {
            return Ok(());
        }
        let Some(stat) = base.stat(b"")? else {
            let source = std::io::Error::from_raw_os_error(libc::ENOENT);
            return Err(Error::BaseUnavailable {
                path: base.dir().to_path_buf(),
                source,
            });
        };
        let mut batch = Batch::new();
        let place = Place {
            ino: Ino::ROOT,
            parent: Ino::ROOT,
            name: b"",
            path: b"",
        };
        self.put_sighted(&mut batch, base, &place, &stat)?;
        self.write(&batch, Durability::Process)
    }

    /// Returns what is known about an inode of the base.
    pub(crate) fn base_record(&self, ino: Ino) -> Result<Option<BaseRecord>> {
        match self.kv.get(Table::Base, &key::base_inode(ino))? {
            None => Ok(None),
            Some(value) => BaseRecord::decode(&value).map(Some),
        }
    }

    /// Makes sure that the names of base directory `dir` are in the root layer.
    ///
    /// # Errors
    /// Those of reading the base; [`Error::BaseDrift`] if the directory is gone.
    pub(crate) fn require_listed(&self, dir: Ino) -> Result<()> {
        if self.listed.read().contains(&dir) {
            return Ok(());
        }
        let _listing = self.listing.lock();
        let Some(mut record) = self.base_record(dir)? else {
            return Err(Error::BadEntry {
                table: "base",
                what: format!("inode {dir} is missing"),
            });
        };
        if !record.listed {
            self.list(dir, &record)?;
            record.listed = true;
            let mut batch = Batch::new();
            batch.put(Table::Base, key::base_inode(dir), record.encode());
            self.write(&batch, Durability::Process)?;
        }
        self.listed.write().insert(dir);
        Ok(())
    }

    fn list(&self, dir: Ino, record: &BaseRecord) -> Result<()> {
        let Some(base) = &self.base else {
            return Ok(());
        };
        let mut batch = Batch::new();
        let mut taken = 0;
        // Hard links of one file inside one batch: the index on disk does not know them yet.
        let mut fresh: HashMap<(u64, u64), Ino> = HashMap::new();
        for (name, ..) in base.read_dir(&record.path)? {
            let mut path = record.path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            // Gone between listing and looking: it was never there.
            let Some(stat) = base.stat(&path)? else {
                continue;
            };
            let Some(kind) = FileKind::from_mode(stat.mode) else {
                continue;
            };
            let host = (stat.dev, stat.ino);
            let index = key::base_index(stat.dev, stat.ino);
            let is_dir = kind == FileKind::Directory;
            let known = match fresh.get(&host) {
                // A bind mount shows one directory at two places: two directories to us, for a
                // directory has one parent.
                _ if is_dir => None,
                Some(ino) => Some(*ino),
                None => match self.kv.get(Table::Base, &index)?.map(<[u8; 8]>::try_from) {
                    Some(Ok(bytes)) => Some(Ino(u64::from_le_bytes(bytes))),
                    Some(Err(_)) => {
                        let what = "an index entry of wrong length".to_owned();
                        return Err(Error::BadEntry {
                            table: "base",
                            what,
                        });
                    }
                    None => None,
                },
            };
            let ino = match known {
                Some(ino) => {
                    self.put_further_name(&mut batch, ino, dir, &name)?;
                    ino
                }
                None => {
                    let ino = self.new_ino()?;
                    let place = Place {
                        ino,
                        parent: dir,
                        name: &name,
                        path: &path,
                    };
                    self.put_sighted(&mut batch, base, &place, &stat)?;
                    if !is_dir {
                        batch.put(Table::Base, index, ino.0.to_le_bytes().to_vec());
                        fresh.insert(host, ino);
                    }
                    ino
                }
            };
            let dentry = DentryRecord {
                ino,
                kind,
                fresh: true,
            };
            let thing = key::dentry(dir, self.hash(&name), &name);
            batch.put(
                Table::Dentries,
                key::versioned(&thing, LayerId::ROOT),
                dentry.encode(),
            );
            taken += 1;
            if taken % ENTRIES_PER_BATCH == 0 {
                self.write(&std::mem::take(&mut batch), Durability::Process)?;
                fresh.clear();
            }
        }
        self.write(&batch, Durability::Process)
    }

    /// A second name of a file of the base, unless it is the first one seen again.
    fn put_further_name(&self, batch: &mut Batch, ino: Ino, dir: Ino, name: &[u8]) -> Result<()> {
        let thing = key::versioned(&key::inode(ino), LayerId::ROOT);
        if let Some(value) = self.kv.get(Table::Inodes, &thing)? {
            let first = InodeRecord::decode(ino, &value)?;
            if first.parent == dir && first.name == name {
                return Ok(());
            }
        }
        let link = key::link(ino, dir, name);
        batch.put(Table::Links, key::versioned(&link, LayerId::ROOT), vec![1]);
        Ok(())
    }

    fn put_sighted(
        &self,
        batch: &mut Batch,
        base: &Base,
        place: &Place<'_>,
        stat: &BaseStat,
    ) -> Result<()> {
        let kind = FileKind::from_mode(stat.mode).unwrap_or(FileKind::Regular);
        let target = match kind {
            FileKind::Symlink => base.read_link(place.path)?,
            _ => Vec::new(),
        };
        let mut has_xattrs = false;
        for name in base.list_xattrs(place.path)? {
            let Some(value) = base.get_xattr(place.path, &name)? else {
                continue;
            };
            let thing = key::xattr(place.ino, self.hash(&name), &name);
            let mut stored = vec![1];
            stored.extend_from_slice(&value);
            batch.put(Table::Xattrs, key::versioned(&thing, LayerId::ROOT), stored);
            has_xattrs = true;
        }
        let attr = Attr {
            ino: place.ino,
            kind,
            perm: stat.mode & 0o7777,
            nlink: stat.nlink,
            uid: stat.uid,
            gid: stat.gid,
            rdev: stat.rdev,
            size: stat.size,
            blocks: stat.blocks,
            atime: stat.atime,
            mtime: stat.mtime,
            ctime: stat.ctime,
            btime: stat.btime,
        };
        let record = InodeRecord {
            attr,
            parent: place.parent,
            name: place.name.to_vec(),
            born: LayerId::ROOT,
            in_base: matches!(kind, FileKind::Regular | FileKind::Directory),
            has_xattrs,
            target,
            cuts: Vec::new(),
        };
        let known = BaseRecord {
            path: place.path.to_vec(),
            ctime: stat.ctime,
            size: stat.size,
            listed: false,
        };
        let thing = key::inode(place.ino);
        batch.put(
            Table::Inodes,
            key::versioned(&thing, LayerId::ROOT),
            record.encode(),
        );
        batch.put(Table::Base, key::base_inode(place.ino), known.encode());
        Ok(())
    }
}

/// Where an entry of the base was first seen.
struct Place<'a> {
    ino: Ino,
    parent: Ino,
    name: &'a [u8],
    path: &'a [u8],
}
