//! The host directory that lies under all layers of a store, read-only.
//!
//! Paths are bytes relative to the directory, components joined by `/`, the empty path for the directory
//! itself. No path leads out of it: symbolic links are never followed, `..` is refused, and the
//! directory is held open, so renaming it changes nothing.
//!
//! **What is hidden.** A base may be `/`. Three kinds of things in it appear as empty directories (or, if
//! they are no directories, as empty regular files), because their content is not files on a disk:
//! - mounts of pseudo file systems (`proc`, `sysfs`, `devtmpfs`, cgroups, …) with all that is mounted in them,
//! - mounts of Branchpoint's own views: to ask one from the process that serves it could wait for itself,
//! - the store's directory, which changes with every write to a view.
//!
//! Other mounts below the directory are entered like directories. A directory that is visible at two
//! places through a bind mount has the same device and inode at both.
//!
//! **Drift.** This module always shows the present state. To notice that it is not the state first seen is the
//! business of those who remember that one ([`BaseStat`] has what they need).

mod files;
mod find;

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, readlink, readlinkat};
use nix::sys::stat::Mode;
use nix::sys::uio::pread;
use nix::unistd::{Whence, lseek64};

use self::files::FileCache;
use self::find::{Found, Mounts};
use crate::attr::{FileKind, Timestamp};
use crate::error::{Error, Result};
use crate::sys;

/// What [`Base::read_dir`] tells of an entry: name, kind, inode number in the directory.
pub type BaseEntry = (Vec<u8>, FileKind, u64);

/// The attributes of something in the base, as the host shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseStat {
    /// Device that holds it, in the C library's encoding.
    pub dev: u64,
    /// Inode number on that device.
    pub ino: u64,
    /// Kind and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of hard links.
    pub nlink: u32,
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
    /// Creation; where the file system does not know it, the earlier of `mtime` and `ctime`.
    pub btime: Timestamp,
    /// Whether it is shown as empty (see the module's documentation).
    pub hidden: bool,
}

/// A host directory, held open.
#[derive(Debug)]
pub struct Base {
    dir: PathBuf,
    root: OwnedFd,
    /// The store's path below the directory, if it lies there.
    store_path: Option<Vec<u8>>,
    /// Device and inode of the store's directory, by which it is known under any other path.
    store_id: (u64, u64),
    mounts: Mounts,
    files: FileCache,
}

