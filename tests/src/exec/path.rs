//! Carries operations out on a directory of the running system.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use branchpoint_fs::attr::{AllocateMode, FileKind, RenameMode, SeekTo, SetTime};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, FallocateFlags, RenameFlags};
use nix::sys::stat::{Mode, SFlag, UtimensatFlags};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, Whence, linkat};

use crate::act::{Act, Made, Outcome, pattern};
use crate::model::{NodeId, Tree};
use crate::sys;

/// A directory on which operations are carried out, with what they hold open in it.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    open: BTreeMap<NodeId, (File, u64)>,
}

impl Directory {
    /// Returns an executor for what lies below `root`.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            open: BTreeMap::new(),
        }
    }

    /// Returns a path to `node`: through a descriptor if it has no name.
    pub fn path(&self, tree: &Tree, node: NodeId) -> PathBuf {
        match tree.path(node) {
            Some(path) => {
                let below = path.strip_prefix(b"/").unwrap_or(&path);
                self.root.join(OsStr::from_bytes(below))
            }
            None => format!("/proc/self/fd/{}", self.open[&node].0.as_raw_fd()).into(),
        }
    }

    /// Carries `act` out. `tree` is the model before the operation; what it makes is called `new`.
    pub fn apply(&mut self, tree: &Tree, act: &Act, new: NodeId) -> Result<Outcome, Errno> {
        let at = |dir: &NodeId, name: &[u8]| self.path(tree, *dir).join(OsStr::from_bytes(name));
        match act {
            Act::Lookup { dir, name } => {
                let meta = fs::symlink_metadata(at(dir, name)).map_err(errno)?;
                let mode = std::os::unix::fs::MetadataExt::mode(&meta);
                let kind = FileKind::from_mode(mode).ok_or(Errno::EINVAL)?;
                let node = tree.entry(*dir, name)?.ok_or(Errno::ENOENT)?;
                Ok(Outcome::Found { node, kind })
            }
            Act::Make {
                dir,
                name,
                what,
                perm,
                umask,
                ..
            } => {
                make(&at(dir, name), what, perm & !umask)?;
                Ok(Outcome::Made(new))
            }
            Act::Link { node, dir, name } => {
                let flags = AtFlags::empty();
                linkat(
                    AT_FDCWD,
                    &self.path(tree, *node),
                    AT_FDCWD,
                    &at(dir, name),
                    flags,
                )?;
                Ok(Outcome::Done)
            }
            Act::Unlink { dir, name } => fs::remove_file(at(dir, name)).map(done).map_err(errno),
            Act::Rmdir { dir, name } => fs::remove_dir(at(dir, name)).map(done).map_err(errno),
            Act::Rename {
                dir,
                name,
                to_dir,
                to_name,
                mode,
            } => {
                let (from, to) = (at(dir, name), at(to_dir, to_name));
                nix::fcntl::renameat2(AT_FDCWD, &from, AT_FDCWD, &to, rename_flags(*mode))?;
                let same = tree.entry(*dir, name) == tree.entry(*to_dir, to_name);
                Ok(match mode {
                    RenameMode::Whiteout if !same => Outcome::Made(new),
                    _ => Outcome::Done,
                })
            }
            Act::List { dir } => {
                let mut names = BTreeSet::new();
                for entry in nix::dir::Dir::open(
                    &self.path(tree, *dir),
                    nix::fcntl::OFlag::O_RDONLY,
                    Mode::empty(),
                )?
                .iter()
                {
                    names.insert(entry?.file_name().to_bytes().to_vec());
                }
                Ok(Outcome::Names(names))
            }
            Act::Readlink { node } => {
                let target = fs::read_link(self.path(tree, *node)).map_err(errno)?;
                Ok(Outcome::Bytes(target.as_os_str().as_bytes().to_vec()))
            }
            Act::Pin { node } => {
                let path = self.path(tree, *node);
                match self.open.get_mut(node) {
                    Some((_, count)) => *count += 1,
                    None => {
                        let file = OpenOptions::new().read(true).write(true).open(path);
                        self.open.insert(*node, (file.map_err(errno)?, 1));
                    }
                }
                Ok(Outcome::Done)
            }
            Act::Unpin { node } => {
                let (_, count) = self.open.get_mut(node).expect("open");
                *count -= 1;
                if *count == 0 {
                    self.open.remove(node);
                }
                Ok(Outcome::Done)
            }
            _ => apply_to_file(act, &|node| self.path(tree, *node)),
        }
    }
}

