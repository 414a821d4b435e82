//! Writing what was decided into a layer of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::attr::{FileKind, Timestamp};
use crate::error::Result;
use crate::id::{Ino, LayerId};
use crate::layout::record::{Cut, DentryRecord, InodeRecord};
use crate::merge::Plan;
use crate::progress::{Progress, Watch};
use crate::store::Store;
use crate::view::View;
use crate::view::graft::Raw;

/// Entries written in one batch.
const ENTRIES_PER_BATCH: usize = 512;
const WHAT: &str = "merging files";

/// Writes the plan into `scratch`, the view of an empty layer on ours.
pub(super) fn write(plan: &Plan<'_>, scratch: &View, progress: &mut Watch<'_>) -> Result<()> {
    let mut writer = Writer {
        plan,
        scratch,
        layer: scratch.head(),
        now: Timestamp::now(),
        records: BTreeMap::new(),
        gone: BTreeSet::new(),
        raws: Vec::new(),
    };
    let new = writer.new_entities()?;
    let total = Some((new.len() + plan.states.len()) as u64);
    let steps = new.iter().copied().chain(plan.states.keys().copied());
    for (done, entity) in (0..).zip(steps) {
        progress(Progress {
            done,
            total,
            what: WHAT,
        })?;
        if new.contains(&entity) {
            writer.copy(entity)?;
        } else {
            writer.change(entity)?;
        }
    }
    writer.names()?;
    writer.finish()
}

/// Names in directories, the directories as they are numbered in the end.
type Names = BTreeSet<(Ino, Vec<u8>)>;

struct Writer<'a> {
    plan: &'a Plan<'a>,
    scratch: &'a View,
    layer: LayerId,
    now: Timestamp,
    /// Inodes as they will be.
    records: BTreeMap<Ino, InodeRecord>,
    gone: BTreeSet<Ino>,
    raws: Vec<Raw>,
}

