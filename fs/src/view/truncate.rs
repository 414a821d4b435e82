//! Making files shorter or longer, and giving back what the head holds of them.

use nix::errno::Errno;

use crate::error::Result;
use crate::id::{BLOCK_BYTES, BlockIndex, Ino};
use crate::kv::{Step, Table};
use crate::layout::bitmap::Bitmap;
use crate::layout::key::{self, ChangeOf};
use crate::layout::locator::Locator;
use crate::layout::record::{Cut, InodeRecord};
use crate::view::content::{self, Source};
use crate::view::edit::Edit;
use crate::view::file::{FILE_BYTES_MAX, SECTORS, WINDOW_BLOCKS};

/// Truncations that an inode remembers; older ones are settled block by block.
const CUTS_MAX: usize = 16;
/// Files of up to this many own blocks give back their runs one by one; larger ones by one range,
/// which costs every later reader a little.
const POINT_DELETES_MAX: usize = 64;

impl Edit<'_> {
    /// Sets the size of the file in `record`.
    pub(super) fn set_size(&mut self, record: &mut InodeRecord, size: u64) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Errno::EFBIG.into());
        }
        if size < record.attr.size {
            self.shorten(record, size)?;
        }
        record.attr.size = size;
        Ok(())
    }

    fn shorten(&mut self, record: &mut InodeRecord, size: u64) -> Result<()> {
        let ino = record.attr.ino;
        let keep = BlockIndex::at_or_after(size);
        let freed = self.allocated_from(record, keep)?;
        self.erase_own_blocks(ino, keep.0)?;
        if record.born != self.op.head {
            self.add_cut(record, keep.0)?;
        }
        record.attr.blocks = match size {
            0 => 0,
            _ => record.attr.blocks.saturating_sub(freed * SECTORS),
        };
        if !size.is_multiple_of(BLOCK_BYTES) {
            // What comes behind the new end must read as zeros if the file grows again.
            let last = BlockIndex::containing(size);
            let found = content::sources(self.op, record, last, 1)?;
            if found[0].is_allocated() {
                let mut bytes = content::read_block(self.op, record, last)?;
                bytes.truncate(usize::try_from(size - last.start()).unwrap_or(0));
                record.attr.size = size;
                self.write_at(record, last.start(), &bytes)?;
            }
        }
        Ok(())
    }

    /// Returns how many blocks from `first` to the end of the file take space.
    fn allocated_from(&self, record: &InodeRecord, first: BlockIndex) -> Result<u64> {
        if first.0 == 0 {
            return Ok(record.attr.blocks / SECTORS);
        }
        let end = BlockIndex::at_or_after(record.attr.size).0;
        let (mut block, mut count) = (first.0, 0);
        // A sparse file can be huge: what takes space is known from its blocks, and no more blocks
        // than that can be found.
        let most = record.attr.blocks / SECTORS;
        while block < end && count < most {
            let window = WINDOW_BLOCKS.min(end - block);
            let found = content::sources(self.op, record, BlockIndex(block), window)?;
            count += found.iter().filter(|source| source.is_allocated()).count() as u64;
            block += window;
            if found.iter().all(|source| matches!(source, Source::Nothing)) {
                match self.next_written(record, BlockIndex(block))? {
                    Some(next) => block = next.0.max(block),
                    None => break,
                }
            }
        }
        Ok(count)
    }

    /// Returns the first block from `first` on of which any version is visible or the base has.
    pub(super) fn next_written(
        &self,
        record: &InodeRecord,
        first: BlockIndex,
    ) -> Result<Option<BlockIndex>> {
        let ino = record.attr.ino;
        if record.in_base && record.oldest_visible(first.0).is_none() {
            let base_size = self
                .op
                .store
                .base_record(ino)?
                .map_or(0, |known| known.size);
            if first.start() < base_size {
                return Ok(Some(first));
            }
        }
        let (from, prefix) = (key::block(ino, first), key::inode(ino));
        let mut next = None;
        let head = self.op.head;
        self.op
            .store
            .scan_versions(Table::Map, &from, &prefix, head, &mut |thing, _, _| {
                next = Some(key::parse_block(thing)?.1);
                Ok(false)
            })?;
        Ok(next)
    }

    fn add_cut(&mut self, record: &mut InodeRecord, block: u64) -> Result<()> {
        let layer = self.op.head;
        record.cuts.retain(|cut| cut.block < block);
        if record.cuts.last().is_none_or(|cut| cut.layer != layer) {
            record.cuts.push(Cut { block, layer });
        }
        if record.cuts.len() > CUTS_MAX {
            self.settle_oldest_cut(record)?;
        }
        Ok(())
    }

    /// Writes holes where only the oldest cut hides something, and drops it.
    fn settle_oldest_cut(&mut self, record: &mut InodeRecord) -> Result<()> {
        let [oldest, second, ..] = record.cuts[..] else {
            return Ok(());
        };
        let ino = record.attr.ino;
        let mut uncut = record.clone();
        uncut.cuts.clear();
        let mut block = oldest.block;
        while block < second.block {
            let Some(next) = self.next_written(&uncut, BlockIndex(block))? else {
                break;
            };
            if next.0 >= second.block {
                break;
            }
            let window = WINDOW_BLOCKS.min(second.block - next.0);
            let found = content::sources(self.op, &uncut, next, window)?;
            for (at, source) in (next.0..).zip(&found) {
                let hidden = match source {
                    Source::Nothing => false,
                    Source::Layer(layer, _) => *layer < oldest.layer,
                    Source::Base => true,
                };
                if hidden {
                    self.put_hole(ino, BlockIndex(at))?;
                }
            }
            block = next.0 + window;
        }
        record.cuts.remove(0);
        Ok(())
    }

    /// Lets a block read as zeros and take no space.
    pub(super) fn put_hole(&mut self, ino: Ino, block: BlockIndex) -> Result<()> {
        let key = key::versioned(&key::block(ino, block), self.op.head);
        self.batch.put(Table::Map, key, Locator::Hole.encode());
        self.own(ino, block.0..block.0 + 1)
    }

    /// Takes back all blocks from `first` on that the head itself holds.
    pub(super) fn erase_own_blocks(&mut self, ino: Ino, first: u64) -> Result<()> {
        let head = self.op.head;
        let mut own: Vec<BlockIndex> = Vec::new();
        let all = key::change(head, ChangeOf::Blocks, &key::inode(ino));
        let (first_segment, _) = Bitmap::place(BlockIndex(first));
        let from = key::change(head, ChangeOf::Blocks, &key::segment(ino, first_segment));
        self.op
            .store
            .kv()
            .scan(Table::Changes, &from, &mut |found, value| {
                if !found.starts_with(&all) {
                    return Ok(Step::Stop);
                }
                let (_, _, thing) = key::parse_change(found)?;
                let (_, segment) = key::parse_segment(thing)?;
                own.extend(
                    Bitmap::decode(value)?
                        .blocks(segment)
                        .filter(|block| block.0 >= first),
                );
                Ok(Step::Next)
            })?;
        let Some(start) = own.first().copied() else {
            return Ok(());
        };
        if own.len() <= POINT_DELETES_MAX {
            let keys: Vec<_> = own
                .iter()
                .map(|block| key::versioned(&key::block(ino, *block), head))
                .collect();
            let values = self.op.store.kv().get_many(Table::Map, &keys)?;
            for (block, value) in own.iter().zip(values) {
                let Some(Locator::Run(place)) =
                    value.as_deref().map(Locator::decode).transpose()?
                else {
                    continue;
                };
                // A run that begins before `first` still holds blocks that stay.
                let begins = block.0.saturating_sub(u64::from(place.index));
                if place.index == 0 || (begins >= first && !own.contains(&BlockIndex(begins))) {
                    let run = key::run(head, ino, BlockIndex(begins), place.sequence);
                    self.batch.delete(Table::Data, run);
                }
            }
        } else {
            let from = key::run(head, ino, start, 0);
            let to = key::runs_of_object(head, Ino(ino.0 + 1));
            self.batch.delete_range(Table::Data, from, to);
        }
        for block in own {
            let key = key::versioned(&key::block(ino, block), head);
            self.batch.delete(Table::Map, key);
            self.disown(ino, block)?;
        }
        Ok(())
    }
}
