//! The changes of one operation, collected and then written as one atomic batch.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::attr::Timestamp;
use crate::error::Result;
use crate::id::{BlockIndex, Ino};
use crate::kv::{Batch, Durability, Table};
use crate::layout::bitmap::Bitmap;
use crate::layout::key::{self, ChangeOf};
use crate::layout::record::{DentryRecord, InodeRecord};
use crate::view::cache::InodeVersion;
use crate::view::op::{Name, Op};
use crate::view::{BITMAPS_MAX, View};

/// Changes collected so far. Nothing is visible before [`Edit::commit`], everything after it.
pub(super) struct Edit<'a> {
    pub(super) op: &'a Op<'a>,
    pub(super) batch: Batch,
    pub(super) now: Timestamp,
    inodes: SmallVec<[(Ino, Option<InodeRecord>); 4]>,
    bitmaps: SmallVec<[((Ino, u64), Bitmap); 2]>,
}

impl<'a> Edit<'a> {
    pub(super) fn new(op: &'a Op<'a>) -> Self {
        Self {
            op,
            batch: Batch::new(),
            now: Timestamp::now(),
            inodes: SmallVec::new(),
            bitmaps: SmallVec::new(),
        }
    }

    /// Returns an inode with the changes made so far.
    pub(super) fn inode(&self, ino: Ino) -> Result<InodeRecord> {
        match self.inodes.iter().find(|(changed, _)| *changed == ino) {
            Some((_, Some(record))) => Ok(record.clone()),
            Some((_, None)) => Err(nix::errno::Errno::ESTALE.into()),
            None => Ok(self.op.inode(ino)?.record.clone()),
        }
    }

    /// Sets an inode. An access time newer than the stored one goes with it.
    pub(super) fn put_inode(&mut self, record: InodeRecord) {
        let ino = record.attr.ino;
        self.inodes.retain(|(changed, _)| *changed != ino);
        self.inodes.push((ino, Some(record)));
    }

    /// Removes an inode from the head's sight.
    pub(super) fn remove_inode(&mut self, ino: Ino) {
        self.inodes.retain(|(changed, _)| *changed != ino);
        self.inodes.push((ino, None));
    }

    /// Notes that something in directory `dir` changed.
    pub(super) fn touch_dir(&mut self, dir: Ino, nlink: i32) -> Result<()> {
        let mut record = self.inode(dir)?;
        record.attr.mtime = self.now;
        record.attr.ctime = self.now;
        // A base on btrfs gives its directories one link: subdirectories are not counted there.
        if record.attr.nlink > 1 {
            record.attr.nlink = record.attr.nlink.saturating_add_signed(nlink);
        }
        self.put_inode(record);
        Ok(())
    }

    /// Lets a name stand for an inode.
    pub(super) fn put_name(&mut self, name: &Name, ino: Ino, kind: crate::attr::FileKind) {
        let record = DentryRecord {
            ino,
            kind,
            fresh: name.fresh,
        };
        let head = self.op.head;
        self.batch.put(
            Table::Dentries,
            key::versioned(&name.thing, head),
            record.encode(),
        );
        // Put even if the head has it: an earlier removal in the same edit may have taken it away.
        let change = key::change(head, ChangeOf::Dentry, &name.thing);
        self.batch.put(Table::Changes, change, Vec::new());
    }

    /// Frees a name.
    pub(super) fn remove_name(&mut self, name: &Name) {
        let head = self.op.head;
        let (entry, change) = (
            key::versioned(&name.thing, head),
            key::change(head, ChangeOf::Dentry, &name.thing),
        );
        if name.in_head && name.fresh {
            self.batch.delete(Table::Dentries, entry);
            self.batch.delete(Table::Changes, change);
        } else {
            self.batch.put(Table::Dentries, entry, Vec::new());
            self.batch.put(Table::Changes, change, Vec::new());
        }
    }

    /// Sets a version of a thing whose presence or absence is all that matters about its history.
    pub(super) fn put_thing(&mut self, of: ChangeOf, thing: &[u8], value: Vec<u8>) {
        let head = self.op.head;
        if let Some(table) = of.table() {
            self.batch.put(table, key::versioned(thing, head), value);
        }
        self.batch
            .put(Table::Changes, key::change(head, of, thing), Vec::new());
    }

    /// Takes back a version that only the head has.
    pub(super) fn erase_thing(&mut self, of: ChangeOf, thing: &[u8]) {
        let head = self.op.head;
        if let Some(table) = of.table() {
            self.batch.delete(table, key::versioned(thing, head));
        }
        self.batch
            .delete(Table::Changes, key::change(head, of, thing));
    }

