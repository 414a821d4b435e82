//! Whether two things are the same: of two views, or of a view and a directory.

use std::os::fd::AsFd;

use crate::attr::{Attr, FileKind};
use crate::base::{Base, BaseStat};
use crate::error::Result;
use crate::id::Ino;
use crate::view::View;

/// Bytes compared at a time.
const CHUNK_BYTES: u32 = 1 << 20;

/// Returns whether an inode is the same in both views, times of access and change aside.
pub(super) fn inode_of_views(old: &View, new: &View, ino: Ino) -> Result<bool> {
    let (a, b) = (old.getattr(ino)?, new.getattr(ino)?);
    let shown = |attr: &Attr| (attr.perm, attr.uid, attr.gid, attr.mtime, attr.rdev);
    if shown(&a) != shown(&b) || xattrs(old, ino)? != xattrs(new, ino)? {
        return Ok(false);
    }
    match a.kind {
        FileKind::Regular => same_bytes(a.size, b.size, old, ino, &mut |offset, into| {
            new.read(ino, offset, CHUNK_BYTES, into)
        }),
        _ => Ok(true),
    }
}

/// Returns an inode's extended attributes by name.
pub(super) fn xattrs(view: &View, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    for name in view.listxattr(ino)? {
        let value = view.getxattr(ino, &name)?;
        found.push((name, value));
    }
    found.sort();
    Ok(found)
}

fn host_xattrs(host: &Base, path: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    for name in host.list_xattrs(path)? {
        if let Some(value) = host.get_xattr(path, &name)? {
            found.push((name, value));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns whether what the directory has at `path` has the kind and the content of an inode.
pub(super) fn content(
    view: &View,
    ino: Ino,
    host: &Base,
    path: &[u8],
    stat: &BaseStat,
) -> Result<bool> {
    let attr = view.getattr(ino)?;
    if FileKind::from_mode(stat.mode) != Some(attr.kind) || stat.hidden {
        return Ok(false);
    }
    match attr.kind {
        FileKind::Regular if attr.size != stat.size => Ok(false),
        FileKind::Regular => {
            let file = host.open_file(path)?;
            same_bytes(attr.size, stat.size, view, ino, &mut |offset, into| {
                let start = into.len();
                into.resize(start + CHUNK_BYTES as usize, 0);
                let got = host.read_at(file.as_fd(), offset, &mut into[start..])?;
                into.truncate(start + got);
                Ok(())
            })
        }
        FileKind::Symlink => Ok(host.read_link(path)? == view.readlink(ino)?),
        FileKind::CharDevice | FileKind::BlockDevice => Ok(stat.rdev == attr.rdev),
        FileKind::Directory | FileKind::Fifo | FileKind::Socket => Ok(true),
    }
}

/// As [`content`], and attributes too.
pub(super) fn whole(
    view: &View,
    ino: Ino,
    host: &Base,
    path: &[u8],
    stat: &BaseStat,
) -> Result<bool> {
    let attr = view.getattr(ino)?;
    let is_link = attr.kind == FileKind::Symlink;
    let same = (attr.uid, attr.gid, attr.mtime) == (stat.uid, stat.gid, stat.mtime)
        && (is_link || attr.perm == stat.mode & 0o7777);
    Ok(same
        && host_xattrs(host, path)? == xattrs(view, ino)?
        && content(view, ino, host, path, stat)?)
}

fn same_bytes(
    size: u64,
    other_size: u64,
    view: &View,
    ino: Ino,
    other: &mut dyn FnMut(u64, &mut Vec<u8>) -> Result<()>,
) -> Result<bool> {
    if size != other_size {
        return Ok(false);
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut offset = 0;
    while offset < size {
        left.clear();
        right.clear();
        view.read(ino, offset, CHUNK_BYTES, &mut left)?;
        other(offset, &mut right)?;
        if left != right || left.is_empty() {
            return Ok(false);
        }
        offset += left.len() as u64;
    }
    Ok(true)
}
