//! What the operations on whole layers need of a view and programs do not: records as they are
//! stored, comparison of content without reading it, and content taken over from another layer.

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::id::{BLOCK_BYTES, BlockIndex, Ino, LayerId};
use crate::kv::Table;
use crate::layout::key;
use crate::layout::locator::Locator;
use crate::layout::record::{DentryRecord, InodeRecord};
use crate::store::Store;
use crate::view::View;
use crate::view::content::{self, Source};
use crate::view::copy;
use crate::view::edit::Edit;
use crate::view::file::{SECTORS, WINDOW_BLOCKS};

/// Returns [`None`] where the head has no such inode, or something else in its place.
fn unless_missing<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(Error::Posix(Errno::ESTALE | Errno::ENOTDIR | Errno::ENOENT)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl View {
    /// Returns an inode as it is stored; [`None`] if this head has none, or one without names.
    pub(crate) fn find_record(&self, ino: Ino) -> Result<Option<InodeRecord>> {
        let op = self.reading()?;
        let found = unless_missing(op.inode(ino))?;
        Ok(found
            .filter(|found| found.record.attr.nlink > 0)
            .map(|found| found.record.clone()))
    }

    /// Returns what a name stands for; [`None`] if it is free or there is no such directory.
    pub(crate) fn find_name(&self, parent: Ino, name: &[u8]) -> Result<Option<DentryRecord>> {
        let op = self.reading()?;
        if unless_missing(op.directory(parent))?.is_none() {
            return Ok(None);
        }
        Ok(op.name(parent, name)?.record)
    }

    /// Returns whether `count` blocks of two files read the same. Bytes are read only where it
    /// does not follow from where they are.
    pub(crate) fn same_blocks(
        &self,
        mine: &InodeRecord,
        other: &View,
        others: &InodeRecord,
        first: BlockIndex,
        count: u64,
    ) -> Result<bool> {
        let (op, other_op) = (self.reading()?, other.reading()?);
        let found = content::sources(&op, mine, first, count)?;
        let others_found = content::sources(&other_op, others, first, count)?;
        let same_ino = mine.attr.ino == others.attr.ino;
        for (at, (a, b)) in (first.0..).zip(found.iter().zip(&others_found)) {
            if same_source(a, b, same_ino) {
                continue;
            }
            let block = BlockIndex(at);
            if content::read_block(&op, mine, block)?
                != content::read_block(&other_op, others, block)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the ranges of blocks of a file that may take space, in order.
    pub(crate) fn extents(&self, record: &InodeRecord) -> Result<Vec<std::ops::Range<u64>>> {
        let op = self.reading()?;
        let edit = Edit::new(&op);
        let end = BlockIndex::at_or_after(record.attr.size).0;
        let mut extents: Vec<std::ops::Range<u64>> = Vec::new();
        let mut block = 0;
        while let Some(next) = edit.next_written(record, BlockIndex(block))?
            && next.0 < end
        {
            let count = WINDOW_BLOCKS.min(end - next.0);
            let found = content::sources(&op, record, next, count)?;
            for (at, source) in (next.0..).zip(&found) {
                if !source.is_allocated() {
                    continue;
                }
                match extents.last_mut() {
                    Some(last) if last.end == at => last.end = at + 1,
                    _ => extents.push(at..at + 1),
                }
            }
            block = next.0 + count;
        }
        Ok(extents)
    }

    /// Makes blocks of a file of this view what they are in a file of `from`, a frozen layer's
    /// view. No bytes move: what lies in a layer is pointed at, and the layer pinned. The caller
    /// has put `record` in order but for `attr.blocks`, and stores it afterwards.
    pub(crate) fn take_blocks(
        &self,
        record: &mut InodeRecord,
        from: &View,
        theirs: &InodeRecord,
        blocks: std::ops::Range<u64>,
    ) -> Result<()> {
        let (op, from_op) = (self.changing()?, from.reading()?);
        let (ino, from_ino) = (record.attr.ino, theirs.attr.ino);
        let mut first = blocks.start;
        while first < blocks.end {
            let count = WINDOW_BLOCKS.min(blocks.end - first);
            let found = content::sources(&from_op, theirs, BlockIndex(first), count)?;
            let before = content::sources(&op, record, BlockIndex(first), count)?;
            let mut edit = Edit::new(&op);
            for (at, (source, old)) in (first..).zip(found.iter().zip(&before)) {
                let block = BlockIndex(at);
                if same_source(source, old, ino == from_ino) {
                    continue;
                }
                let bad = || Error::BadBlock {
                    ino: from_ino,
                    block: at,
                    layer: from_op.head,
                };
                // No head writes to a frozen layer, so all its runs can be shared.
                let locator = copy::shared(source, from_ino, block, LayerId(0)).ok_or_else(bad)?;
                if let Locator::Shared(_, owner) = &locator {
                    edit.pin(owner.layer)?;
                }
                let blocks = record
                    .attr
                    .blocks
                    .saturating_sub(sectors(old.is_allocated()));
                record.attr.blocks = blocks + sectors(locator.is_allocated());
                let key = key::versioned(&key::block(ino, block), op.head);
                edit.batch.put(Table::Map, key, locator.encode());
                edit.own(ino, at..at + 1)?;
            }
            edit.commit()?;
            first += count;
        }
        Ok(())
    }

    /// Stores inodes, names, links and attributes in the head, whatever was there.
    pub(crate) fn put_raw(&self, puts: &[Raw]) -> Result<()> {
        let op = self.changing()?;
        let mut edit = Edit::new(&op);
        for put in puts {
            match put {
                Raw::Inode(record) => edit.put_inode(record.clone()),
                Raw::NoInode(ino) => edit.remove_inode(*ino),
                Raw::Name(parent, name, record) => {
                    let thing = key::dentry(*parent, op.store.hash(name), name);
                    let value = record.map_or_else(Vec::new, |record| record.encode());
                    edit.put_thing(key::ChangeOf::Dentry, &thing, value);
                }
                Raw::Link(ino, parent, name, there) => {
                    let value = if *there { vec![1] } else { Vec::new() };
                    edit.put_thing(key::ChangeOf::Link, &key::link(*ino, *parent, name), value);
                }
                Raw::Xattr(ino, name, Some(value)) => edit.put_xattr(*ino, name, value),
                Raw::Xattr(ino, name, None) => {
                    let thing = key::xattr(*ino, op.store.hash(name), name);
                    edit.put_thing(key::ChangeOf::Xattr, &thing, Vec::new());
                }
            }
        }
        edit.commit()
    }
}

/// One entry to store.
#[derive(Clone, Debug)]
pub(crate) enum Raw {
    /// An inode.
    Inode(InodeRecord),
    /// No inode of that number.
    NoInode(Ino),
    /// A name in a directory, or that it is free.
    Name(Ino, Vec<u8>, Option<DentryRecord>),
    /// A further name of an inode, or that it is none.
    Link(Ino, Ino, Vec<u8>, bool),
    /// An extended attribute, or that there is none.
    Xattr(Ino, Vec<u8>, Option<Vec<u8>>),
}

fn sectors(allocated: bool) -> u64 {
    if allocated { SECTORS } else { 0 }
}

/// Returns whether two sources are the same bytes without a look at them.
fn same_source(a: &Source, b: &Source, same_ino: bool) -> bool {
    match (a, b) {
        (Source::Layer(la, Locator::Run(a)), Source::Layer(lb, Locator::Run(b))) => {
            same_ino && la == lb && a == b
        }
        (Source::Layer(_, a), Source::Layer(_, b)) => a == b,
        (Source::Base, Source::Base) => same_ino,
        _ => !a.is_allocated() && !b.is_allocated(),
    }
}

impl Store {
    /// Returns [`BLOCK_BYTES`] rounded up blocks of a size.
    pub(crate) fn blocks_of(size: u64) -> u64 {
        size.div_ceil(BLOCK_BYTES)
    }
}
