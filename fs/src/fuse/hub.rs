//! The slots of a session with many, and the closed directory that they are in.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use nix::errno::Errno;
use parking_lot::{Mutex, RwLock};

use crate::attr::{Attr, DirEntry, FileKind, Statfs, Timestamp};
use crate::error::{Error, Result};
use crate::fuse::control;
use crate::fuse::node::{Node, SlotId};
use crate::fuse::service::{Context, Entry};
use crate::fuse::slot::Slot;
use crate::id::Ino;

/// What the kernel calls the closed directory.
pub(super) const ROOT: u64 = 1;

/// Bytes of the part of a control directory's name that nobody can guess.
const SECRET_BYTES: usize = 16;

/// The slots, by number.
#[derive(Debug)]
pub(super) struct Hub {
    slots: RwLock<HashMap<SlotId, Arc<Slot>>>,
    last: Mutex<u32>,
    secret: String,
    /// The only user who may enter.
    owner: u32,
}

impl Hub {
    /// Starts without slots.
    pub(super) fn new() -> Result<Self> {
        let mut bytes = [0; SECRET_BYTES];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .map_err(|error| Error::io("read '/dev/urandom'", error))?;
        Ok(Self {
            slots: RwLock::default(),
            last: Mutex::new(0),
            secret: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            owner: nix::unistd::geteuid().as_raw(),
        })
    }

    /// Adds a slot; its number is not used again before all others were.
    pub(super) fn add(&self, slot: Arc<Slot>) -> Result<SlotId> {
        let mut last = self.last.lock();
        let mut slots = self.slots.write();
        if slots.len() >= SlotId::MAX.0 as usize {
            return Err(Errno::ENOSPC.into());
        }
        loop {
            *last = if *last >= SlotId::MAX.0 { 1 } else { *last + 1 };
            let id = SlotId(*last);
            if let MapEntry::Vacant(free) = slots.entry(id) {
                free.insert(slot);
                return Ok(id);
            }
        }
    }

    /// Removes a slot.
    pub(super) fn remove(&self, id: SlotId) {
        self.slots.write().remove(&id);
    }

    /// Returns how many slots there are.
    pub(super) fn len(&self) -> usize {
        self.slots.read().len()
    }

    /// Returns a slot; one that is gone is stale to the kernel.
    pub(super) fn get(&self, id: SlotId) -> Result<Arc<Slot>> {
        if id == SlotId::FIRST {
            // The closed directory itself: nothing can be made or changed there.
            return Err(Errno::EPERM.into());
        }
        let slot = self.slots.read().get(&id).cloned();
        Ok(slot.ok_or(Errno::ESTALE)?)
    }

    /// Returns the name of a slot's control directory.
    pub(super) fn control_name(&self, id: SlotId) -> String {
        format!("{}-{}", id.0, self.secret)
    }

    /// Finds a slot's root or its control directory. What is missing is an error, which the kernel
    /// does not keep.
    pub(super) fn lookup(&self, context: Context, name: &[u8]) -> Result<Entry> {
        let missing = || Error::from(Errno::ENOENT);
        if context.caller.uid != self.owner {
            return Err(missing());
        }
        let name = std::str::from_utf8(name).map_err(|_| missing())?;
        let (number, secret) = match name.split_once('-') {
            Some((number, secret)) => (number, Some(secret)),
            None => (name, None),
        };
        if secret.is_some_and(|secret| secret != self.secret) {
            return Err(missing());
        }
        let slot = SlotId(number.parse().map_err(|_| missing())?);
        let shown = self.get(slot).map_err(|_| missing())?;
        if root_name(slot) != number {
            return Err(missing());
        }
        let (ino, attr) = match secret {
            Some(_) => (Node::CONTROL, control::attr(self.owner)),
            None => {
                let gate = shown.enter();
                let attr = gate.view.getattr(Ino::ROOT)?;
                gate.view.remember(Ino::ROOT, 1);
                (Ino::ROOT, attr)
            }
        };
        let node = Node { slot, ino }.raw().ok_or(Errno::EOVERFLOW)?;
        Ok(Entry {
            node,
            attr,
            keep: true,
        })
    }

    /// Returns the attributes of the closed directory.
    pub(super) fn attr(&self) -> Attr {
        closed_directory(Ino(ROOT), self.owner)
    }
}

/// Lists a directory in which there is nothing to see.
pub(super) fn list_nothing(ino: Ino, cookie: u64, visit: &mut dyn FnMut(&DirEntry) -> bool) {
    let entries = [&b"."[..], b".."].into_iter().zip(1..);
    for (name, place) in entries.filter(|(_, place)| *place > cookie) {
        let entry = DirEntry {
            name: name.to_vec(),
            ino,
            kind: FileKind::Directory,
            cookie: place,
        };
        if !visit(&entry) {
            return;
        }
    }
}

/// Returns the name under which a slot's view is found.
pub(super) fn root_name(id: SlotId) -> String {
    id.0.to_string()
}

/// The numbers of a filesystem that has none of its own.
pub(super) const NO_SPACE: Statfs = Statfs {
    block_bytes: 4096,
    blocks: 0,
    blocks_free: 0,
    blocks_available: 0,
    inodes: 0,
    inodes_free: 0,
    name_bytes_max: 255,
};

/// Returns the attributes of a directory that only `owner` may enter.
pub(super) fn closed_directory(ino: Ino, owner: u32) -> Attr {
    const EPOCH: Timestamp = Timestamp { secs: 0, nanos: 0 };
    Attr {
        ino,
        kind: FileKind::Directory,
        perm: 0o700,
        nlink: 2,
        uid: owner,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: EPOCH,
        mtime: EPOCH,
        ctime: EPOCH,
        btime: EPOCH,
    }
}
