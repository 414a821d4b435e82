//! Whether two files are the same.

use std::collections::HashMap;

use crate::attr::{Attr, FileKind};
use crate::error::Result;
use crate::id::{BLOCK_BYTES, Ino};
use crate::layout::bitmap::Bitmap;
use crate::view::View;

/// Bytes compared in one go.
const CHUNK_BYTES: u32 = 1 << 20;

/// Returns whether two files have the same content: bytes, target or device, as their kind has it.
///
/// # Errors
/// Those of reading.
pub(crate) fn same_content(a: &View, old: &Attr, b: &View, new: &Attr) -> Result<bool> {
    if old.kind != new.kind {
        return Ok(false);
    }
    match old.kind {
        FileKind::Regular => {
            if old.size != new.size {
                return Ok(false);
            }
            let mut offset = 0;
            while offset < old.size {
                if !same_bytes(a, old.ino, b, new.ino, offset, CHUNK_BYTES)? {
                    return Ok(false);
                }
                offset += u64::from(CHUNK_BYTES);
            }
            Ok(true)
        }
        FileKind::Symlink => Ok(a.readlink(old.ino)? == b.readlink(new.ino)?),
        FileKind::CharDevice | FileKind::BlockDevice => Ok(old.rdev == new.rdev),
        FileKind::Directory | FileKind::Fifo | FileKind::Socket => Ok(true),
    }
}

/// As [`same_content`] for one regular file in two layers, of which only `written` blocks can
/// differ.
pub(super) fn same_blocks(
    a: &View,
    old: &Attr,
    b: &View,
    new: &Attr,
    written: Option<&HashMap<u64, Bitmap>>,
) -> Result<bool> {
    if old.size != new.size {
        return Ok(false);
    }
    let mut segments: Vec<_> = written.into_iter().flatten().collect();
    segments.sort_unstable_by_key(|(segment, _)| **segment);
    for (segment, bitmap) in segments {
        for block in bitmap.blocks(*segment) {
            let one = u32::try_from(BLOCK_BYTES).unwrap_or(CHUNK_BYTES);
            if !same_bytes(a, old.ino, b, new.ino, block.start(), one)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn same_bytes(a: &View, old: Ino, b: &View, new: Ino, offset: u64, size: u32) -> Result<bool> {
    let (mut left, mut right) = (Vec::new(), Vec::new());
    a.read(old, offset, size, &mut left)?;
    b.read(new, offset, size, &mut right)?;
    Ok(left == right)
}

/// Returns whether two inodes have the same extended attributes.
///
/// # Errors
/// Those of reading.
pub(crate) fn same_xattrs(a: &View, old: Ino, b: &View, new: Ino) -> Result<bool> {
    let (mut left, mut right) = (a.listxattr(old)?, b.listxattr(new)?);
    left.sort_unstable();
    right.sort_unstable();
    if left != right {
        return Ok(false);
    }
    for name in left {
        if a.getxattr(old, &name)? != b.getxattr(new, &name)? {
            return Ok(false);
        }
    }
    Ok(true)
}