impl Base {
    /// Opens `dir` as the base of the store in the directory `store`.
    ///
    /// # Errors
    /// [`Error::BaseUnavailable`] if `dir` is missing, not a directory or not accessible;
    /// [`Error::BadPath`] if it lies in the store; [`Error::Io`] if the store's directory is missing.
    pub fn open(dir: &Path, store: &Path) -> Result<Base> {
        let unavailable = |source: io::Error| Error::BaseUnavailable {
            path: dir.to_owned(),
            source,
        };
        let real = fs::canonicalize(dir).map_err(unavailable)?;
        let in_store = |source| Error::io(format!("open the store '{}'", store.display()), source);
        let store = fs::canonicalize(store).map_err(in_store)?;
        if real.starts_with(&store) {
            return Err(Error::BadPath {
                path: dir.to_owned(),
                reason: "it lies in the store itself; a base must be outside, or above it"
                    .to_owned(),
            });
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(&real, flags, Mode::empty()).map_err(|errno| unavailable(errno.into()))?;
        let store_fd = open(&store, flags, Mode::empty()).map_err(|e| in_store(e.into()))?;
        let id = sys::statx(&store_fd, libc::STATX_INO, 0).map_err(|e| in_store(e.into()))?;
        let mounts = Mounts::below(&root).map_err(|errno| unavailable(errno.into()))?;
        let store_path = store.strip_prefix(&real).ok();
        Ok(Base {
            store_path: store_path.map(|path| path.as_os_str().as_bytes().to_vec()),
            store_id: (device(&id), id.stx_ino),
            dir: real,
            root,
            mounts,
            files: FileCache::new(),
        })
    }

    /// Returns the directory's path at the time of opening, without symbolic links.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Checks that the directory is still there.
    ///
    /// # Errors
    /// [`Error::BaseUnavailable`] if it was removed, or its file system is gone.
    pub fn check(&self) -> Result<()> {
        let unavailable = |errno: Errno| Error::BaseUnavailable {
            path: self.dir.clone(),
            source: errno.into(),
        };
        let stat = sys::statx(&self.root, libc::STATX_NLINK, 0).map_err(unavailable)?;
        let removed = match stat.stx_nlink {
            0 => true,
            // Some file systems count no links of directories; the kernel's own path tells.
            1 => readlink(&*self.proc_path(&self.root)?).is_ok_and(|path| {
                path.as_bytes().ends_with(b" (deleted)") && path != self.dir.as_os_str()
            }),
            _ => false,
        };
        if removed {
            Err(unavailable(Errno::ENOENT))
        } else {
            Ok(())
        }
    }

    /// Returns the attributes of `path`, or `None` if there is no such thing.
    ///
    /// # Errors
    /// [`Error::BaseUnavailable`] if the base is gone; [`Error::Io`] for every other failure.
    pub fn stat(&self, path: &[u8]) -> Result<Option<BaseStat>> {
        match self.find(path)? {
            None => Ok(None),
            Some(found) => self.stat_found(&found, path).map(Some),
        }
    }

    /// Returns the attributes of an open file: those of the file it was when it was opened, wherever its
    /// path leads now.
    ///
    /// # Errors
    /// As [`Base::stat`].
    pub fn stat_file(&self, file: impl AsFd) -> Result<BaseStat> {
        let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
        match sys::statx(file.as_fd(), mask, 0) {
            Ok(stat) => Ok(base_stat(&stat, false)),
            Err(errno) => Err(self.failed_on(&file, "stat", errno)),
        }
    }

    /// Returns the entries of the directory `path`, without `.` and `..`, in no particular order.
    /// The kind and inode number of a mount point are those of the directory below the mount.
    ///
    /// # Errors
    /// As [`Base::stat`], and [`Error::Io`] if there is no such directory.
    pub fn read_dir(&self, path: &[u8]) -> Result<Vec<BaseEntry>> {
        let found = self.require(path, "list")?;
        let stat = self.stat_found(&found, path)?;
        let failed = |errno| self.failed("list", path, errno);
        if FileKind::from_mode(stat.mode) != Some(FileKind::Directory) {
            return Err(failed(Errno::ENOTDIR));
        }
        if stat.hidden {
            return Ok(Vec::new());
        }
        let fd = self.reopen(&found.fd, OFlag::O_DIRECTORY).map_err(failed)?;
        let mut dir = Dir::from_fd(fd).map_err(failed)?;
        let mut entries = Vec::new();
        for entry in dir.iter() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                Some(kind) => kind_of(kind),
                None => match self.kind_by_stat(path, name)? {
                    Some(kind) => kind,
                    // It was removed after the directory had been read.
                    None => continue,
                },
            };
            entries.push((name.to_vec(), kind, entry.ino()));
        }
        Ok(entries)
    }

    /// Opens the regular file `path` for reading. Its access time does not change, if the owner or
    /// root opens it.
    ///
    /// # Errors
    /// As [`Base::stat`], and [`Error::Io`] if there is no such regular file.
    pub fn open_file(&self, path: &[u8]) -> Result<OwnedFd> {
        let found = self.require(path, "open")?;
        let failed = |errno| self.failed("open", path, errno);
        let stat = self.stat_found(&found, path)?;
        if FileKind::from_mode(stat.mode) != Some(FileKind::Regular) {
            // Opening a device or a pipe can do things, or wait.
            return Err(failed(Errno::EINVAL));
        }
        if stat.hidden {
            let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
            return open("/dev/null", flags, Mode::empty()).map_err(failed);
        }
        self.reopen(&found.fd, OFlag::empty()).map_err(failed)
    }

    /// Returns the regular file `path`, open for reading, out of a cache of the last ones asked for. It
    /// may be one that the path no longer leads to: compare [`Base::stat_file`] with what was first seen, and
    /// [`Base::forget_file`] if it is not that.
    ///
    /// # Errors
    /// As [`Base::open_file`].
    pub fn file(&self, path: &[u8]) -> Result<Arc<OwnedFd>> {
        if let Some(file) = self.files.get(path) {
            return Ok(file);
        }
        let file = Arc::new(self.open_file(path)?);
        self.files.put(path, &file);
        Ok(file)
    }

    /// Drops `path` from the cache of open files.
    pub fn forget_file(&self, path: &[u8]) {
        self.files.remove(path);
    }

    /// Reads from `file` at `offset` until `buffer` is full or the file ends; returns how much it read.
    ///
    /// # Errors
    /// As [`Base::stat`].
    pub fn read_at(&self, file: impl AsFd, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let at = i64::try_from(offset).ok().zip(i64::try_from(done).ok());
            // No file is longer than an i64 can say.
            let Some(at) = at.and_then(|(offset, done)| offset.checked_add(done)) else {
                break;
            };
            match pread(&file, &mut buffer[done..], at) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(self.failed_on(&file, "read", errno)),
            }
        }
        Ok(done)
    }

    /// Returns where in `file` the next data at or after `offset` is, or `None` if only a hole follows.
    ///
    /// # Errors
    /// As [`Base::stat`].
    pub fn seek_data(&self, file: impl AsFd, offset: u64) -> Result<Option<u64>> {
        self.seek(file, offset, Whence::SeekData)
    }

    /// Returns where in `file` the next hole at or after `offset` is (its end is one), or `None` if
    /// `offset` lies beyond the end.
    ///
    /// # Errors
    /// As [`Base::stat`].
    pub fn seek_hole(&self, file: impl AsFd, offset: u64) -> Result<Option<u64>> {
        self.seek(file, offset, Whence::SeekHole)
    }

    /// Returns what the symbolic link `path` says.
    ///
    /// # Errors
    /// As [`Base::stat`], and [`Error::Io`] if there is no such link.
    pub fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        let found = self.require(path, "read the link")?;
        match readlinkat(&found.fd, c"") {
            Ok(target) => Ok(target.into_vec()),
            // The kernel's word for "not a link" when it is asked through a descriptor.
            Err(Errno::ENOENT) => Err(self.failed("read the link", path, Errno::EINVAL)),
            Err(errno) => Err(self.failed("read the link", path, errno)),
        }
    }

    /// Returns the names of the extended attributes of `path` itself (never of what a link leads to).
    /// Empty where the file system has none.
    ///
    /// # Errors
    /// As [`Base::stat`], and [`Error::Io`] if there is no such thing.
    pub fn list_xattrs(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let found = self.require(path, "list the attributes of")?;
        if self.is_hidden(&found, path)? {
            return Ok(Vec::new());
        }
        match sys::list_xattrs(&self.proc_path(&found.fd)?) {
            Ok(names) => Ok(names
                .split(|byte| *byte == 0)
                .filter(|name| !name.is_empty())
                .map(<[u8]>::to_vec)
                .collect()),
            Err(Errno::EOPNOTSUPP) => Ok(Vec::new()),
            Err(errno) => Err(self.failed("list the attributes of", path, errno)),
        }
    }

    /// Returns the extended attribute `name` of `path` itself, or `None` if it has none of that name.
    ///
    /// # Errors
    /// As [`Base::list_xattrs`].
    pub fn get_xattr(&self, path: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>> {
        const STEP: &str = "read an attribute of";
        let found = self.require(path, STEP)?;
        if self.is_hidden(&found, path)? {
            return Ok(None);
        }
        let c_name = CString::new(name).map_err(|_| self.failed(STEP, path, Errno::EINVAL))?;
        match sys::get_xattr(&self.proc_path(&found.fd)?, &c_name) {
            Ok(value) => Ok(Some(value)),
            Err(Errno::ENODATA | Errno::EOPNOTSUPP) => Ok(None),
            Err(errno) => Err(self.failed(STEP, path, errno)),
        }
    }

    fn require(&self, path: &[u8], step: &str) -> Result<Found> {
        self.find(path)?
            .ok_or_else(|| self.failed(step, path, Errno::ENOENT))
    }

    fn stat_found(&self, found: &Found, path: &[u8]) -> Result<BaseStat> {
        // A hidden mount may be served by this very process: take what the kernel has.
        let flags = if found.hidden {
            libc::AT_STATX_DONT_SYNC
        } else {
            0
        };
        let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
        let stat = sys::statx(&found.fd, mask, flags).map_err(|e| self.failed("stat", path, e))?;
        let is_dir = FileKind::from_mode(stat.stx_mode.into()) == Some(FileKind::Directory);
        let is_store = is_dir && (device(&stat), stat.stx_ino) == self.store_id;
        Ok(base_stat(&stat, found.hidden || is_store))
    }

    fn is_hidden(&self, found: &Found, path: &[u8]) -> Result<bool> {
        Ok(found.hidden || self.stat_found(found, path)?.hidden)
    }

    fn kind_by_stat(&self, dir: &[u8], name: &[u8]) -> Result<Option<FileKind>> {
        let mut path = dir.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Ok(self
            .stat(&path)?
            .and_then(|stat| FileKind::from_mode(stat.mode)))
    }

    fn seek(&self, file: impl AsFd, offset: u64, whence: Whence) -> Result<Option<u64>> {
        let Ok(from) = i64::try_from(offset) else {
            return Ok(None);
        };
        match lseek64(&file, from, whence) {
            Ok(at) => Ok(Some(at.cast_unsigned())),
            Err(Errno::ENXIO) => Ok(None),
            Err(errno) => Err(self.failed_on(&file, "look for holes in", errno)),
        }
    }

    /// Opens for reading what was found. Through the descriptor, so that it is the same thing and its kind
    /// is known before anything is opened.
    fn reopen(&self, fd: &OwnedFd, flags: OFlag) -> Result<OwnedFd, Errno> {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = flags | OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        match open(path.as_str(), flags | OFlag::O_NOATIME, Mode::empty()) {
            // Only its owner may leave the access time alone.
            Err(Errno::EPERM) => open(path.as_str(), flags, Mode::empty()),
            result => result,
        }
    }

    /// The path by which calls that know no `O_PATH` descriptors reach what one refers to, be it a link.
    fn proc_path(&self, fd: &OwnedFd) -> Result<CString> {
        CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd()))
            .map_err(|_| self.failed("name", b"", Errno::EINVAL))
    }

    /// Returns the error for a system call that failed on `path`.
    fn failed(&self, step: &str, path: &[u8], errno: Errno) -> Error {
        if let Some(gone) = self.gone(errno) {
            return gone;
        }
        let path = self.dir.join(Path::new(std::ffi::OsStr::from_bytes(path)));
        Error::io(format!("{step} '{}' in the base", path.display()), errno)
    }

    /// The same for an open file, whose path only the kernel knows.
    fn failed_on(&self, file: &impl AsFd, step: &str, errno: Errno) -> Error {
        if let Some(gone) = self.gone(errno) {
            return gone;
        }
        let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let path = readlink(link.as_str()).unwrap_or_default();
        Error::io(
            format!("{step} '{}' in the base", Path::new(&path).display()),
            errno,
        )
    }

    /// Returns the error for a base that is gone, if that is what `errno` comes from.
    fn gone(&self, errno: Errno) -> Option<Error> {
        let suspicious = matches!(
            errno,
            Errno::ENOENT | Errno::ESTALE | Errno::ENOTCONN | Errno::ENODEV | Errno::EIO
        );
        if suspicious { self.check().err() } else { None }
    }
}

