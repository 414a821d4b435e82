//! The bytes of a file: which version of each block counts, and where its bytes are.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::id::{BLOCK_BYTES, BlockIndex, Ino, LayerId};
use crate::kv::Table;
use crate::layout::key;
use crate::layout::locator::{Locator, RunOwner, RunPlace};
use crate::layout::record::InodeRecord;
use crate::view::op::Op;

/// [`BLOCK_BYTES`] as a length in memory.
pub(super) const BLOCK: usize = 4096;
const _: () = assert!(BLOCK as u64 == BLOCK_BYTES);

/// Where the content of a block comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Nobody wrote it.
    Nothing,
    /// A layer wrote it.
    Layer(LayerId, Locator),
    /// The base has it.
    Base,
}

impl Source {
    /// Returns whether the block takes space.
    pub(super) fn is_allocated(&self) -> bool {
        match self {
            Source::Nothing => false,
            Source::Layer(_, locator) => locator.is_allocated(),
            Source::Base => true,
        }
    }
}

/// Returns the sources of `count` blocks from `first` on.
pub(super) fn sources(
    op: &Op<'_>,
    record: &InodeRecord,
    first: BlockIndex,
    count: u64,
) -> Result<Vec<Source>> {
    let ino = record.attr.ino;
    let len = usize::try_from(count).map_err(|_| nix::errno::Errno::EFBIG)?;
    let mut found = vec![Source::Nothing; len];
    let mut note = |block: BlockIndex, layer: LayerId, value: &[u8]| -> Result<()> {
        let visible = record
            .oldest_visible(block.0)
            .is_none_or(|oldest| layer >= oldest);
        if visible && let Ok(at) = usize::try_from(block.0 - first.0) {
            found[at] = Source::Layer(layer, Locator::decode(value)?);
        }
        Ok(())
    };
    if count == 1 {
        // The filters over single blocks answer "nobody wrote it" without reading.
        if let Some((layer, value)) =
            op.store
                .newest(Table::Map, &key::block(ino, first), op.head)?
        {
            note(first, layer, &value)?;
        }
    } else {
        let (from, prefix) = (key::block(ino, first), key::inode(ino));
        op.store.scan_versions(
            Table::Map,
            &from,
            &prefix,
            op.head,
            &mut |thing, layer, value| {
                let (_, block) = key::parse_block(thing)?;
                let inside = block.0 < first.0 + count;
                if inside {
                    note(block, layer, value)?;
                }
                Ok(inside && block.0 + 1 < first.0 + count)
            },
        )?;
    }
    if record.in_base
        && let Some(known) = op.store.base_record(ino)?
    {
        for (block, source) in (first.0..).zip(&mut found) {
            let in_base = block * BLOCK_BYTES < known.size;
            if in_base
                && matches!(source, Source::Nothing)
                && record.oldest_visible(block).is_none()
            {
                *source = Source::Base;
            }
        }
    }
    Ok(found)
}

/// Opens the base's file of an inode and makes sure that it is the one first seen.
pub(super) fn base_file(op: &Op<'_>, ino: Ino) -> Result<(Arc<OwnedFd>, u64)> {
    let missing = || Error::BadEntry {
        table: "base",
        what: format!("inode {ino} is missing"),
    };
    let known = op.store.base_record(ino)?.ok_or_else(missing)?;
    let base = op.store.base().ok_or_else(missing)?;
    let drift = || {
        use std::os::unix::ffi::OsStringExt;
        let path = std::ffi::OsString::from_vec(known.path.clone()).into();
        let error = Error::BaseDrift { path };
        log::warn!("{error}");
        error
    };
    for attempt in 0..2 {
        let file = match base.file(&known.path) {
            Ok(file) => file,
            Err(Error::Io { .. }) => {
                base.check()?;
                return Err(drift());
            }
            Err(error) => return Err(error),
        };
        let stat = base.stat_file(&file)?;
        if stat.nlink > 0 && stat.ctime == known.ctime && stat.size == known.size {
            return Ok((file, known.size));
        }
        // The descriptor may be an old one of a path that leads elsewhere now: look once more.
        base.forget_file(&known.path);
        if attempt > 0 {
            base.check()?;
        }
    }
    Err(drift())
}

/// Reads `buffer.len()` bytes of a base file from `offset`; what lies beyond its end is zeros.
pub(super) fn read_base(op: &Op<'_>, ino: Ino, offset: u64, buffer: &mut [u8]) -> Result<()> {
    let (file, size) = base_file(op, ino)?;
    let Some(base) = op.store.base() else {
        return Ok(());
    };
    let wanted = size.saturating_sub(offset).min(buffer.len() as u64);
    let wanted = usize::try_from(wanted).unwrap_or(buffer.len());
    let got = base.read_at(&*file, offset, &mut buffer[..wanted])?;
    if got < wanted {
        return Err(nix::errno::Errno::EIO.into());
    }
    Ok(())
}

/// Reads blocks one after the other; a run is fetched once for all its blocks.
pub(super) struct Fetcher<'a> {
    op: &'a Op<'a>,
    ino: Ino,
    last: Option<(crate::kv::Key, Vec<u8>)>,
}

