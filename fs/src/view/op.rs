//! One operation under way: the head it works on, the locks it holds, and how it reads inodes.

use std::sync::Arc;

use nix::errno::Errno;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::attr::FileKind;
use crate::error::{Error, Result};
use crate::id::{Ino, LayerId};
use crate::kv::Table;
use crate::layout::key;
use crate::layout::record::{DentryRecord, InodeRecord};
use crate::store::Store;
use crate::version::Version;
use crate::view::cache::InodeVersion;
use crate::view::{Gate, NAME_BYTES_MAX, View};

const STRIPES: u64 = 1024;

/// Locks of inodes, by stripe. Several are taken in order of stripe, so nobody waits in a circle.
#[derive(Debug)]
pub(super) struct Locks {
    stripes: Vec<RwLock<()>>,
}

/// Exclusive locks of some inodes.
pub(super) type Exclusive<'a> = SmallVec<[RwLockWriteGuard<'a, ()>; 4]>;

impl Locks {
    pub(super) fn new() -> Self {
        Self {
            stripes: (0..STRIPES).map(|_| RwLock::new(())).collect(),
        }
    }

    fn stripe(ino: Ino) -> usize {
        usize::try_from(ino.0 % STRIPES).unwrap_or(0)
    }

    /// Locks one inode against changes.
    pub(super) fn shared(&self, ino: Ino) -> RwLockReadGuard<'_, ()> {
        self.stripes[Self::stripe(ino)].read()
    }

    /// Locks inodes for changing them.
    pub(super) fn exclusive(&self, inos: &[Ino]) -> Exclusive<'_> {
        let mut stripes: SmallVec<[usize; 4]> = inos.iter().map(|ino| Self::stripe(*ino)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes
            .into_iter()
            .map(|stripe| self.stripes[stripe].write())
            .collect()
    }
}

/// An operation under way. While it lives, the head stays and nothing is folded.
pub(super) struct Op<'a> {
    pub(super) view: &'a View,
    pub(super) store: &'a Store,
    pub(super) head: LayerId,
    _gate: RwLockReadGuard<'a, Gate>,
    _moving: RwLockReadGuard<'a, ()>,
}

impl View {
    /// Begins an operation that only reads.
    pub(super) fn reading(&self) -> Result<Op<'_>> {
        let gate = self.gate.read();
        if gate.retired {
            return Err(Errno::ESTALE.into());
        }
        let head = gate.head;
        Ok(Op {
            view: self,
            store: &self.store,
            head,
            _gate: gate,
            _moving: self.store.moving.read(),
        })
    }

    /// Begins an operation that changes something.
    pub(super) fn changing(&self) -> Result<Op<'_>> {
        if self.read_only {
            return Err(Errno::EROFS.into());
        }
        self.reading()
    }
}

impl Op<'_> {
    /// Returns the visible version of an inode; ESTALE if this head has none.
    pub(super) fn inode(&self, ino: Ino) -> Result<Arc<InodeVersion>> {
        if let Some(version) = self.view.inodes.get(ino) {
            return Ok(version);
        }
        let thing = key::inode(ino);
        match self.store.newest(Table::Inodes, &thing, self.head)? {
            Some((layer, value)) if !value.is_empty() => {
                let record = InodeRecord::decode(ino, &value)?;
                let version = Arc::new(InodeVersion { layer, record });
                self.view.inodes.put(ino, Arc::clone(&version));
                Ok(version)
            }
            _ => Err(Errno::ESTALE.into()),
        }
    }

    /// Returns the visible version of a directory whose names are all in the store.
    pub(super) fn directory(&self, ino: Ino) -> Result<Arc<InodeVersion>> {
        let version = self.inode(ino)?;
        if version.record.attr.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        if version.record.in_base {
            self.store.require_listed(ino)?;
        }
        Ok(version)
    }

    /// Returns the visible version of a regular file.
    pub(super) fn regular(&self, ino: Ino) -> Result<Arc<InodeVersion>> {
        let version = self.inode(ino)?;
        match version.record.attr.kind {
            FileKind::Regular => Ok(version),
            FileKind::Directory => Err(Errno::EISDIR.into()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Returns what the name stands for, and where that is written.
    pub(super) fn name(&self, parent: Ino, name: &[u8]) -> Result<Name> {
        check_name(name)?;
        let thing = key::dentry(parent, self.store.hash(name), name);
        let found = self.store.newest(Table::Dentries, &thing, self.head)?;
        Name::from_version(thing, found, self.head)
    }
}

/// Refuses what cannot be the name of a directory entry.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    let reserved = matches!(name, b"" | b"." | b"..");
    if reserved || name.contains(&0) || name.contains(&b'/') {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}

/// A name in a directory as a head sees it.
pub(super) struct Name {
    /// Its thing in table `dentries`.
    pub(super) thing: crate::kv::Key,
    /// What it stands for; [`None`] if it is free.
    pub(super) record: Option<DentryRecord>,
    /// Whether the head itself wrote the present version.
    pub(super) in_head: bool,
    /// Whether no layer before the head has a version.
    pub(super) fresh: bool,
}

impl Name {
    fn from_version(thing: crate::kv::Key, found: Option<Version>, head: LayerId) -> Result<Self> {
        let Some((layer, value)) = found else {
            return Ok(Self {
                thing,
                record: None,
                in_head: false,
                fresh: true,
            });
        };
        let record = DentryRecord::decode(&value)?;
        let in_head = layer == head;
        let fresh = in_head && record.is_some_and(|record| record.fresh);
        Ok(Self {
            thing,
            record,
            in_head,
            fresh,
        })
    }

    /// Returns what it stands for; ENOENT if it is free.
    pub(super) fn require(&self) -> Result<DentryRecord> {
        self.record.ok_or(Error::Posix(Errno::ENOENT))
    }
}