fn apply_to_file(act: &Act, path: &dyn Fn(&NodeId) -> PathBuf) -> Result<Outcome, Errno> {
    let open = |node| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path(node))
            .map_err(errno)
    };
    match act {
        Act::Read { node, offset, len } => {
            let file = File::open(path(node)).map_err(errno)?;
            let mut bytes = vec![0; size(*len)];
            let mut done = 0;
            loop {
                let at = offset + u64::try_from(done).expect("small");
                match file.read_at(&mut bytes[done..], at).map_err(errno)? {
                    0 => break,
                    count => done += count,
                }
            }
            bytes.truncate(done);
            Ok(Outcome::Bytes(bytes))
        }
        Act::Write {
            node,
            offset,
            len,
            seed,
            ..
        } => open(node)?
            .write_all_at(&pattern(*seed, size(*len)), *offset)
            .map(done)
            .map_err(errno),
        Act::Append { node, len, seed } => {
            let mut file = OpenOptions::new()
                .append(true)
                .open(path(node))
                .map_err(errno)?;
            file.write_all(&pattern(*seed, size(*len)))
                .map(done)
                .map_err(errno)
        }
        Act::Truncate { node, size, .. } => open(node)?.set_len(*size).map(done).map_err(errno),
        Act::Allocate {
            node,
            mode,
            offset,
            len,
        } => {
            let (offset, len) = (signed(*offset), signed(*len));
            nix::fcntl::fallocate(open(node)?, allocate_flags(*mode), offset, len).map(done)
        }
        Act::Copy {
            from,
            from_offset,
            to,
            to_offset,
            len,
        } => {
            let (from, to) = (open(from)?, open(to)?);
            copy(&from, *from_offset, &to, *to_offset, *len).map(Outcome::Count)
        }
        Act::Seek { node, offset, to } => {
            let whence = match to {
                SeekTo::Data => Whence::SeekData,
                SeekTo::Hole => Whence::SeekHole,
            };
            let at = nix::unistd::lseek(open(node)?, signed(*offset), whence)?;
            Ok(Outcome::Offset(u64::try_from(at).expect("not negative")))
        }
        Act::Chmod { node, perm } => {
            fs::set_permissions(path(node), fs::Permissions::from_mode(*perm))
                .map(done)
                .map_err(errno)
        }
        Act::Chown { node, uid, gid } => {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            let flags = match follow(&path(node)) {
                true => AtFlags::empty(),
                false => AtFlags::AT_SYMLINK_NOFOLLOW,
            };
            nix::unistd::fchownat(AT_FDCWD, &path(node), uid, gid, flags).map(done)
        }
        Act::SetTimes { node, atime, mtime } => {
            let flags = match follow(&path(node)) {
                true => UtimensatFlags::FollowSymlink,
                false => UtimensatFlags::NoFollowSymlink,
            };
            let (atime, mtime) = (time(*atime), time(*mtime));
            nix::sys::stat::utimensat(AT_FDCWD, &path(node), &atime, &mtime, flags).map(done)
        }
        _ => apply_xattr(act, path),
    }
}

