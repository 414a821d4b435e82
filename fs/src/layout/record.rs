//! Values of the tables that hold one record for each key.

use std::path::PathBuf;

use crate::attr::{Attr, FileKind, Timestamp};
use crate::error::Result;
use crate::id::{CheckpointId, Ino, LayerId};
use crate::kv::Table;
use crate::layout::wire::{Reader, Writer};

const VERSION: u8 = 1;

/// A limit that truncation set: blocks from `block` on written by layers before `layer` are gone.
/// It makes truncating a file of any size one small write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Index of the first block that is gone.
    pub block: u64,
    /// The layer that truncated.
    pub layer: LayerId,
}

/// One version of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeRecord {
    /// Its attributes; `attr.blocks` is in units of 512 bytes as everywhere.
    pub attr: Attr,
    /// The directory that holds its first name; of a directory, the parent.
    pub parent: Ino,
    /// Its first name. Further names are in table `links`.
    pub name: Vec<u8>,
    /// The layer that created it; no older layer knows it.
    pub born: LayerId,
    /// Content (of a file) or names (of a directory) come from the base where no layer has them.
    pub in_base: bool,
    /// Whether it may have extended attributes.
    pub has_xattrs: bool,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Truncations, by growing block and growing layer.
    pub cuts: Vec<Cut>,
}

impl InodeRecord {
    /// Returns the oldest layer whose version of `block` counts; [`None`] if even the base's does.
    pub fn oldest_visible(&self, block: u64) -> Option<LayerId> {
        self.cuts
            .iter()
            .rev()
            .find(|cut| cut.block <= block)
            .map(|cut| cut.layer)
    }

    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        let attr = &self.attr;
        let mut writer = Writer::new(VERSION);
        writer
            .u32(attr.kind.mode_bits() | attr.perm)
            .u32(attr.nlink)
            .u32(attr.uid)
            .u32(attr.gid)
            .u32(attr.rdev)
            .u64(attr.size)
            .u64(attr.blocks);
        for time in [attr.atime, attr.mtime, attr.ctime, attr.btime] {
            writer.i64(time.secs).u32(time.nanos);
        }
        writer
            .u64(self.parent.0)
            .bytes(&self.name)
            .u64(self.born.0)
            .u8(u8::from(self.in_base) | u8::from(self.has_xattrs) << 1)
            .bytes(&self.target)
            .u32(u32::try_from(self.cuts.len()).expect("cuts are settled at a few dozen"));
        for cut in &self.cuts {
            writer.u64(cut.block).u64(cut.layer.0);
        }
        writer.finish()
    }

    /// Returns the record that `value` encodes. An empty value, a tombstone, is the caller's.
    ///
    /// # Errors
    /// [`Error::BadEntry`](crate::Error::BadEntry) if it is malformed; so do all below.
    pub fn decode(ino: Ino, value: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(Table::Inodes, value, VERSION)?;
        let mode = reader.u32()?;
        let kind = FileKind::from_mode(mode).ok_or_else(|| reader.bad(format!("mode {mode:o}")))?;
        let (nlink, uid, gid, rdev) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let (size, blocks) = (reader.u64()?, reader.u64()?);
        let mut time = || -> Result<Timestamp> {
            Ok(Timestamp {
                secs: reader.i64()?,
                nanos: reader.u32()?,
            })
        };
        let (atime, mtime, ctime, btime) = (time()?, time()?, time()?, time()?);
        let perm = mode & 0o7777;
        let attr = Attr {
            ino,
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            btime,
        };
        let parent = Ino(reader.u64()?);
        let name = reader.bytes()?.to_vec();
        let born = LayerId(reader.u64()?);
        let flags = reader.u8()?;
        let target = reader.bytes()?.to_vec();
        let count = reader.u32()?;
        let mut cuts = Vec::new();
        for _ in 0..count {
            cuts.push(Cut {
                block: reader.u64()?,
                layer: LayerId(reader.u64()?),
            });
        }
        reader.finish()?;
        let (in_base, has_xattrs) = (flags & 1 != 0, flags & 2 != 0);
        Ok(Self {
            attr,
            parent,
            name,
            born,
            in_base,
            has_xattrs,
            target,
            cuts,
        })
    }
}