    /// Returns which blocks of a segment the head holds, with the changes made so far.
    pub(super) fn bitmap(&self, ino: Ino, segment: u64) -> Result<Bitmap> {
        match self
            .bitmaps
            .iter()
            .find(|(place, _)| *place == (ino, segment))
        {
            Some((_, bitmap)) => Ok(*bitmap),
            None => self.op.view.bitmap(self.op, ino, segment),
        }
    }

    fn put_bitmap(&mut self, ino: Ino, segment: u64, bitmap: Bitmap) {
        match self
            .bitmaps
            .iter_mut()
            .find(|(place, _)| *place == (ino, segment))
        {
            Some((_, present)) => *present = bitmap,
            None => self.bitmaps.push(((ino, segment), bitmap)),
        }
    }

    /// Notes that the head holds `blocks` of an object.
    pub(super) fn own(&mut self, ino: Ino, blocks: std::ops::Range<u64>) -> Result<()> {
        let mut block = blocks.start;
        while block < blocks.end {
            let (segment, _) = Bitmap::place(BlockIndex(block));
            let mut bitmap = self.bitmap(ino, segment)?;
            let mut changed = false;
            while block < blocks.end && Bitmap::place(BlockIndex(block)).0 == segment {
                changed |= bitmap.set(Bitmap::place(BlockIndex(block)).1);
                block += 1;
            }
            if changed {
                self.put_bitmap(ino, segment, bitmap);
            }
        }
        Ok(())
    }

    /// Notes that the head no longer holds a block.
    pub(super) fn disown(&mut self, ino: Ino, block: BlockIndex) -> Result<()> {
        let (segment, at) = Bitmap::place(block);
        let mut bitmap = self.bitmap(ino, segment)?;
        if bitmap.clear(at) {
            self.put_bitmap(ino, segment, bitmap);
        }
        Ok(())
    }

    /// Writes everything, atomically, and lets the caches know.
    pub(super) fn commit(mut self) -> Result<()> {
        let (op, head) = (self.op, self.op.head);
        for (ino, record) in &mut self.inodes {
            let thing = key::inode(*ino);
            let (entry, change) = (
                key::versioned(&thing, head),
                key::change(head, ChangeOf::Inode, &thing),
            );
            match record {
                Some(record) => {
                    if let Some(atime) = op.view.atimes.lock().get(ino) {
                        record.attr.atime = record.attr.atime.max(*atime);
                    }
                    let known = op
                        .view
                        .inodes
                        .get(*ino)
                        .is_some_and(|old| old.layer == head);
                    if !known {
                        self.batch.put(Table::Changes, change, Vec::new());
                    }
                    self.batch.put(Table::Inodes, entry, record.encode());
                }
                None => {
                    let born_here = op.inode(*ino).is_ok_and(|old| old.record.born == head);
                    if born_here {
                        self.batch.delete(Table::Inodes, entry);
                        self.batch.delete(Table::Changes, change);
                    } else {
                        self.batch.put(Table::Inodes, entry, Vec::new());
                        self.batch.put(Table::Changes, change, Vec::new());
                    }
                }
            }
        }
        for ((ino, segment), bitmap) in &self.bitmaps {
            let thing = key::segment(*ino, *segment);
            let change = key::change(head, ChangeOf::Blocks, &thing);
            if bitmap.is_empty() {
                self.batch.delete(Table::Changes, change);
            } else {
                self.batch.put(Table::Changes, change, bitmap.encode());
            }
        }
        op.store.write(&self.batch, Durability::Process)?;
        for (ino, record) in self.inodes {
            match record {
                Some(record) => {
                    op.view.inodes.put(
                        ino,
                        Arc::new(InodeVersion {
                            layer: head,
                            record,
                        }),
                    );
                }
                None => op.view.inodes.remove(ino),
            }
        }
        if !self.bitmaps.is_empty() {
            let mut owned = op.view.owned.lock();
            if owned.len() > BITMAPS_MAX {
                owned.clear();
            }
            owned.extend(self.bitmaps);
        }
        Ok(())
    }
}

impl View {
    /// Returns which blocks of a segment the head holds.
    pub(super) fn bitmap(&self, op: &Op<'_>, ino: Ino, segment: u64) -> Result<Bitmap> {
        if let Some(bitmap) = self.owned.lock().get(&(ino, segment)) {
            return Ok(*bitmap);
        }
        let change = key::change(op.head, ChangeOf::Blocks, &key::segment(ino, segment));
        let bitmap = match op.store.kv().get(Table::Changes, &change)? {
            Some(value) => Bitmap::decode(&value)?,
            None => Bitmap::default(),
        };
        let mut owned = self.owned.lock();
        if owned.len() > BITMAPS_MAX {
            owned.clear();
        }
        owned.insert((ino, segment), bitmap);
        Ok(bitmap)
    }
}
