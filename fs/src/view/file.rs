//! Reading and writing regular files.

use std::borrow::Cow;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use smallvec::SmallVec;

use crate::attr::{FileKind, SeekTo, Timestamp};
use crate::error::Result;
use crate::id::{BLOCK_BYTES, BlockIndex, Ino};
use crate::kv::{Key, Table};
use crate::layout::bitmap::Bitmap;
use crate::layout::key;
use crate::layout::locator::{INLINE_BYTES_MAX, Locator, RUN_BLOCKS, RunPlace};
use crate::layout::record::InodeRecord;
use crate::view::content::{self, BLOCK, Source};
use crate::view::edit::Edit;
use crate::view::{View, setattr};

/// The largest file: offsets are signed 64-bit numbers to programs.
pub(super) const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Units of `st_blocks` in a block.
pub(super) const SECTORS: u64 = BLOCK_BYTES / 512;
/// Blocks looked at in one go by operations that walk a file.
pub(super) const WINDOW_BLOCKS: u64 = 1024;
/// An access time is renewed when it is older than this, or than the last change (relatime).
const ATIME_SECS: i64 = 24 * 3600;

impl View {
    /// Appends up to `size` bytes from `offset` to `into`; fewer only at the end of the file.
    ///
    /// # Errors
    /// EISDIR, EINVAL for what is no regular file; EIO with damage, or with drift of the base.
    pub fn read(&self, ino: Ino, offset: u64, size: u32, into: &mut Vec<u8>) -> Result<()> {
        let op = self.reading()?;
        let _lock = self.locks.shared(ino);
        let version = op.regular(ino)?;
        let left = version
            .record
            .attr
            .size
            .saturating_sub(offset)
            .min(u64::from(size));
        let len = usize::try_from(left).map_err(|_| Errno::EINVAL)?;
        content::read(&op, &version.record, offset, len, into)?;
        self.renew_atime(&version.record);
        Ok(())
    }

    fn renew_atime(&self, record: &InodeRecord) {
        if self.read_only {
            return;
        }
        let attr = self.with_newer_atime(record.attr);
        let now = Timestamp::now();
        let stale = attr.atime <= attr.mtime
            || attr.atime <= attr.ctime
            || now.secs - attr.atime.secs >= ATIME_SECS;
        if stale {
            self.atimes.lock().insert(attr.ino, now);
        }
    }

    /// Writes `data` at `offset`. `kill_suid` says that the writer may not keep set-user-id bits
    /// and capabilities on the file.
    ///
    /// # Errors
    /// As [`View::read`], EFBIG, ENOSPC.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], kill_suid: bool) -> Result<()> {
        let op = self.changing()?;
        let _locks = self.locks.exclusive(&[ino]);
        op.regular(ino)?;
        let mut edit = Edit::new(&op);
        let mut record = edit.inode(ino)?;
        edit.write_at(&mut record, offset, data)?;
        finish_write(&mut edit, record, kill_suid)?;
        edit.commit()
    }

    /// Writes `data` at the end. Returns where that was.
    ///
    /// # Errors
    /// As [`View::write`].
    pub fn append(&self, ino: Ino, data: &[u8]) -> Result<u64> {
        let op = self.changing()?;
        let _locks = self.locks.exclusive(&[ino]);
        op.regular(ino)?;
        let mut edit = Edit::new(&op);
        let mut record = edit.inode(ino)?;
        let end = record.attr.size;
        edit.write_at(&mut record, end, data)?;
        finish_write(&mut edit, record, false)?;
        edit.commit()?;
        Ok(end)
    }

    /// Returns where the next data or the next hole from `offset` on begins.
    ///
    /// # Errors
    /// ENXIO at or behind the end of the file, or where no more data follow.
    pub fn seek(&self, ino: Ino, offset: u64, to: SeekTo) -> Result<u64> {
        let op = self.reading()?;
        let _lock = self.locks.shared(ino);
        let version = op.regular(ino)?;
        let size = version.record.attr.size;
        if offset >= size {
            return Err(Errno::ENXIO.into());
        }
        let end = BlockIndex::at_or_after(size).0;
        let mut block = BlockIndex::containing(offset).0;
        while block < end {
            let count = WINDOW_BLOCKS.min(end - block);
            let found = content::sources(&op, &version.record, BlockIndex(block), count)?;
            let wanted = |source: &Source| source.is_allocated() == (to == SeekTo::Data);
            if let Some(at) = found.iter().position(wanted) {
                return Ok(BlockIndex(block + at as u64).start().max(offset));
            }
            block += count;
        }
        match to {
            SeekTo::Data => Err(Errno::ENXIO.into()),
            SeekTo::Hole => Ok(size),
        }
    }

    /// Returns a descriptor of the base's file if all content lies there, for passthrough.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn backing(&self, ino: Ino) -> Result<Option<OwnedFd>> {
        let op = self.reading()?;
        let version = op.inode(ino)?;
        let record = &version.record;
        if record.attr.kind != FileKind::Regular || !record.in_base || !record.cuts.is_empty() {
            return Ok(None);
        }
        let mut written = false;
        let prefix = key::inode(ino);
        op.store
            .scan_versions(Table::Map, &prefix, &prefix, op.head, &mut |_, _, _| {
                written = true;
                Ok(false)
            })?;
        // What is written need not be in the base any more, and nothing is nowhere.
        if written || record.attr.size == 0 {
            return Ok(None);
        }
        let (file, size) = content::base_file(&op, ino)?;
        if size != record.attr.size {
            return Ok(None);
        }
        let copy = file.try_clone().map_err(|error| {
            crate::error::Error::io("duplicate a descriptor of the base", error)
        })?;
        Ok(Some(copy))
    }
}