/// One version of a name in a directory. A tombstone is an empty value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DentryRecord {
    /// The inode it names.
    pub ino: Ino,
    /// Kind of the inode, so that listing a directory need not look at inodes.
    pub kind: FileKind,
    /// No older layer has a version of this name: removing it needs no tombstone.
    pub fresh: bool,
}

impl DentryRecord {
    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(VERSION);
        writer
            .u64(self.ino.0)
            .u32(self.kind.mode_bits())
            .u8(u8::from(self.fresh));
        writer.finish()
    }

    /// Returns the record that `value` encodes; [`None`] for a tombstone.
    ///
    /// # Errors
    /// [`Error::BadEntry`](crate::Error::BadEntry) if it is malformed.
    pub fn decode(value: &[u8]) -> Result<Option<Self>> {
        if value.is_empty() {
            return Ok(None);
        }
        let mut reader = Reader::new(Table::Dentries, value, VERSION)?;
        let ino = Ino(reader.u64()?);
        let mode = reader.u32()?;
        let kind = FileKind::from_mode(mode).ok_or_else(|| reader.bad(format!("kind {mode:o}")))?;
        let fresh = reader.u8()? != 0;
        reader.finish()?;
        Ok(Some(Self { ino, kind, fresh }))
    }
}

/// What a layer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerState {
    /// Being written by one view.
    Open,
    /// Never changes again.
    Frozen,
    /// Nothing can reach it any more; the collector is taking it apart.
    Dead,
}

/// A layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerRecord {
    /// Its parent; [`None`] only for the root layer.
    pub parent: Option<LayerId>,
    /// What it is doing.
    pub state: LayerState,
    /// Locators other than its own may point at its runs.
    pub pinned: bool,
    /// Microseconds since the epoch at which it was made.
    pub created_us: u64,
    /// Layers that were folded into this one and whose runs now belong to it.
    pub adopted: Vec<LayerId>,
    /// Layers that were merged into this one: it has what they changed, as if they were further
    /// parents. They need not exist any more.
    pub merged: Vec<LayerId>,
}

impl LayerRecord {
    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        let state = match self.state {
            LayerState::Open => 0,
            LayerState::Frozen => 1,
            LayerState::Dead => 2,
        };
        let mut writer = Writer::new(VERSION);
        writer
            .option_u64(self.parent.map(|id| id.0))
            .u8(state)
            .u8(u8::from(self.pinned) | u8::from(!self.merged.is_empty()) << 1)
            .u64(self.created_us)
            .u32(u32::try_from(self.adopted.len()).expect("far fewer layers than 2³²"));
        for layer in &self.adopted {
            writer.u64(layer.0);
        }
        if !self.merged.is_empty() {
            writer.u32(u32::try_from(self.merged.len()).expect("far fewer layers than 2³²"));
        }
        for layer in &self.merged {
            writer.u64(layer.0);
        }
        writer.finish()
    }

    /// Returns the record that `value` encodes.
    ///
    /// # Errors
    /// [`Error::BadEntry`](crate::Error::BadEntry) if it is malformed.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(Table::Layers, value, VERSION)?;
        let parent = reader.option_u64()?.map(LayerId);
        let state = match reader.u8()? {
            0 => LayerState::Open,
            1 => LayerState::Frozen,
            2 => LayerState::Dead,
            other => return Err(reader.bad(format!("state {other}"))),
        };
        let flags = reader.u8()?;
        let created_us = reader.u64()?;
        let mut list = || -> Result<Vec<LayerId>> {
            let count = reader.u32()?;
            (0..count).map(|_| Ok(LayerId(reader.u64()?))).collect()
        };
        let adopted = list()?;
        let merged = if flags & 2 == 0 { Vec::new() } else { list()? };
        reader.finish()?;
        Ok(Self {
            parent,
            state,
            pinned: flags & 1 != 0,
            created_us,
            adopted,
            merged,
        })
    }
}