fn apply_xattr(act: &Act, path: &dyn Fn(&NodeId) -> PathBuf) -> Result<Outcome, Errno> {
    match act {
        Act::SetXattr {
            node,
            name,
            value,
            mode,
        } => sys::set_xattr(&path(node), name, value, *mode).map(done),
        Act::GetXattr { node, name } => sys::get_xattr(&path(node), name).map(Outcome::Bytes),
        Act::ListXattrs { node } => {
            let names = sys::list_xattrs(&path(node))?;
            Ok(Outcome::Names(
                names.into_iter().filter(|name| ours(name)).collect(),
            ))
        }
        Act::RemoveXattr { node, name } => sys::remove_xattr(&path(node), name).map(done),
        _ => unreachable!("not an operation on a file: {act:?}"),
    }
}

/// Returns whether an attribute is one that operations set, and not one of the system's.
pub fn ours(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"trusted.")
}

fn follow(path: &Path) -> bool {
    path.starts_with("/proc")
}

fn make(path: &Path, what: &Made, perm: u32) -> Result<(), Errno> {
    let set = |perm| fs::set_permissions(path, fs::Permissions::from_mode(perm)).map_err(errno);
    match what {
        Made::Regular => {
            let mut options = OpenOptions::new();
            options
                .write(true)
                .create_new(true)
                .mode(perm)
                .open(path)
                .map(drop)
                .map_err(errno)
        }
        Made::Directory => fs::DirBuilder::new().mode(perm).create(path).map_err(errno),
        Made::Symlink(target) => symlink(OsStr::from_bytes(target), path).map_err(errno),
        Made::Special { kind, rdev } => {
            let kind = SFlag::from_bits_truncate(kind.mode_bits());
            nix::sys::stat::mknod(path, kind, Mode::from_bits_truncate(perm), u64::from(*rdev))?;
            set(perm)
        }
    }
}

fn copy(from: &File, mut at: u64, to: &File, mut to_at: u64, len: u64) -> Result<u64, Errno> {
    // Within one file the copy may move the end: what counts is where it was at the beginning.
    let size_before = from.metadata().map_err(errno)?.len();
    let len = len.min(size_before.saturating_sub(at));
    let mut total = 0;
    while total < len {
        let (read_at, write_at) = (signed(at), signed(to_at));
        let want = size(len - total);
        let count = sys::copy_file_range(from.as_fd(), read_at, to.as_fd(), write_at, want)?;
        if count == 0 {
            break;
        }
        let count = u64::try_from(count).expect("small");
        (total, at, to_at) = (total + count, at + count, to_at + count);
    }
    Ok(total)
}

fn rename_flags(mode: RenameMode) -> RenameFlags {
    match mode {
        RenameMode::Replace => RenameFlags::empty(),
        RenameMode::NoReplace => RenameFlags::RENAME_NOREPLACE,
        RenameMode::Exchange => RenameFlags::RENAME_EXCHANGE,
        RenameMode::Whiteout => RenameFlags::RENAME_WHITEOUT,
    }
}

fn allocate_flags(mode: AllocateMode) -> FallocateFlags {
    let keep = |keep: bool| {
        if keep {
            FallocateFlags::FALLOC_FL_KEEP_SIZE
        } else {
            FallocateFlags::empty()
        }
    };
    match mode {
        AllocateMode::Reserve { keep_size } => keep(keep_size),
        AllocateMode::PunchHole => FallocateFlags::FALLOC_FL_PUNCH_HOLE | keep(true),
        AllocateMode::ZeroRange { keep_size } => {
            FallocateFlags::FALLOC_FL_ZERO_RANGE | keep(keep_size)
        }
    }
}

fn time(time: Option<SetTime>) -> TimeSpec {
    match time {
        None => TimeSpec::UTIME_OMIT,
        Some(SetTime::Now) => TimeSpec::UTIME_NOW,
        Some(SetTime::At(at)) => TimeSpec::new(at.secs, i64::from(at.nanos)),
    }
}

fn done<T>(_: T) -> Outcome {
    Outcome::Done
}

fn size(len: u64) -> usize {
    usize::try_from(len).expect("fits in memory")
}

fn signed(offset: u64) -> i64 {
    i64::try_from(offset).expect("a small offset")
}

/// Returns the errno of a failed call.
pub fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