fn finish_write(edit: &mut Edit<'_>, mut record: InodeRecord, kill_suid: bool) -> Result<()> {
    record.attr.mtime = edit.now;
    record.attr.ctime = edit.now;
    if kill_suid {
        setattr::drop_privileges(edit, &mut record)?;
    }
    edit.put_inode(record);
    Ok(())
}

impl Edit<'_> {
    /// Writes `data` at `offset` of the file in `record`, whose size and blocks it updates.
    pub(super) fn write_at(
        &mut self,
        record: &mut InodeRecord,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Errno::EFBIG)?;
        let first = BlockIndex::containing(offset);
        let blocks = self.whole_blocks(record, first, offset, end, data)?;
        self.write_blocks(record, first, &blocks)?;
        record.attr.size = record.attr.size.max(end);
        Ok(())
    }

    /// Completes `data` with what its first and last block hold already.
    fn whole_blocks<'d>(
        &self,
        record: &InodeRecord,
        first: BlockIndex,
        offset: u64,
        end: u64,
        data: &'d [u8],
    ) -> Result<Cow<'d, [u8]>> {
        let last = BlockIndex::containing(end - 1);
        let (starts_inside, ends_inside) = (
            offset != first.start(),
            !end.is_multiple_of(BLOCK_BYTES) && end < record.attr.size,
        );
        if !starts_inside && !ends_inside {
            return Ok(Cow::Borrowed(data));
        }
        let mut bytes = Vec::with_capacity(data.len() + 2 * BLOCK);
        if starts_inside {
            bytes = content::read_block(self.op, record, first)?;
            let head = usize::try_from(offset - first.start()).unwrap_or(0);
            let old_tail = bytes.get(head..).map(<[u8]>::to_vec).unwrap_or_default();
            bytes.resize(head, 0);
            bytes.extend_from_slice(data);
            if first == last {
                // What follows the written bytes in the same block stays.
                let rest = old_tail.get(data.len()..).unwrap_or_default();
                bytes.extend_from_slice(rest);
                return Ok(Cow::Owned(bytes));
            }
        } else {
            bytes.extend_from_slice(data);
        }
        if ends_inside {
            let old = content::read_block(self.op, record, last)?;
            let tail = usize::try_from(end - last.start()).unwrap_or(0);
            bytes.extend_from_slice(old.get(tail..).unwrap_or_default());
        }
        Ok(Cow::Owned(bytes))
    }

    /// Writes whole blocks from `first` on; only the last may be shorter.
    fn write_blocks(
        &mut self,
        record: &mut InodeRecord,
        first: BlockIndex,
        bytes: &[u8],
    ) -> Result<()> {
        let count = bytes.len().div_ceil(BLOCK) as u64;
        let before = self.replaced(record, first, count)?;
        let ino = record.attr.ino;
        let mut added = count;
        if let Some(before) = &before {
            added -= before.iter().filter(|source| source.is_allocated()).count() as u64;
            self.drop_runs(ino, first, before);
        }
        record.attr.blocks += added * SECTORS;
        let mut at = 0;
        let mut block = first.0;
        while at < bytes.len() {
            // Runs end at multiples of their greatest length, so that rewriting a part of a file
            // in the same pieces replaces whole runs.
            let room = RUN_BLOCKS - block % RUN_BLOCKS;
            let len = (bytes.len() - at).min(usize::try_from(room).unwrap_or(1) * BLOCK);
            let run = &bytes[at..at + len];
            self.write_run(ino, BlockIndex(block), run)?;
            at += len;
            block += room;
        }
        self.own(ino, first.0..first.0 + count)
    }

    /// Writes up to [`RUN_BLOCKS`] blocks as one run; the caller notes that the head owns them.
    pub(super) fn write_run(&mut self, ino: Ino, first: BlockIndex, run: &[u8]) -> Result<()> {
        let head = self.op.head;
        if run.len() <= INLINE_BYTES_MAX {
            let key = key::versioned(&key::block(ino, first), head);
            self.batch
                .put(Table::Map, key, Locator::Inline(run.to_vec()).encode());
            return Ok(());
        }
        let sequence = self.op.store.new_sequence()?;
        let blocks = run.len().div_ceil(BLOCK);
        let count = u8::try_from(blocks).map_err(|_| Errno::EFBIG)?;
        for (index, bytes) in (0..count).zip(run.chunks(BLOCK)) {
            let place = RunPlace {
                index,
                count,
                checksum: crc32c::crc32c(bytes),
                sequence,
            };
            let thing = key::block(ino, BlockIndex(first.0 + u64::from(index)));
            self.batch.put(
                Table::Map,
                key::versioned(&thing, head),
                Locator::Run(place).encode(),
            );
        }
        self.batch.put(
            Table::Data,
            key::run(head, ino, first, sequence),
            run.to_vec(),
        );
        Ok(())
    }

    /// Returns what a write replaces; [`None`] if that is certainly nothing, which needs no lookup:
    /// a file that the head itself made, in blocks that the head does not hold.
    fn replaced(
        &self,
        record: &InodeRecord,
        first: BlockIndex,
        count: u64,
    ) -> Result<Option<Vec<Source>>> {
        let inherits = record.born != self.op.head && first.start() < record.attr.size;
        let mut owned = inherits;
        let mut block = first.0;
        while block < first.0 + count && !owned {
            let (segment, _) = Bitmap::place(BlockIndex(block));
            let bitmap = self.bitmap(record.attr.ino, segment)?;
            while block < first.0 + count && Bitmap::place(BlockIndex(block)).0 == segment {
                owned |= bitmap.get(Bitmap::place(BlockIndex(block)).1);
                block += 1;
            }
        }
        if !owned {
            return Ok(None);
        }
        content::sources(self.op, record, first, count).map(Some)
    }

    /// Deletes the head's runs that lie wholly in the blocks described by `before`, which are
    /// replaced. One that reaches beyond them stays until the collector finds it.
    pub(super) fn drop_runs(&mut self, ino: Ino, first: BlockIndex, before: &[Source]) {
        let head = self.op.head;
        let end = first.0 + before.len() as u64;
        let mut seen: SmallVec<[Key; 16]> = SmallVec::new();
        for (block, source) in (first.0..).zip(before) {
            let Source::Layer(layer, Locator::Run(place)) = source else {
                continue;
            };
            let Some(start) = block.checked_sub(u64::from(place.index)) else {
                continue;
            };
            let inside = start >= first.0 && start + u64::from(place.count) <= end;
            if *layer != head || !inside {
                continue;
            }
            let run = key::run(head, ino, BlockIndex(start), place.sequence);
            if seen.last() != Some(&run) && !seen.contains(&run) {
                self.batch.delete(Table::Data, run.clone());
                seen.push(run);
            }
        }
    }
}