/// A branch; its name is the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRecord {
    /// The layer in which its next change goes.
    pub head: LayerId,
    /// The newest checkpoint behind the head, if there is one.
    pub checkpoint: Option<CheckpointId>,
    /// Microseconds since the epoch at which it was made.
    pub created_us: u64,
}

impl BranchRecord {
    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(VERSION);
        writer
            .u64(self.head.0)
            .option_u64(self.checkpoint.map(|id| id.0))
            .u64(self.created_us);
        writer.finish()
    }

    /// Returns the record that `value` encodes.
    ///
    /// # Errors
    /// [`Error::BadEntry`](crate::Error::BadEntry) if it is malformed.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(Table::Branches, value, VERSION)?;
        let head = LayerId(reader.u64()?);
        let checkpoint = reader.option_u64()?.map(CheckpointId);
        let created_us = reader.u64()?;
        reader.finish()?;
        Ok(Self {
            head,
            checkpoint,
            created_us,
        })
    }
}

/// A checkpoint; its id is the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// The frozen layer.
    pub layer: LayerId,
    /// The checkpoint before it on the line on which it was taken.
    pub parent: Option<CheckpointId>,
    /// The branch of which it was taken, as it was called then.
    pub branch: String,
    /// What its maker called it.
    pub label: Option<String>,
    /// Microseconds since the epoch at which it was taken.
    pub created_us: u64,
    /// Processes belong to it: their image and memory lie in the annex of its layer.
    pub has_processes: bool,
}

/// Bits of a checkpoint's flags.
const HAS_LABEL: u8 = 1;
const HAS_PROCESSES: u8 = 2;

impl CheckpointRecord {
    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut flags = 0;
        if self.label.is_some() {
            flags |= HAS_LABEL;
        }
        if self.has_processes {
            flags |= HAS_PROCESSES;
        }
        let mut writer = Writer::new(VERSION);
        writer
            .u64(self.layer.0)
            .option_u64(self.parent.map(|id| id.0))
            .bytes(self.branch.as_bytes())
            .u8(flags)
            .bytes(self.label.as_deref().unwrap_or_default().as_bytes())
            .u64(self.created_us);
        writer.finish()
    }

    /// Returns the record that `value` encodes.
    ///
    /// # Errors
    /// [`Error::BadEntry`](crate::Error::BadEntry) if it is malformed.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(Table::Checkpoints, value, VERSION)?;
        let layer = LayerId(reader.u64()?);
        let parent = reader.option_u64()?.map(CheckpointId);
        let branch = reader.string()?;
        let flags = reader.u8()?;
        let label = reader.string()?;
        let created_us = reader.u64()?;
        reader.finish()?;
        Ok(Self {
            layer,
            parent,
            branch,
            label: (flags & HAS_LABEL != 0).then_some(label),
            created_us,
            has_processes: flags & HAS_PROCESSES != 0,
        })
    }
}

/// What is known about an inode of the base since it was first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseRecord {
    /// Path below the base directory.
    pub path: Vec<u8>,
    /// Change time at first sight.
    pub ctime: Timestamp,
    /// Size in bytes at first sight.
    pub size: u64,
    /// Of a directory: its names have been taken into the root layer.
    pub listed: bool,
}

impl BaseRecord {
    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(VERSION);
        writer
            .bytes(&self.path)
            .i64(self.ctime.secs)
            .u32(self.ctime.nanos)
            .u64(self.size)
            .u8(u8::from(self.listed));
        writer.finish()
    }

    /// Returns the record that `value` encodes.
    ///
    /// # Errors
    /// [`Error::BadEntry`](crate::Error::BadEntry) if it is malformed.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(Table::Base, value, VERSION)?;
        let path = reader.bytes()?.to_vec();
        let ctime = Timestamp {
            secs: reader.i64()?,
            nanos: reader.u32()?,
        };
        let size = reader.u64()?;
        let listed = reader.u8()? != 0;
        reader.finish()?;
        Ok(Self {
            path,
            ctime,
            size,
            listed,
        })
    }
}

