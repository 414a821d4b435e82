//! Keeping what the base says in the root layer, before the base is changed.

use crate::error::{Error, Result};
use crate::id::{BLOCK_BYTES, BlockIndex, Ino, LayerId};
use crate::kv::{Durability, Table};
use crate::layout::key;
use crate::layout::locator::{Locator, RUN_BLOCKS};
use crate::view::View;
use crate::view::content::{self, BLOCK};
use crate::view::edit::Edit;

impl View {
    /// Copies the content of a file of the base into the root layer, of which this is a view, so
    /// that nobody asks the base for it any more: blocks are looked for in layers first, and the
    /// root layer is below all. Returns how many bytes were copied. Going on where an interruption
    /// stopped it, and doing it again, are cheap.
    ///
    /// # Errors
    /// [`Error::BaseDrift`] if the content is no longer what was first seen, and those of every
    /// write.
    pub(crate) fn preserve(&self, ino: Ino) -> Result<u64> {
        let op = self.reading()?;
        if op.head != LayerId::ROOT {
            return Err(Error::BadLayer {
                layer: op.head,
                what: "only the root layer keeps what the base says",
            });
        }
        let thing = key::versioned(&key::inode(ino), LayerId::ROOT);
        let mut record = op.regular(ino)?.record.clone();
        let mut copied = 0;
        if !record.in_base {
            return Ok(copied);
        }
        let end = BlockIndex::at_or_after(record.attr.size).0;
        let mut first = BlockIndex(0);
        while first.0 < end {
            let count = RUN_BLOCKS.min(end - first.0);
            // The blocks of one batch are there together or not at all.
            let kept = key::versioned(&key::block(ino, first), LayerId::ROOT);
            if op.store.kv().get(Table::Map, &kept)?.is_none() {
                let left = record.attr.size - first.start();
                let len = left.min(count * BLOCK_BYTES);
                let mut bytes = Vec::new();
                let wanted = usize::try_from(len).unwrap_or(BLOCK);
                content::read(&op, &record, first.start(), wanted, &mut bytes)?;
                let mut edit = Edit::new(&op);
                if bytes.iter().all(|byte| *byte == 0) {
                    for block in first.0..first.0 + count {
                        let thing = key::block(ino, BlockIndex(block));
                        let place = key::versioned(&thing, LayerId::ROOT);
                        edit.batch.put(Table::Map, place, Locator::Hole.encode());
                    }
                } else {
                    edit.write_run(ino, first, &bytes)?;
                }
                op.store.write(&edit.batch, Durability::Process)?;
                copied += len;
            }
            first.0 += count;
        }
        record.in_base = false;
        let mut edit = Edit::new(&op);
        edit.batch.put(Table::Inodes, thing, record.encode());
        op.store.write(&edit.batch, Durability::Process)?;
        Ok(copied)
    }
}
