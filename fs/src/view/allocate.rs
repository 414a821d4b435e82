//! `fallocate`: reserving, punching holes, zeroing.

use nix::errno::Errno;

use crate::attr::AllocateMode;
use crate::error::Result;
use crate::id::{BlockIndex, Ino};
use crate::layout::record::InodeRecord;
use crate::view::View;
use crate::view::content;
use crate::view::edit::Edit;
use crate::view::file::{FILE_BYTES_MAX, SECTORS, WINDOW_BLOCKS};

impl View {
    /// Changes how a range of a file is allocated.
    ///
    /// # Errors
    /// EINVAL for an empty range, EFBIG, ENOSPC if the disk could not hold what is reserved.
    pub fn allocate(&self, ino: Ino, mode: AllocateMode, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Errno::EFBIG)?;
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        let op = self.changing()?;
        let _locks = self.locks.exclusive(&[ino]);
        op.regular(ino)?;
        let mut edit = Edit::new(&op);
        let mut record = edit.inode(ino)?;
        let keep_size = match mode {
            AllocateMode::Reserve { keep_size } => {
                let free = self.statfs()?;
                if len / u64::from(free.block_bytes.max(1)) > free.blocks_available {
                    return Err(Errno::ENOSPC.into());
                }
                keep_size
            }
            AllocateMode::PunchHole => {
                edit.clear_range(&mut record, offset, end)?;
                true
            }
            AllocateMode::ZeroRange { keep_size } => {
                edit.clear_range(&mut record, offset, end)?;
                keep_size
            }
        };
        if !keep_size && end > record.attr.size {
            edit.set_size(&mut record, end)?;
        }
        record.attr.mtime = edit.now;
        record.attr.ctime = edit.now;
        edit.put_inode(record);
        edit.commit()
    }
}

impl Edit<'_> {
    /// Lets the bytes from `offset` to `end` read as zeros, without taking space where whole
    /// blocks allow it.
    fn clear_range(&mut self, record: &mut InodeRecord, offset: u64, end: u64) -> Result<()> {
        let end = end.min(record.attr.size);
        if offset >= end {
            return Ok(());
        }
        let first = BlockIndex::at_or_after(offset);
        // A last block that ends with the file is cleared as a whole.
        let last = match end == record.attr.size {
            true => BlockIndex::at_or_after(end),
            false => BlockIndex::containing(end),
        };
        if first.0 > last.0 {
            // Both ends lie in one block.
            return self.clear_bytes(record, offset, end);
        }
        self.clear_bytes(record, offset, first.start().min(end))?;
        let mut block = first.0;
        while block < last.0 {
            let Some(next) = self.next_written(record, BlockIndex(block))? else {
                break;
            };
            if next.0 >= last.0 {
                break;
            }
            let window = WINDOW_BLOCKS.min(last.0 - next.0);
            self.clear_blocks(record, next, window)?;
            block = next.0 + window;
        }
        self.clear_bytes(record, last.start(), end)
    }

    fn clear_blocks(
        &mut self,
        record: &mut InodeRecord,
        first: BlockIndex,
        count: u64,
    ) -> Result<()> {
        let found = content::sources(self.op, record, first, count)?;
        self.drop_runs(record.attr.ino, first, &found);
        for (block, source) in (first.0..).zip(&found) {
            if source.is_allocated() {
                self.put_hole(record.attr.ino, BlockIndex(block))?;
                record.attr.blocks = record.attr.blocks.saturating_sub(SECTORS);
            }
        }
        Ok(())
    }

    /// Writes zeros over a part of one block, if anything is there.
    fn clear_bytes(&mut self, record: &mut InodeRecord, offset: u64, end: u64) -> Result<()> {
        if offset >= end {
            return Ok(());
        }
        let block = BlockIndex::containing(offset);
        if content::sources(self.op, record, block, 1)?[0].is_allocated() {
            let zeros = vec![0; usize::try_from(end - offset).map_err(|_| Errno::EFBIG)?];
            self.write_at(record, offset, &zeros)?;
        }
        Ok(())
    }
}