/// The configuration of a store, kept under one key of table `meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigRecord {
    /// The base directory, absolute, if the store has one.
    pub base: Option<PathBuf>,
    /// The key with which names are hashed.
    pub hash_key: (u64, u64),
    /// Random number that tells this store from any other.
    pub store_id: u64,
}

impl ConfigRecord {
    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        let base = self.base.as_deref().map(|path| path.as_os_str().as_bytes());
        let mut writer = Writer::new(VERSION);
        writer
            .u8(u8::from(base.is_some()))
            .bytes(base.unwrap_or_default())
            .u64(self.hash_key.0)
            .u64(self.hash_key.1)
            .u64(self.store_id);
        writer.finish()
    }

    /// Returns the record that `value` encodes.
    ///
    /// # Errors
    /// [`Error::BadEntry`](crate::Error::BadEntry) if it is malformed.
    pub fn decode(value: &[u8]) -> Result<Self> {
        use std::os::unix::ffi::OsStringExt;
        let mut reader = Reader::new(Table::Meta, value, VERSION)?;
        let has_base = reader.u8()? != 0;
        let base = std::ffi::OsString::from_vec(reader.bytes()?.to_vec());
        let hash_key = (reader.u64()?, reader.u64()?);
        let store_id = reader.u64()?;
        reader.finish()?;
        Ok(Self {
            base: has_base.then(|| base.into()),
            hash_key,
            store_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode() -> InodeRecord {
        let time = Timestamp {
            secs: -3,
            nanos: 999_999_999,
        };
        InodeRecord {
            attr: Attr {
                ino: Ino(5),
                kind: FileKind::Regular,
                perm: 0o4755,
                nlink: 2,
                uid: 1,
                gid: 2,
                rdev: 0,
                size: 1 << 40,
                blocks: 8,
                atime: time,
                mtime: time,
                ctime: time,
                btime: time,
            },
            parent: Ino(1),
            name: b"\xff name".to_vec(),
            born: LayerId(4),
            in_base: true,
            has_xattrs: false,
            target: Vec::new(),
            cuts: vec![
                Cut {
                    block: 2,
                    layer: LayerId(5),
                },
                Cut {
                    block: 9,
                    layer: LayerId(7),
                },
            ],
        }
    }

    #[test]
    fn records_round_trip_and_truncated_ones_are_errors() {
        let record = inode();
        let value = record.encode();
        assert_eq!(InodeRecord::decode(Ino(5), &value).unwrap(), record);
        for len in 0..value.len() {
            assert!(InodeRecord::decode(Ino(5), &value[..len]).is_err());
        }
        let layer = LayerRecord {
            parent: Some(LayerId(1)),
            state: LayerState::Frozen,
            pinned: true,
            created_us: 7,
            adopted: vec![LayerId(3)],
            merged: vec![LayerId(4), LayerId(6)],
        };
        assert_eq!(LayerRecord::decode(&layer.encode()).unwrap(), layer);
        let checkpoint = CheckpointRecord {
            layer: LayerId(3),
            parent: None,
            branch: "main".into(),
            label: Some("ä".into()),
            created_us: 1,
            has_processes: true,
        };
        assert_eq!(
            CheckpointRecord::decode(&checkpoint.encode()).unwrap(),
            checkpoint
        );
        assert_eq!(DentryRecord::decode(&[]).unwrap(), None);
    }

    #[test]
    fn cuts_hide_what_older_layers_wrote() {
        let record = inode();
        assert_eq!(record.oldest_visible(1), None);
        assert_eq!(record.oldest_visible(2), Some(LayerId(5)));
        assert_eq!(record.oldest_visible(9), Some(LayerId(7)));
    }
}
