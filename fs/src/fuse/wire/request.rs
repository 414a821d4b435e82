//! Requests: the kernel's bytes into what is asked.
//!
//! A request is a header, a structure of a size that its kind gives, and the rest: names, or the bytes
//! to write. Nothing here trusts a length.

#[cfg(test)]
mod tests;

use crate::attr::{Caller, SetAttr, SetTime, Timestamp};
use crate::fuse::service::Context;
use crate::fuse::wire::abi::{FSYNC_DATA_ONLY, IN_HEADER_BYTES, fattr, opcode};
use crate::fuse::wire::bytes::{Malformed, Reader};

/// What stands at the head of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Its kind.
    pub(super) opcode: u32,
    /// Its number, which the answer repeats.
    pub(super) unique: u64,
    /// The file that it is about; for most that name something, the directory.
    pub(super) node: u64,
    uid: u32,
    gid: u32,
    thread: u32,
}

impl Header {
    /// Takes the header off a request; returns what follows it.
    pub(super) fn split(message: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let mut reader = Reader::new(message);
        let len = usize::try_from(reader.u32()?).map_err(|_| Malformed)?;
        let header = Self {
            opcode: reader.u32()?,
            unique: reader.u64()?,
            node: reader.u64()?,
            uid: reader.u32()?,
            gid: reader.u32()?,
            thread: reader.u32()?,
        };
        let body = message.get(IN_HEADER_BYTES..len).ok_or(Malformed)?;
        Ok((header, body))
    }

    /// Returns who asks.
    pub(super) fn context(&self) -> Context {
        Context {
            caller: Caller {
                uid: self.uid,
                gid: self.gid,
            },
            thread: self.thread,
        }
    }
}

/// What is asked. Fields have the meaning of the system call behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget {
        count: u64,
    },
    BatchForget(Forgets<'a>),
    Getattr,
    Setattr(SetAttr),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        node: u64,
        name: &'a [u8],
    },
    Open,
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    /// A file without a name.
    Tmpfile {
        mode: u32,
        umask: u32,
    },
    Read {
        offset: u64,
        size: u32,
    },
    Write {
        offset: u64,
        flags: u32,
        data: &'a [u8],
    },
    Statfs,
    Release,
    Fsync {
        data_only: bool,
    },
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
    },
    Getxattr {
        name: &'a [u8],
        room: u32,
    },
    Listxattr {
        room: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Flush,
    Init(Init),
    Opendir,
    Readdir {
        cookie: u64,
        size: u32,
    },
    Readdirplus {
        cookie: u64,
        size: u32,
    },
    Releasedir,
    Fsyncdir {
        data_only: bool,
    },
    /// The program that asked has got a signal. Every request is answered soon, so this one is not.
    Interrupt,
    Destroy,
    Ioctl,
    Fallocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    Lseek {
        offset: u64,
        whence: u32,
    },
    CopyFileRange {
        offset: u64,
        to: u64,
        to_offset: u64,
        len: u64,
        /// Whether the answer has 64 bits.
        wide: bool,
    },
    Unknown,
}

/// What the kernel says of itself in its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Init {
    /// Version of its protocol.
    pub(super) major: u32,
    /// Its newest minor version.
    pub(super) minor: u32,
    /// How far it reads ahead at most, in bytes.
    pub(super) readahead_bytes_max: u32,
    /// What it can.
    pub(super) flags: u64,
}

/// Node ids with the number of references that the kernel drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forgets<'a> {
    entries: &'a [u8],
}

impl Forgets<'_> {
    /// Returns node ids and counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.entries.chunks_exact(16).filter_map(|entry| {
            let mut reader = Reader::new(entry);
            Some((reader.u64().ok()?, reader.u64().ok()?))
        })
    }
}