impl Writer<'_> {
    /// Returns what only their side has and ours gets.
    fn new_entities(&self) -> Result<BTreeSet<Ino>> {
        let mut new = BTreeSet::new();
        for entity in self.plan.names.values().flatten() {
            if self.plan.ours.record(*entity)?.is_none() {
                new.insert(*entity);
            }
        }
        Ok(new)
    }

    /// Returns the inode number that an entity has in the end.
    fn ino(&self, entity: Ino) -> Result<Ino> {
        let plan = self.plan;
        Ok(match plan.ours.record(entity)? {
            Some(ours) => ours.attr.ino,
            None => plan.theirs.ino(entity),
        })
    }

    fn record(&mut self, entity: Ino) -> Result<Option<&mut InodeRecord>> {
        let ino = self.ino(entity)?;
        if !self.records.contains_key(&ino) {
            let Some(mut record) = self.plan.ours.record(entity)? else {
                return Ok(None);
            };
            record.attr.ctime = self.now;
            self.records.insert(ino, record);
        }
        Ok(self.records.get_mut(&ino))
    }

    /// Takes an inode over under its own number, which no other inode of any layer has.
    fn copy(&mut self, entity: Ino) -> Result<()> {
        let plan = self.plan;
        let Some(theirs) = plan.theirs.record(entity)? else {
            return Ok(());
        };
        let ino = theirs.attr.ino;
        let mut record = theirs.clone();
        record.born = self.layer;
        record.in_base = false;
        record.cuts = Vec::new();
        record.attr.ctime = self.now;
        let is_dir = theirs.attr.kind == FileKind::Directory;
        record.attr.nlink = if is_dir { 2 } else { 0 };
        // No name yet: the first that it gets becomes its own.
        (record.parent, record.name) = (Ino(0), Vec::new());
        if theirs.attr.kind == FileKind::Regular {
            // It may have been ours before, and older layers of ours still hold what it was then.
            record.cuts = vec![Cut {
                block: 0,
                layer: self.layer,
            }];
            for extent in plan.theirs.tree.view().extents(&theirs)? {
                self.scratch
                    .take_blocks(&mut record, plan.theirs.tree.view(), &theirs, extent)?;
            }
            record.attr.blocks = theirs.attr.blocks;
        }
        for (name, value) in plan.theirs.tree.xattrs(ino)? {
            self.raws.push(Raw::Xattr(ino, name, Some(value)));
        }
        self.records.insert(ino, record);
        self.flush(ENTRIES_PER_BATCH)
    }

    /// Changes what both sides have.
    fn change(&mut self, entity: Ino) -> Result<()> {
        let plan = self.plan;
        let (Some(taken), Some(theirs)) = (plan.states.get(&entity), plan.theirs.record(entity)?)
        else {
            return Ok(());
        };
        let old = plan.old.record(entity)?;
        let Some(record) = self.record(entity)? else {
            return Ok(());
        };
        let mut record = record.clone();
        let ino = record.attr.ino;
        record.attr.perm = taken.perm.unwrap_or(record.attr.perm);
        record.attr.uid = taken.uid.unwrap_or(record.attr.uid);
        record.attr.gid = taken.gid.unwrap_or(record.attr.gid);
        for (name, value) in &taken.xattrs {
            record.has_xattrs = true;
            self.raws.push(Raw::Xattr(ino, name.clone(), value.clone()));
        }
        if taken.content {
            self.take_content(&mut record, old.as_ref(), &theirs)?;
        }
        self.records.insert(ino, record);
        self.flush(ENTRIES_PER_BATCH)
    }

    fn take_content(
        &self,
        record: &mut InodeRecord,
        old: Option<&InodeRecord>,
        theirs: &InodeRecord,
    ) -> Result<()> {
        let plan = self.plan;
        record.target.clone_from(&theirs.target);
        record.attr.rdev = theirs.attr.rdev;
        record.attr.mtime = theirs.attr.mtime;
        if theirs.attr.kind == FileKind::Regular {
            let from = plan.theirs.tree.view();
            let same_ino = record.attr.ino == theirs.attr.ino;
            // Our content reads as the old one does, so where theirs was not written, ours stays.
            let changed = old
                .filter(|_| same_ino)
                .and_then(|old| plan.their_delta.changed_blocks(old, theirs));
            let (blocks, cut) = match changed {
                Some(changed) => (changed.blocks, changed.all_from),
                None => (BTreeSet::new(), 0),
            };
            if cut < u64::MAX {
                record.cuts.retain(|old| old.block < cut);
                record.cuts.push(Cut {
                    block: cut,
                    layer: self.layer,
                });
            }
            record.attr.size = theirs.attr.size;
            let end = Store::blocks_of(theirs.attr.size);
            for block in blocks.into_iter().filter(|block| *block < cut.min(end)) {
                self.scratch
                    .take_blocks(record, from, theirs, block..block + 1)?;
            }
            if cut < end {
                for extent in from.extents(theirs)? {
                    let extent = extent.start.max(cut)..extent.end;
                    if !extent.is_empty() {
                        self.scratch.take_blocks(record, from, theirs, extent)?;
                    }
                }
            }
        }
        record.attr.size = theirs.attr.size;
        record.attr.blocks = theirs.attr.blocks;
        Ok(())
    }

    /// Moves names, with everything that counts or remembers them.
    fn names(&mut self) -> Result<()> {
        let plan = self.plan;
        // First what goes, so that link counts never fall below what comes.
        let mut moving: BTreeMap<Ino, (Names, Names)> = BTreeMap::new();
        for (place, theirs) in &plan.names {
            let dir = self.ino(place.0)?;
            let ours = plan.ours.name(place)?;
            let mut dirs: i32 = 0;
            if let Some((was, kind)) = ours {
                moving
                    .entry(was)
                    .or_default()
                    .0
                    .insert((dir, place.1.clone()));
                dirs -= i32::from(kind == FileKind::Directory);
            }
            let mut dentry = None;
            if let Some(is) = theirs {
                moving
                    .entry(*is)
                    .or_default()
                    .1
                    .insert((dir, place.1.clone()));
                let ino = self.ino(*is)?;
                let kind = match plan.ours.record(*is)? {
                    Some(ours) => Some(ours.attr.kind),
                    None => plan.theirs.record(*is)?.map(|theirs| theirs.attr.kind),
                };
                dentry = kind.map(|kind| DentryRecord {
                    ino,
                    kind,
                    fresh: false,
                });
                dirs += i32::from(kind == Some(FileKind::Directory));
            }
            self.raws.push(Raw::Name(dir, place.1.clone(), dentry));
            let their_mtime = plan.theirs.record(place.0)?.map(|dir| dir.attr.mtime);
            if let Some(record) = self.record(place.0)? {
                record.attr.nlink = record.attr.nlink.saturating_add_signed(dirs);
                record.attr.mtime = record.attr.mtime.max(their_mtime.unwrap_or_default());
            }
        }
        for (entity, (lost, got)) in moving {
            self.rename(entity, &lost, &got)?;
        }
        Ok(())
    }

    /// Brings an inode's own list of names in order.
    fn rename(&mut self, entity: Ino, lost: &Names, got: &Names) -> Result<()> {
        let ino = self.ino(entity)?;
        let mut names: Names = self.plan.ours.tree.names(ino)?.into_iter().collect();
        names.retain(|name| !lost.contains(name));
        names.extend(got.iter().cloned());
        let Some(record) = self.record(entity)? else {
            return Ok(());
        };
        let is_dir = record.attr.kind == FileKind::Directory;
        if !is_dir {
            let (fewer, more) = (u32::try_from(lost.len()), u32::try_from(got.len()));
            let more = more.unwrap_or(u32::MAX);
            record.attr.nlink = record.attr.nlink.saturating_add(more);
            record.attr.nlink = record.attr.nlink.saturating_sub(fewer.unwrap_or(u32::MAX));
        }
        if names.is_empty() && (is_dir || record.attr.nlink == 0) {
            self.records.remove(&ino);
            self.gone.insert(ino);
            return Ok(());
        }
        let own = (record.parent, record.name.clone());
        let first = if names.contains(&own) {
            Some(&own)
        } else {
            names.first()
        };
        if let Some((parent, name)) = first {
            (record.parent, record.name) = (*parent, name.clone());
        }
        let first = first.cloned();
        for (parent, name) in lost {
            self.raws.push(Raw::Link(ino, *parent, name.clone(), false));
        }
        for name in names {
            let (further, (parent, name)) = (Some(&name) != first.as_ref(), name);
            // A first name that was a further one before must not be listed twice.
            if further || !got.contains(&(parent, name.clone())) {
                self.raws.push(Raw::Link(ino, parent, name, further));
            }
        }
        Ok(())
    }

    fn flush(&mut self, at_least: usize) -> Result<()> {
        if self.raws.len() >= at_least {
            self.scratch.put_raw(&std::mem::take(&mut self.raws))?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        let records = std::mem::take(&mut self.records);
        self.raws.extend(records.into_values().map(Raw::Inode));
        self.raws
            .extend(std::mem::take(&mut self.gone).into_iter().map(Raw::NoInode));
        for raws in self.raws.chunks(ENTRIES_PER_BATCH) {
            self.scratch.put_raw(raws)?;
        }
        Ok(())
    }
}
