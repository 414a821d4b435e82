//! The transport: fuser's callbacks decoded, handed to the [`Service`], and answered.

mod decode;
mod reply;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::attr::FileKind;
use crate::fuse::backing::Backings;
use crate::fuse::options::MountOptions;
use crate::fuse::pace::Pace;
use crate::fuse::service::{NewFile, Service, WriteOrigin};

pub(super) use reply::Lifetimes;

/// One session's side of the protocol.
#[derive(Debug)]
pub(super) struct Adapter {
    service: Arc<Service>,
    options: MountOptions,
    lifetimes: Lifetimes,
    /// Present on mounts that open through the kernel's passthrough.
    backings: Option<Backings>,
    pace: Arc<Pace>,
}

thread_local! {
    /// What a read is collected in, so that no read allocates.
    static CONTENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Adapter {
    /// Makes the adapter of a session; `passthrough` says whether files may be opened on the base.
    pub(super) fn new(
        service: Arc<Service>,
        options: &MountOptions,
        passthrough: bool,
        pace: Arc<Pace>,
    ) -> Self {
        Self {
            service,
            lifetimes: Lifetimes::of(options),
            options: options.clone(),
            backings: passthrough.then(Backings::default),
            pace,
        }
    }

    /// Returns whether the kernel is to open files without asking. It cannot be with passthrough,
    /// where the answer to the open names the backing file.
    fn zero_message_opens(&self) -> bool {
        self.options.zero_message_opens && self.backings.is_none()
    }

    /// Returns the capabilities to ask the kernel for.
    fn capabilities(&self) -> InitFlags {
        let on = |flag: InitFlags, wanted: bool| if wanted { flag } else { InitFlags::empty() };
        let options = &self.options;
        let passthrough = self.backings.is_some();
        // Pages change only by the kernel's own writes and where we say so.
        InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_ASYNC_DIO
            // The mask of the caller counts only where no default access control list does.
            | InitFlags::FUSE_DONT_MASK
            | on(InitFlags::FUSE_NO_OPEN_SUPPORT, self.zero_message_opens())
            | on(InitFlags::FUSE_NO_OPENDIR_SUPPORT, options.zero_message_opens)
            | on(InitFlags::FUSE_HANDLE_KILLPRIV_V2, options.kill_privileges)
            // The kernel does not combine the two.
            | on(InitFlags::FUSE_WRITEBACK_CACHE, options.writeback_cache && !passthrough)
            | on(InitFlags::FUSE_PASSTHROUGH, passthrough)
            | on(
                InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO,
                options.readdirplus,
            )
            | on(InitFlags::FUSE_PARALLEL_DIROPS, options.parallel_directories)
            | on(InitFlags::FUSE_CACHE_SYMLINKS, options.cache_symlinks)
            | on(InitFlags::FUSE_POSIX_ACL, options.access_control_lists)
    }
}

// Each operation answers by itself where it could wait for the disk; `pace` then looks for the next
// request.
impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = self.capabilities();
        if let Err(missing) = config.add_capabilities(wanted) {
            log::info!("this kernel lacks {missing:?}; the mount does without");
            let _ = config.add_capabilities(wanted & !missing);
            if missing.contains(InitFlags::FUSE_PASSTHROUGH) {
                self.backings = None;
            }
        }
        // Each setter answers a value that is too large with the largest one that will do.
        let bytes = self.options.request_bytes_max.max(4096);
        let _ = config
            .set_max_write(bytes)
            .or_else(|most| config.set_max_write(most));
        let ahead = self.options.readahead_bytes.max(4096);
        let _ = config
            .set_max_readahead(ahead)
            .or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(self.options.background_max.max(1));
        if self.backings.is_some() {
            // Deep enough for a base on overlayfs, which is itself one level.
            let _ = config.set_max_stack_depth(2);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let context = decode::context(request);
        let found = self
            .service
            .lookup(context, decode::node(parent), name.as_bytes());
        self.lifetimes.found(found, reply);
        self.pace.answered();
    }

    fn forget(&self, _request: &Request, ino: INodeNo, count: u64) {
        self.service.forget(decode::node(ino), count);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.lifetimes
            .attr(self.service.getattr(decode::node(ino)), reply);
        self.pace.answered();
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = decode::set_attr(mode, uid, gid, size, atime, mtime, ctime);
        let context = decode::context(request);
        self.lifetimes.attr(
            self.service.setattr(context, decode::node(ino), &change),
            reply,
        );
        self.pace.answered();
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.service.readlink(decode::node(ino)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(reply::errno(&error)),
        }
        self.pace.answered();
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        // POSIX: no type bits mean a regular file.
        let kind = FileKind::from_mode(mode).unwrap_or(FileKind::Regular);
        let file = NewFile {
            kind,
            perm: mode & 0o7777,
            umask,
            rdev,
        };
        let context = decode::context(request);
        let made = self
            .service
            .mknod(context, decode::node(parent), name.as_bytes(), file);
        self.lifetimes.entry(made, reply);
        self.pace.answered();
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (context, parent) = (decode::context(request), decode::node(parent));
        let made = self
            .service
            .mkdir(context, parent, name.as_bytes(), mode & 0o7777, umask);
        self.lifetimes.entry(made, reply);
        self.pace.answered();
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply::done(
            self.service.unlink(decode::node(parent), name.as_bytes()),
            reply,
        );
        self.pace.answered();
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply::done(
            self.service.rmdir(decode::node(parent), name.as_bytes()),
            reply,
        );
        self.pace.answered();
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (context, parent) = (decode::context(request), decode::node(parent));
        let target = target.as_os_str().as_bytes();
        self.lifetimes.entry(
            self.service
                .symlink(context, parent, name.as_bytes(), target),
            reply,
        );
        self.pace.answered();
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = decode::rename_mode(flags) else {
            return reply.error(Errno::EINVAL);
        };
        let from = (decode::node(parent), name.as_bytes());
        let to = (decode::node(new_parent), new_name.as_bytes());
        reply::done(
            self.service
                .rename(decode::context(request), from, to, mode),
            reply,
        );
        self.pace.answered();
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (node, parent) = (decode::node(ino), decode::node(new_parent));
        self.lifetimes
            .entry(self.service.link(node, parent, new_name.as_bytes()), reply);
        self.pace.answered();
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        if self.zero_message_opens() && self.options.zero_message_creates {
            // The kernel takes MKNOD from now on.
            return reply.error(Errno::ENOSYS);
        }
        let file = NewFile {
            kind: FileKind::Regular,
            perm: mode & 0o7777,
            umask,
            rdev: 0,
        };
        let context = decode::context(request);
        let made = self
            .service
            .mknod(context, decode::node(parent), name.as_bytes(), file);
        self.lifetimes.created(made, reply);
        self.pace.answered();
    }

    fn open(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.zero_message_opens() {
            return reply.error(Errno::ENOSYS);
        }
        let ordinary = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
        let Some(backings) = &self.backings else {
            return reply.opened(FileHandle(0), ordinary);
        };
        let opened = backings.open(ino.0, || {
            let file = self.service.backing(decode::node(ino))?;
            // A base that the kernel refuses (on a stack of filesystems too deep) is served by us.
            Ok(file.and_then(|file| reply.open_backing(&file).ok()))
        });
        match opened {
            Ok(Some(id)) => reply.opened_passthrough(FileHandle(0), FopenFlags::empty(), &id),
            Ok(None) => reply.opened(FileHandle(0), ordinary),
            Err(error) => reply.error(reply::errno(&error)),
        }
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(backings) = &self.backings {
            backings.release(ino.0);
        }
        reply.ok();
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Nothing is held back here, and the kernel asks no more after this answer.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        CONTENT.with_borrow_mut(|content| {
            content.clear();
            match self.service.read(decode::node(ino), offset, size, content) {
                Ok(()) => reply.data(content),
                Err(error) => reply.error(reply::errno(&error)),
            }
        });
        self.pace.answered();
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // O_APPEND needs nothing: the kernel has put the end of the file into the offset.
        let origin = WriteOrigin {
            cached: write_flags.contains(WriteFlags::FUSE_WRITE_CACHE),
            kill_suid: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        match self.service.write(decode::node(ino), offset, data, origin) {
            // A request is never larger than 1 MiB.
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(error) => reply.error(reply::errno(&error)),
        }
        self.pace.answered();
    }

    fn fsync(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let context = decode::context(request);
        reply::done(
            self.service.fsync(context, decode::node(ino), data_only),
            reply,
        );
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.options.zero_message_opens {
            return reply.error(Errno::ENOSYS);
        }
        let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        reply.opened(FileHandle(0), flags);
    }

    fn fsyncdir(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let context = decode::context(request);
        reply::done(
            self.service.fsync(context, decode::node(ino), data_only),
            reply,
        );
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self
            .service
            .readdir(decode::node(ino), cookie, &mut |node, entry| {
                let kind = reply::file_type(entry.kind);
                !reply.add(
                    INodeNo(node),
                    entry.cookie,
                    kind,
                    OsStr::from_bytes(&entry.name),
                )
            });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(reply::errno(&error)),
        }
        self.pace.answered();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let lifetime = self.lifetimes.kept();
        let listed =
            self.service
                .readdir_plus(decode::node(ino), cookie, &mut |node, entry, attr| {
                    let name = OsStr::from_bytes(&entry.name);
                    let attr = reply::file_attr(node, attr);
                    !reply.add(
                        INodeNo(node),
                        entry.cookie,
                        name,
                        &lifetime,
                        &attr,
                        reply::GENERATION,
                    )
                });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(reply::errno(&error)),
        }
        self.pace.answered();
    }

    fn statfs(&self, _request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.service.statfs(decode::node(ino)) {
            Ok(s) => reply.statfs(
                s.blocks,
                s.blocks_free,
                s.blocks_available,
                s.inodes,
                s.inodes_free,
                s.block_bytes,
                s.name_bytes_max,
                s.block_bytes,
            ),
            Err(error) => reply.error(reply::errno(&error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = decode::xattr_mode(flags) else {
            return reply.error(Errno::EINVAL);
        };
        let (context, node) = (decode::context(request), decode::node(ino));
        reply::done(
            self.service
                .setxattr(context, node, name.as_bytes(), value, mode),
            reply,
        );
        self.pace.answered();
    }

    fn getxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        room: u32,
        reply: ReplyXattr,
    ) {
        reply::xattr(
            self.service.getxattr(decode::node(ino), name.as_bytes()),
            room,
            reply,
        );
        self.pace.answered();
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, room: u32, reply: ReplyXattr) {
        reply::xattr(self.service.listxattr(decode::node(ino)), room, reply);
        self.pace.answered();
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply::done(
            self.service.removexattr(decode::node(ino), name.as_bytes()),
            reply,
        );
        self.pace.answered();
    }

    fn ioctl(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _input: &[u8],
        _output_bytes: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = decode::allocate_mode(mode) else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        reply::done(
            self.service
                .allocate(decode::node(ino), mode, offset, length),
            reply,
        );
        self.pace.answered();
    }

    fn lseek(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // The kernel asks for data and holes only.
        let (Ok(from), Some(to)) = (u64::try_from(offset), decode::seek_to(whence)) else {
            return reply.error(Errno::EINVAL);
        };
        match self.service.seek(decode::node(ino), from, to) {
            Ok(found) => match i64::try_from(found) {
                Ok(found) => reply.offset(found),
                Err(_) => reply.error(Errno::EOVERFLOW),
            },
            Err(error) => reply.error(reply::errno(&error)),
        }
        self.pace.answered();
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        from: INodeNo,
        _from_handle: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _to_handle: FileHandle,
        to_offset: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The answer has 32 bits; whoever wants more asks again.
        let len = len.min(1 << 30);
        let (from, to) = (decode::node(from), decode::node(to));
        match self
            .service
            .copy_range((from, from_offset), (to, to_offset), len)
        {
            Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
            Err(error) => reply.error(reply::errno(&error)),
        }
        self.pace.answered();
    }
}