/// Returns the size of the structure that follows the header.
fn argument_bytes(kind: u32) -> usize {
    match kind {
        opcode::FORGET
        | opcode::MKDIR
        | opcode::RENAME
        | opcode::LINK
        | opcode::OPEN
        | opcode::OPENDIR
        | opcode::SETXATTR
        | opcode::GETXATTR
        | opcode::LISTXATTR
        | opcode::INTERRUPT
        | opcode::BATCH_FORGET => 8,
        opcode::GETATTR
        | opcode::MKNOD
        | opcode::FSYNC
        | opcode::FSYNCDIR
        | opcode::CREATE
        | opcode::TMPFILE
        | opcode::RENAME2 => 16,
        opcode::RELEASE | opcode::RELEASEDIR | opcode::FLUSH | opcode::LSEEK => 24,
        opcode::IOCTL | opcode::FALLOCATE => 32,
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS | opcode::WRITE => 40,
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => 56,
        opcode::SETATTR => 88,
        _ => 0,
    }
}

impl<'a> Operation<'a> {
    /// Decodes what follows the header in a message of one piece.
    pub(super) fn decode(kind: u32, body: &'a [u8]) -> Result<Self, Malformed> {
        let (argument, rest) = body
            .split_at_checked(argument_bytes(kind))
            .ok_or(Malformed)?;
        Self::decode_parts(kind, argument, rest)
    }

    /// Decodes a request whose structure and rest lie in different places.
    pub(super) fn decode_parts(
        kind: u32,
        argument: &'a [u8],
        rest: &'a [u8],
    ) -> Result<Self, Malformed> {
        let (mut arg, mut rest) = (Reader::new(argument), Reader::new(rest));
        Ok(match kind {
            opcode::LOOKUP => Self::Lookup { name: rest.name()? },
            opcode::FORGET => Self::Forget { count: arg.u64()? },
            opcode::BATCH_FORGET => {
                let count = usize::try_from(arg.u32()?).map_err(|_| Malformed)?;
                let bytes = count.checked_mul(16).ok_or(Malformed)?;
                Self::BatchForget(Forgets {
                    entries: rest.bytes(bytes)?,
                })
            }
            opcode::GETATTR => Self::Getattr,
            opcode::SETATTR => Self::Setattr(set_attr(arg)?),
            opcode::READLINK => Self::Readlink,
            opcode::SYMLINK => Self::Symlink {
                name: rest.name()?,
                target: rest.name()?,
            },
            opcode::MKNOD => Self::Mknod {
                mode: arg.u32()?,
                rdev: arg.u32()?,
                umask: arg.u32()?,
                name: rest.name()?,
            },
            opcode::MKDIR => Self::Mkdir {
                mode: arg.u32()?,
                umask: arg.u32()?,
                name: rest.name()?,
            },
            opcode::UNLINK => Self::Unlink { name: rest.name()? },
            opcode::RMDIR => Self::Rmdir { name: rest.name()? },
            opcode::RENAME => Self::Rename {
                new_parent: arg.u64()?,
                flags: 0,
                name: rest.name()?,
                new_name: rest.name()?,
            },
            opcode::RENAME2 => Self::Rename {
                new_parent: arg.u64()?,
                flags: arg.u32()?,
                name: rest.name()?,
                new_name: rest.name()?,
            },
            opcode::LINK => Self::Link {
                node: arg.u64()?,
                name: rest.name()?,
            },
            opcode::OPEN => Self::Open,
            opcode::CREATE => {
                arg.skip(4)?;
                Self::Create {
                    mode: arg.u32()?,
                    umask: arg.u32()?,
                    name: rest.name()?,
                }
            }
            opcode::TMPFILE => {
                arg.skip(4)?;
                Self::Tmpfile {
                    mode: arg.u32()?,
                    umask: arg.u32()?,
                }
            }
            opcode::READ => {
                let (offset, size) = range(arg)?;
                Self::Read { offset, size }
            }
            opcode::WRITE => write(arg, rest)?,
            opcode::STATFS => Self::Statfs,
            opcode::RELEASE => Self::Release,
            opcode::FSYNC => Self::Fsync {
                data_only: data_only(arg)?,
            },
            opcode::FSYNCDIR => Self::Fsyncdir {
                data_only: data_only(arg)?,
            },
            opcode::SETXATTR => {
                let size = usize::try_from(arg.u32()?).map_err(|_| Malformed)?;
                Self::Setxattr {
                    flags: arg.u32()?,
                    name: rest.name()?,
                    value: rest.bytes(size)?,
                }
            }
            opcode::GETXATTR => Self::Getxattr {
                room: arg.u32()?,
                name: rest.name()?,
            },
            opcode::LISTXATTR => Self::Listxattr { room: arg.u32()? },
            opcode::REMOVEXATTR => Self::Removexattr { name: rest.name()? },
            opcode::FLUSH => Self::Flush,
            // Its structure has grown over the years, so it is all in the rest.
            opcode::INIT => Self::Init(hello(rest)?),
            opcode::OPENDIR => Self::Opendir,
            opcode::READDIR => {
                let (cookie, size) = range(arg)?;
                Self::Readdir { cookie, size }
            }
            opcode::READDIRPLUS => {
                let (cookie, size) = range(arg)?;
                Self::Readdirplus { cookie, size }
            }
            opcode::RELEASEDIR => Self::Releasedir,
            opcode::INTERRUPT => Self::Interrupt,
            opcode::DESTROY => Self::Destroy,
            opcode::IOCTL => Self::Ioctl,
            opcode::FALLOCATE => {
                arg.skip(8)?;
                Self::Fallocate {
                    offset: arg.u64()?,
                    length: arg.u64()?,
                    mode: arg.u32()?,
                }
            }
            opcode::LSEEK => {
                arg.skip(8)?;
                Self::Lseek {
                    offset: arg.u64()?,
                    whence: arg.u32()?,
                }
            }
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
                arg.skip(8)?;
                let (offset, to) = (arg.u64()?, arg.u64()?);
                arg.skip(8)?;
                Self::CopyFileRange {
                    offset,
                    to,
                    to_offset: arg.u64()?,
                    len: arg.u64()?,
                    wide: kind == opcode::COPY_FILE_RANGE_64,
                }
            }
            _ => Self::Unknown,
        })
    }
}

