//! Numbers of the protocol, from linux/fuse.h. Only those in use.

/// Major version of the protocol.
pub(super) const MAJOR: u32 = 7;
/// The newest minor version whose messages this module knows.
pub(super) const MINOR: u32 = 42;
/// The oldest minor version that is spoken: from here on, structures have their present size.
pub(super) const MINOR_MIN: u32 = 31;

/// Bytes of a request's header.
pub(super) const IN_HEADER_BYTES: usize = 40;
/// Bytes of an answer's header.
pub(super) const OUT_HEADER_BYTES: usize = 16;
/// Bytes before the name of an entry in a directory listing.
pub(super) const DIRENT_BYTES: usize = 24;
/// Bytes of an answer that describes a name.
pub(super) const ENTRY_OUT_BYTES: usize = 128;

/// Kinds of requests.
pub(super) mod opcode {
    pub(in super::super) const LOOKUP: u32 = 1;
    pub(in super::super) const FORGET: u32 = 2;
    pub(in super::super) const GETATTR: u32 = 3;
    pub(in super::super) const SETATTR: u32 = 4;
    pub(in super::super) const READLINK: u32 = 5;
    pub(in super::super) const SYMLINK: u32 = 6;
    pub(in super::super) const MKNOD: u32 = 8;
    pub(in super::super) const MKDIR: u32 = 9;
    pub(in super::super) const UNLINK: u32 = 10;
    pub(in super::super) const RMDIR: u32 = 11;
    pub(in super::super) const RENAME: u32 = 12;
    pub(in super::super) const LINK: u32 = 13;
    pub(in super::super) const OPEN: u32 = 14;
    pub(in super::super) const READ: u32 = 15;
    pub(in super::super) const WRITE: u32 = 16;
    pub(in super::super) const STATFS: u32 = 17;
    pub(in super::super) const RELEASE: u32 = 18;
    pub(in super::super) const FSYNC: u32 = 20;
    pub(in super::super) const SETXATTR: u32 = 21;
    pub(in super::super) const GETXATTR: u32 = 22;
    pub(in super::super) const LISTXATTR: u32 = 23;
    pub(in super::super) const REMOVEXATTR: u32 = 24;
    pub(in super::super) const FLUSH: u32 = 25;
    pub(in super::super) const INIT: u32 = 26;
    pub(in super::super) const OPENDIR: u32 = 27;
    pub(in super::super) const READDIR: u32 = 28;
    pub(in super::super) const RELEASEDIR: u32 = 29;
    pub(in super::super) const FSYNCDIR: u32 = 30;
    pub(in super::super) const CREATE: u32 = 35;
    pub(in super::super) const INTERRUPT: u32 = 36;
    pub(in super::super) const DESTROY: u32 = 38;
    pub(in super::super) const IOCTL: u32 = 39;
    pub(in super::super) const BATCH_FORGET: u32 = 42;
    pub(in super::super) const FALLOCATE: u32 = 43;
    pub(in super::super) const READDIRPLUS: u32 = 44;
    pub(in super::super) const RENAME2: u32 = 45;
    pub(in super::super) const LSEEK: u32 = 46;
    pub(in super::super) const COPY_FILE_RANGE: u32 = 47;
    pub(in super::super) const TMPFILE: u32 = 51;
    pub(in super::super) const COPY_FILE_RANGE_64: u32 = 53;
}

/// What kernel and daemon agree on at the start.
pub(super) mod init {
    pub(in super::super) const ASYNC_READ: u64 = 1 << 0;
    pub(in super::super) const BIG_WRITES: u64 = 1 << 5;
    pub(in super::super) const DONT_MASK: u64 = 1 << 6;
    pub(in super::super) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(in super::super) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(in super::super) const ASYNC_DIO: u64 = 1 << 15;
    pub(in super::super) const WRITEBACK_CACHE: u64 = 1 << 16;
    pub(in super::super) const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub(in super::super) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(in super::super) const POSIX_ACL: u64 = 1 << 20;
    pub(in super::super) const MAX_PAGES: u64 = 1 << 22;
    pub(in super::super) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(in super::super) const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub(in super::super) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(in super::super) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(in super::super) const INIT_EXT: u64 = 1 << 30;
    pub(in super::super) const PASSTHROUGH: u64 = 1 << 37;
}

/// Which fields of a SETATTR count.
pub(super) mod fattr {
    pub(in super::super) const MODE: u32 = 1 << 0;
    pub(in super::super) const UID: u32 = 1 << 1;
    pub(in super::super) const GID: u32 = 1 << 2;
    pub(in super::super) const SIZE: u32 = 1 << 3;
    pub(in super::super) const ATIME: u32 = 1 << 4;
    pub(in super::super) const MTIME: u32 = 1 << 5;
    pub(in super::super) const ATIME_NOW: u32 = 1 << 7;
    pub(in super::super) const MTIME_NOW: u32 = 1 << 8;
    pub(in super::super) const CTIME: u32 = 1 << 10;
}

/// How an opened file is to be treated.
pub(super) mod fopen {
    pub(in super::super) const KEEP_CACHE: u32 = 1 << 1;
    pub(in super::super) const CACHE_DIR: u32 = 1 << 3;
    pub(in super::super) const NOFLUSH: u32 = 1 << 5;
    pub(in super::super) const PASSTHROUGH: u32 = 1 << 7;
}

/// The bytes of a WRITE come from the page cache.
pub(super) const WRITE_CACHE: u32 = 1 << 0;
/// A WRITE ends the file's set-user-ID and set-group-ID bits.
pub(super) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// An FSYNC is about the content only.
pub(super) const FSYNC_DATA_ONLY: u32 = 1 << 0;
