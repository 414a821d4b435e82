//! Our answers into fuser's types; the one place where an error becomes a number.

use std::time::{Duration, SystemTime};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate,
    ReplyEmpty, ReplyEntry, ReplyXattr,
};

use crate::attr::{Attr, FileKind};
use crate::error::{Error, ErrorKind, Result};
use crate::fuse::options::MountOptions;
use crate::fuse::service::Entry;
use crate::id::BLOCK_BYTES;

/// Inode numbers are never used again, so they need no generation.
pub(super) const GENERATION: Generation = Generation(0);

/// How long the kernel may keep what it is told.
#[derive(Clone, Copy, Debug)]
pub(in crate::fuse) struct Lifetimes {
    kept: Duration,
    negative: bool,
}

impl Lifetimes {
    /// Returns the lifetimes that `options` ask for.
    pub(in crate::fuse) fn of(options: &MountOptions) -> Self {
        Self {
            kept: options.lifetime(),
            negative: options.negative_entries,
        }
    }

    /// Returns the lifetime of names and attributes.
    pub(super) fn kept(self) -> Duration {
        self.kept
    }

    /// Answers a lookup.
    pub(super) fn found(self, found: Result<Option<Entry>>, reply: ReplyEntry) {
        match found {
            Ok(Some(entry)) => self.entry(Ok(entry), reply),
            Ok(None) if self.negative => reply.entry(&self.kept, &NOTHING, GENERATION),
            Ok(None) => reply.error(Errno::ENOENT),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Answers with an entry.
    pub(super) fn entry(self, entry: Result<Entry>, reply: ReplyEntry) {
        match entry {
            Ok(entry) => {
                let attr = file_attr(entry.node, &entry.attr);
                let kept = if entry.keep {
                    self.kept
                } else {
                    Duration::ZERO
                };
                // fuser has one field for node id and inode number. Where they differ, the kernel is
                // made to ask for the attributes, whose answer has the number alone.
                let same = entry.node == entry.attr.ino.0;
                let attr_kept = if same { self.kept } else { Duration::ZERO };
                reply.entry_with_ttls(&attr_kept, &kept, &attr, GENERATION);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Answers with an entry that is open already.
    pub(super) fn created(self, entry: Result<Entry>, reply: ReplyCreate) {
        match entry {
            Ok(entry) => {
                let attr = file_attr(entry.node, &entry.attr);
                let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
                reply.created(&self.kept, &attr, GENERATION, FileHandle(0), flags);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Answers with attributes.
    pub(super) fn attr(self, attr: Result<Attr>, reply: ReplyAttr) {
        match attr {
            Ok(attr) => reply.attr(&self.kept, &file_attr(attr.ino.0, &attr)),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

/// Answers with success or an error.
pub(super) fn done(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

/// Answers with the value or, if the caller has no room yet, the size of an extended attribute.
pub(super) fn xattr(value: Result<Vec<u8>>, room: u32, reply: ReplyXattr) {
    let value = match value {
        Ok(value) => value,
        Err(error) => return reply.error(errno(&error)),
    };
    match u32::try_from(value.len()) {
        Ok(size) if room == 0 => reply.size(size),
        Ok(size) if size <= room => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(_) => reply.error(Errno::E2BIG),
    }
}

/// Returns the number that the program is told, and logs what it alone would not explain.
pub(super) fn errno(error: &Error) -> Errno {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::Drift | ErrorKind::Io | ErrorKind::Poisoned => {
            log::error!("{}", chain(error));
        }
        _ => {}
    }
    Errno::from_i32(error.errno() as i32)
}

/// Returns the messages of `error` and of what caused it, in one line.
fn chain(error: &Error) -> String {
    let mut line = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        line.push_str(": ");
        line.push_str(&inner.to_string());
        cause = inner.source();
    }
    line
}

/// Returns the kind of file.
pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// Returns the attributes with `node` as inode number.
pub(super) fn file_attr(node: u64, attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(node),
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.into(),
        mtime: attr.mtime.into(),
        ctime: attr.ctime.into(),
        crtime: attr.btime.into(),
        kind: file_type(attr.kind),
        perm: u16::try_from(attr.perm & 0o7777).unwrap_or(0),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: u32::try_from(BLOCK_BYTES).unwrap_or(4096),
        flags: 0,
    }
}

/// A name that does not exist: node id 0.
const NOTHING: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: SystemTime::UNIX_EPOCH,
    mtime: SystemTime::UNIX_EPOCH,
    ctime: SystemTime::UNIX_EPOCH,
    crtime: SystemTime::UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};