/// READ and listings: handle, offset, size.
fn range(mut arg: Reader<'_>) -> Result<(u64, u32), Malformed> {
    arg.skip(8)?;
    Ok((arg.u64()?, arg.u32()?))
}

/// FSYNC: handle, flags.
fn data_only(mut arg: Reader<'_>) -> Result<bool, Malformed> {
    arg.skip(8)?;
    Ok(arg.u32()? & FSYNC_DATA_ONLY != 0)
}

fn write<'a>(mut arg: Reader<'_>, mut rest: Reader<'a>) -> Result<Operation<'a>, Malformed> {
    arg.skip(8)?;
    let (offset, size, flags) = (arg.u64()?, arg.u32()?, arg.u32()?);
    Ok(Operation::Write {
        offset,
        flags,
        data: rest.bytes(usize::try_from(size).map_err(|_| Malformed)?)?,
    })
}

fn hello(mut body: Reader<'_>) -> Result<Init, Malformed> {
    let (major, minor) = (body.u32()?, body.u32()?);
    let (readahead_bytes_max, low) = (body.u32()?, body.u32()?);
    // Kernels before 5.17 end here.
    let high = body.u32().unwrap_or(0);
    Ok(Init {
        major,
        minor,
        readahead_bytes_max,
        flags: u64::from(high) << 32 | u64::from(low),
    })
}

fn set_attr(mut arg: Reader<'_>) -> Result<SetAttr, Malformed> {
    let valid = arg.u32()?;
    arg.skip(12)?;
    let size = arg.u64()?;
    arg.skip(8)?;
    let seconds = [arg.u64()?, arg.u64()?, arg.u64()?];
    let nanos = [arg.u32()?, arg.u32()?, arg.u32()?];
    let mode = arg.u32()?;
    arg.skip(4)?;
    let (uid, gid) = (arg.u32()?, arg.u32()?);
    let has = |flag: u32| valid & flag != 0;
    let at = |index: usize| Timestamp {
        secs: seconds[index].cast_signed(),
        // The kernel keeps them below a second; whatever comes, a time stamp does.
        nanos: nanos[index].min(999_999_999),
    };
    let time = |given, now, index| match (has(given), has(now)) {
        (false, _) => None,
        (true, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(at(index))),
    };
    Ok(SetAttr {
        perm: has(fattr::MODE).then_some(mode & 0o7777),
        uid: has(fattr::UID).then_some(uid),
        gid: has(fattr::GID).then_some(gid),
        size: has(fattr::SIZE).then_some(size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, 0),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, 1),
        ctime: has(fattr::CTIME).then(|| at(2)),
    })
}
