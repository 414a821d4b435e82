//! Copying between files of a view without moving bytes where a frozen layer or the base has them.

use nix::errno::Errno;

use crate::error::Result;
use crate::id::{BLOCK_BYTES, BlockIndex, Ino, LayerId};
use crate::kv::Table;
use crate::layout::key;
use crate::layout::locator::{Locator, RunOwner};
use crate::layout::record::InodeRecord;
use crate::store::Store;
use crate::view::View;
use crate::view::content::{self, Fetcher, Source};
use crate::view::edit::Edit;
use crate::view::file::SECTORS;

/// Blocks copied in one batch: bounds memory and the time for which both files are locked.
const BATCH_BLOCKS: u64 = 256;

impl View {
    /// Copies up to `len` bytes. Returns how many; fewer only at the end of the source.
    ///
    /// # Errors
    /// EINVAL if the ranges overlap in one file; as [`View::read`] and [`View::write`].
    pub fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        if from == to
            && from_offset < to_offset.saturating_add(len)
            && to_offset < from_offset.saturating_add(len)
        {
            return Err(Errno::EINVAL.into());
        }
        // Within one file the copy may move the end: the end that counts is that of the beginning.
        let size = self.getattr(from)?.size;
        let len = len.min(size.saturating_sub(from_offset));
        let mut copied = 0;
        while copied < len {
            let want = (len - copied).min(BATCH_BLOCKS * BLOCK_BYTES);
            let step = self.copy_some(from, from_offset + copied, to, to_offset + copied, want)?;
            if step == 0 {
                break;
            }
            copied += step;
        }
        Ok(copied)
    }

    fn copy_some(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let op = self.changing()?;
        let _locks = self.locks.exclusive(&[from, to]);
        let source = op.regular(from)?.record.clone();
        op.regular(to)?;
        let len = len.min(source.attr.size.saturating_sub(from_offset));
        if len == 0 {
            return Ok(0);
        }
        let mut edit = Edit::new(&op);
        let mut target = edit.inode(to)?;
        let aligned =
            from_offset.is_multiple_of(BLOCK_BYTES) && to_offset.is_multiple_of(BLOCK_BYTES);
        // A last partial block may be shared too if nothing of the target follows it.
        let whole =
            match to_offset + len >= target.attr.size && from_offset + len == source.attr.size {
                true => len.div_ceil(BLOCK_BYTES),
                false => len / BLOCK_BYTES,
            };
        let done = if aligned && whole > 0 {
            let (first, at) = (
                BlockIndex::containing(from_offset),
                BlockIndex::containing(to_offset),
            );
            edit.share_blocks(&source, first, &mut target, at, whole)?;
            let done = len.min(whole * BLOCK_BYTES);
            target.attr.size = target.attr.size.max(to_offset + done);
            done
        } else {
            let mut bytes = Vec::new();
            let part = usize::try_from(len).map_err(|_| Errno::EFBIG)?;
            content::read(&op, &source, from_offset, part, &mut bytes)?;
            edit.write_at(&mut target, to_offset, &bytes)?;
            len
        };
        target.attr.mtime = edit.now;
        target.attr.ctime = edit.now;
        edit.put_inode(target);
        edit.commit()?;
        Ok(done)
    }
}

impl Edit<'_> {
    fn share_blocks(
        &mut self,
        source: &InodeRecord,
        first: BlockIndex,
        target: &mut InodeRecord,
        at: BlockIndex,
        count: u64,
    ) -> Result<()> {
        let op = self.op;
        let found = content::sources(op, source, first, count)?;
        let before = content::sources(op, target, at, count)?;
        self.drop_runs(target.attr.ino, at, &before);
        let mut fetcher = Fetcher::new(op, source.attr.ino);
        for (n, (source_of, old)) in (0..count).zip(found.iter().zip(&before)) {
            let (from, to) = (BlockIndex(first.0 + n), BlockIndex(at.0 + n));
            target.attr.blocks = target.attr.blocks.saturating_sub(sectors(old));
            let locator = match shared(source_of, source.attr.ino, from, op.head) {
                Some(locator) => locator,
                None => {
                    // The head itself wrote it and may write it again: a copy of its own.
                    let left = source
                        .attr
                        .size
                        .saturating_sub(from.start())
                        .min(BLOCK_BYTES);
                    let mut bytes = vec![0; usize::try_from(left).unwrap_or(0)];
                    fetcher.fetch(from, source_of, 0, &mut bytes)?;
                    self.put_copy(target.attr.ino, to, &bytes)?;
                    target.attr.blocks += SECTORS;
                    continue;
                }
            };
            if let Locator::Shared(_, owner) = &locator {
                self.pin(owner.layer)?;
            }
            if locator.is_allocated() {
                target.attr.blocks += SECTORS;
            } else if matches!(old, Source::Nothing) {
                continue;
            }
            let key = key::versioned(&key::block(target.attr.ino, to), op.head);
            self.batch.put(Table::Map, key, locator.encode());
            self.own(target.attr.ino, to.0..to.0 + 1)?;
        }
        Ok(())
    }

    fn put_copy(&mut self, ino: Ino, block: BlockIndex, bytes: &[u8]) -> Result<()> {
        self.write_run(ino, block, bytes)?;
        self.own(ino, block.0..block.0 + 1)
    }

    /// Tells the collector that somebody else's locators point at a layer's runs: they stay for as
    /// long as any does, whatever becomes of the layer.
    pub(super) fn pin(&mut self, layer: LayerId) -> Result<()> {
        let (layer, record) = {
            let layers = self.op.store.layer_table();
            let layer = layers.holder(layer);
            (layer, layers.get(layer)?.clone())
        };
        if !record.pinned {
            let pinned = crate::layout::record::LayerRecord {
                pinned: true,
                ..record
            };
            Store::put_layer(&mut self.batch, layer, &pinned);
            self.op
                .store
                .layers
                .write()
                .update(layer, |record| record.pinned = true)?;
        }
        Ok(())
    }
}

fn sectors(source: &Source) -> u64 {
    if source.is_allocated() { SECTORS } else { 0 }
}

/// Returns a locator that another file can have too; [`None`] if the bytes may still change.
pub(super) fn shared(
    source: &Source,
    ino: Ino,
    block: BlockIndex,
    head: LayerId,
) -> Option<Locator> {
    match source {
        Source::Nothing => Some(Locator::Hole),
        Source::Base => Some(Locator::Base(ino, block)),
        Source::Layer(_, Locator::Run(_)) if matches!(source, Source::Layer(l, _) if *l == head) => {
            None
        }
        Source::Layer(layer, Locator::Run(place)) => {
            let first = BlockIndex(block.0.checked_sub(u64::from(place.index))?);
            Some(Locator::Shared(
                *place,
                RunOwner {
                    layer: *layer,
                    object: ino,
                    first,
                },
            ))
        }
        Source::Layer(_, other) => Some(other.clone()),
    }
}