fn base_stat(stat: &libc::statx, hidden: bool) -> BaseStat {
    let (mtime, ctime) = (timestamp(stat.stx_mtime), timestamp(stat.stx_ctime));
    let knows_btime = stat.stx_mask & libc::STATX_BTIME != 0;
    let mut mode = u32::from(stat.stx_mode);
    let is_dir = FileKind::from_mode(mode) == Some(FileKind::Directory);
    if hidden && !is_dir {
        mode = (mode & !libc::S_IFMT) | libc::S_IFREG;
    }
    BaseStat {
        dev: device(stat),
        ino: stat.stx_ino,
        mode,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: match (hidden, is_dir) {
            (false, _) => stat.stx_nlink,
            (true, true) => 2,
            (true, false) => 1,
        },
        rdev: if hidden {
            0
        } else {
            kernel_device(stat.stx_rdev_major, stat.stx_rdev_minor)
        },
        size: if hidden { 0 } else { stat.stx_size },
        blocks: if hidden { 0 } else { stat.stx_blocks },
        atime: timestamp(stat.stx_atime),
        mtime,
        ctime,
        btime: if knows_btime {
            timestamp(stat.stx_btime)
        } else {
            mtime.min(ctime)
        },
        hidden,
    }
}

fn device(stat: &libc::statx) -> u64 {
    libc::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

/// The encoding in which the kernel, and FUSE, hand device numbers around: 12 bits of major, 20 of minor.
fn kernel_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

fn timestamp(time: libc::statx_timestamp) -> Timestamp {
    Timestamp {
        secs: time.tv_sec,
        nanos: time.tv_nsec,
    }
}

fn kind_of(kind: Type) -> FileKind {
    match kind {
        Type::Fifo => FileKind::Fifo,
        Type::CharacterDevice => FileKind::CharDevice,
        Type::Directory => FileKind::Directory,
        Type::BlockDevice => FileKind::BlockDevice,
        Type::File => FileKind::Regular,
        Type::Symlink => FileKind::Symlink,
        Type::Socket => FileKind::Socket,
    }
}

#[cfg(test)]
mod tests;