impl<'a> Fetcher<'a> {
    pub(super) fn new(op: &'a Op<'a>, ino: Ino) -> Self {
        Self {
            op,
            ino,
            last: None,
        }
    }

    /// Fills `buffer`, which is all zeros, with the bytes of `block` from `skip` on.
    pub(super) fn fetch(
        &mut self,
        block: BlockIndex,
        source: &Source,
        skip: usize,
        buffer: &mut [u8],
    ) -> Result<()> {
        match source {
            Source::Nothing | Source::Layer(_, Locator::Hole) => Ok(()),
            Source::Base => read_base(self.op, self.ino, block.start() + skip as u64, buffer),
            Source::Layer(_, Locator::Base(ino, other)) => {
                self.fetch_base(*ino, *other, skip, buffer)
            }
            Source::Layer(_, Locator::Inline(bytes)) => {
                copy_from(bytes, skip, buffer);
                Ok(())
            }
            Source::Layer(layer, Locator::Run(place)) => {
                let first = BlockIndex(block.0.saturating_sub(u64::from(place.index)));
                let owner = RunOwner {
                    layer: *layer,
                    object: self.ino,
                    first,
                };
                self.fetch_run(block, place, &owner, skip, buffer)
            }
            Source::Layer(_, Locator::Shared(place, owner)) => {
                self.fetch_run(block, place, owner, skip, buffer)
            }
        }
    }

    /// Fetches a block of the base for another file: from the root layer if its content was kept
    /// there before the base's file was replaced.
    fn fetch_base(
        &mut self,
        ino: Ino,
        block: BlockIndex,
        skip: usize,
        buffer: &mut [u8],
    ) -> Result<()> {
        let kept = key::versioned(&key::block(ino, block), LayerId::ROOT);
        let Some(value) = self.op.store.kv().get(Table::Map, &kept)? else {
            return read_base(self.op, ino, block.start() + skip as u64, buffer);
        };
        let kept = Source::Layer(LayerId::ROOT, Locator::decode(&value)?);
        Fetcher::new(self.op, ino).fetch(block, &kept, skip, buffer)
    }

    fn fetch_run(
        &mut self,
        block: BlockIndex,
        place: &RunPlace,
        owner: &RunOwner,
        skip: usize,
        buffer: &mut [u8],
    ) -> Result<()> {
        let bad = || Error::BadBlock {
            ino: self.ino,
            block: block.0,
            layer: owner.layer,
        };
        let wanted = key::run(owner.layer, owner.object, owner.first, place.sequence);
        if self.last.as_ref().is_none_or(|(key, _)| *key != wanted) {
            let value = self
                .op
                .store
                .kv()
                .get(Table::Data, &wanted)?
                .ok_or_else(bad)?;
            self.last = Some((wanted, value));
        }
        let run = self.last.as_ref().map_or(&[][..], |(_, value)| value);
        let start = usize::from(place.index) * BLOCK;
        let bytes = run
            .get(start..run.len().min(start + BLOCK))
            .ok_or_else(bad)?;
        if crc32c::crc32c(bytes) != place.checksum {
            let error = bad();
            log::error!("{error}");
            return Err(error);
        }
        copy_from(bytes, skip, buffer);
        Ok(())
    }
}

fn copy_from(bytes: &[u8], skip: usize, buffer: &mut [u8]) {
    let bytes = bytes.get(skip..).unwrap_or_default();
    let len = bytes.len().min(buffer.len());
    buffer[..len].copy_from_slice(&bytes[..len]);
}

/// Appends `len` bytes of a file from `offset` on to `into`. The caller has cut them at the end.
pub(super) fn read(
    op: &Op<'_>,
    record: &InodeRecord,
    offset: u64,
    len: usize,
    into: &mut Vec<u8>,
) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    let end = offset + len as u64;
    let first = BlockIndex::containing(offset);
    let count = end.div_ceil(BLOCK_BYTES) - first.0;
    let start = into.len();
    into.resize(start + len, 0);
    let mut rest = &mut into[start..];
    let found = sources(op, record, first, count)?;
    let mut fetcher = Fetcher::new(op, record.attr.ino);
    let mut at = 0;
    while at < found.len() {
        // Neighbours in the base are read in one go.
        let same = match found[at] {
            Source::Base => found[at..]
                .iter()
                .take_while(|s| matches!(s, Source::Base))
                .count(),
            _ => 1,
        };
        let block = BlockIndex(first.0 + at as u64);
        let skip = usize::try_from(offset.saturating_sub(block.start())).unwrap_or(0);
        let (piece, after) = rest.split_at_mut((same * BLOCK - skip).min(rest.len()));
        fetcher.fetch(block, &found[at], skip, piece)?;
        rest = after;
        at += same;
    }
    Ok(())
}

/// Returns one block's bytes up to the end of the file, at most [`BLOCK`] of them.
pub(super) fn read_block(op: &Op<'_>, record: &InodeRecord, block: BlockIndex) -> Result<Vec<u8>> {
    let left = record
        .attr
        .size
        .saturating_sub(block.start())
        .min(BLOCK_BYTES);
    let mut bytes = Vec::with_capacity(BLOCK);
    read(
        op,
        record,
        block.start(),
        usize::try_from(left).unwrap_or(BLOCK),
        &mut bytes,
    )?;
    Ok(bytes)
}
