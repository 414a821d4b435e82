//! Bringing a file from one view into another.

use crate::attr::{Attr, Caller, FileKind, SetAttr, SetTime, XattrMode};
use crate::error::Result;
use crate::id::Ino;
use crate::view::View;

/// Bytes moved in one go.
const CHUNK_BYTES: u32 = 1 << 20;

/// Makes a copy of `attr`'s inode, without the names in it if it is a directory.
pub(crate) fn make(from: &View, attr: &Attr, to: &View, parent: Ino, name: &[u8]) -> Result<Attr> {
    let caller = Caller {
        uid: attr.uid,
        gid: attr.gid,
    };
    let made = match attr.kind {
        FileKind::Directory => to.mkdir(caller, parent, name, attr.perm, 0)?,
        FileKind::Symlink => to.symlink(caller, parent, name, &from.readlink(attr.ino)?)?,
        kind => to.mknod(caller, parent, name, kind, attr.perm, 0, attr.rdev)?,
    };
    if attr.kind == FileKind::Regular {
        content(from, attr, to, made.ino)?;
    }
    metadata(from, attr, to, made.ino)?;
    to.getattr(made.ino)
}

/// Gives `target` the bytes of `attr`'s inode. Holes stay holes.
pub(crate) fn content(from: &View, attr: &Attr, to: &View, target: Ino) -> Result<()> {
    let size = |size| SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    to.setattr(Caller::ROOT, target, &size(0))?;
    let mut offset = 0;
    let mut bytes = Vec::new();
    while offset < attr.size {
        let Ok(data) = from.seek(attr.ino, offset, crate::attr::SeekTo::Data) else {
            break;
        };
        // Whole blocks are written where the data begin inside one.
        offset = data;
        bytes.clear();
        from.read(attr.ino, offset, CHUNK_BYTES, &mut bytes)?;
        to.write(target, offset, &bytes, false)?;
        offset += bytes.len() as u64;
    }
    to.setattr(Caller::ROOT, target, &size(attr.size))?;
    Ok(())
}

/// Gives `target` the owner, mode, times and extended attributes of `attr`'s inode.
pub(crate) fn metadata(from: &View, attr: &Attr, to: &View, target: Ino) -> Result<()> {
    let wanted = from.listxattr(attr.ino)?;
    for name in to.listxattr(target)? {
        if !wanted.contains(&name) {
            to.removexattr(target, &name)?;
        }
    }
    let change = SetAttr {
        uid: Some(attr.uid),
        gid: Some(attr.gid),
        ..SetAttr::default()
    };
    to.setattr(Caller::ROOT, target, &change)?;
    for name in wanted {
        let value = from.getxattr(attr.ino, &name)?;
        to.setxattr(Caller::ROOT, target, &name, &value, XattrMode::Either)?;
    }
    // Last, for a change of owner clears set-user-id and everything renews the times.
    let change = SetAttr {
        perm: (attr.kind != FileKind::Symlink).then_some(attr.perm),
        atime: Some(SetTime::At(attr.atime)),
        mtime: Some(SetTime::At(attr.mtime)),
        ..SetAttr::default()
    };
    to.setattr(Caller::ROOT, target, &change)?;
    Ok(())
}
