//! What a file is, in the terms of POSIX and free of any kernel adapter's types.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::id::Ino;

/// A time stamp in seconds and nanoseconds since the epoch; seconds may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Whole seconds since 1970, rounded towards the past.
    pub secs: i64,
    /// Nanoseconds after `secs`, less than 10⁹.
    pub nanos: u32,
}

impl Timestamp {
    /// Returns the current time.
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self {
                secs: after.as_secs().cast_signed(),
                nanos: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let secs = -before.as_secs().cast_signed();
                match before.subsec_nanos() {
                    0 => Self { secs, nanos: 0 },
                    nanos => Self {
                        secs: secs - 1,
                        nanos: 1_000_000_000 - nanos,
                    },
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let nanos = Duration::from_nanos(u64::from(time.nanos));
        let whole = Duration::from_secs(time.secs.unsigned_abs());
        let base = if time.secs >= 0 {
            UNIX_EPOCH.checked_add(whole)
        } else {
            UNIX_EPOCH.checked_sub(whole)
        };
        base.and_then(|base| base.checked_add(nanos))
            .unwrap_or(UNIX_EPOCH)
    }
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix domain socket's name.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl FileKind {
    /// Returns the kind that the `S_IFMT` bits of `mode` name, if they name one.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        match mode & libc::S_IFMT {
            libc::S_IFREG => Some(Self::Regular),
            libc::S_IFDIR => Some(Self::Directory),
            libc::S_IFLNK => Some(Self::Symlink),
            libc::S_IFIFO => Some(Self::Fifo),
            libc::S_IFSOCK => Some(Self::Socket),
            libc::S_IFCHR => Some(Self::CharDevice),
            libc::S_IFBLK => Some(Self::BlockDevice),
            _ => None,
        }
    }

    /// Returns the `S_IFMT` bits of this kind.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Regular => libc::S_IFREG,
            Self::Directory => libc::S_IFDIR,
            Self::Symlink => libc::S_IFLNK,
            Self::Fifo => libc::S_IFIFO,
            Self::Socket => libc::S_IFSOCK,
            Self::CharDevice => libc::S_IFCHR,
            Self::BlockDevice => libc::S_IFBLK,
        }
    }
}

/// The attributes of an inode, as `stat` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with suid, sgid and sticky: the lower 12 bits of the mode.
    pub perm: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, in the kernel's encoding.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time at which the operation is carried out.
    Now,
    /// This time.
    At(Timestamp),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits (lower 12 bits of the mode).
    pub perm: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size in bytes: truncates or extends.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// New change time, which only a kernel that caches writes may give.
    pub ctime: Option<Timestamp>,
}

/// On whose behalf an operation is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Effective user, who will own what is created.
    pub uid: u32,
    /// Effective group, likewise unless the directory is setgid.
    pub gid: u32,
}

impl Caller {
    /// The superuser.
    pub const ROOT: Caller = Caller { uid: 0, gid: 0 };
}

/// How `rename` treats its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces the destination.
    Replace,
    /// Fails if the destination exists (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps source and destination (`RENAME_EXCHANGE`).
    Exchange,
    /// Leaves a whiteout device at the source (`RENAME_WHITEOUT`).
    Whiteout,
}

/// How `setxattr` treats an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces.
    Either,
    /// Fails if it exists (`XATTR_CREATE`).
    Create,
    /// Fails if it does not exist (`XATTR_REPLACE`).
    Replace,
}

/// Where `lseek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// The next byte that may differ from zero (`SEEK_DATA`).
    Data,
    /// The next hole (`SEEK_HOLE`).
    Hole,
}

/// What `fallocate` does to its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Makes sure that the range exists; grows the file unless `keep_size`.
    Reserve {
        /// Leaves the size as it is.
        keep_size: bool,
    },
    /// Makes the range a hole; the size stays.
    PunchHole,
    /// Makes the range read as zeros; grows the file unless `keep_size`.
    ZeroRange {
        /// Leaves the size as it is.
        keep_size: bool,
    },
}

/// The numbers of `statfs`, of the disk on which the store lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statfs {
    /// Size of a block in bytes, the unit of the three counts below.
    pub block_bytes: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for unprivileged users.
    pub blocks_available: u64,
    /// All inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name, without slash or NUL; not necessarily UTF-8.
    pub name: Vec<u8>,
    /// The inode it names.
    pub ino: Ino,
    /// What the inode is.
    pub kind: FileKind,
    /// Where to go on after this entry: stays valid while entries come and go.
    pub cookie: u64,
}
