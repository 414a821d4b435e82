//! The system calls around descriptors that no library at hand wraps.
#![allow(unsafe_code)]

mod socket;

use std::cmp::Ordering;
use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub(super) use socket::*;

/// Types that the kernel reads and writes as they lie in memory.
///
/// # Safety
/// Every bit pattern is a valid value, and there is no pointer inside that the kernel would follow.
pub(super) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($kind:ty),* $(,)?) => { $(
        // SAFETY: an integer, or a structure of integers as the kernel defines it.
        unsafe impl Plain for $kind {}
    )* };
}

plain!(
    u8, i32, u32, i64, u64, [i32; 2], [u32; 2], [u32; 5], [i64; 2]
);
plain!(libc::winsize, libc::termios2, libc::flock, libc::ucred);

pub(super) const KCMP_FILE: i32 = 0;
pub(super) const KCMP_FILES: i32 = 2;
const KCMP_EPOLL_TFD: i32 = 7;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let raw = RawFd::try_from(check(result)?).map_err(io::Error::other)?;
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// A duplicate of the descriptor `fd` of the process behind `pidfd`, close-on-exec here.
pub(super) fn duplicate(pidfd: BorrowedFd<'_>, fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: three plain numbers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) })
}

/// A descriptor for a process.
pub(super) fn pidfd_open(pid: i32, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: two plain numbers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) })
}

/// Orders two kernel objects of two processes; an order that lasts until the next boot.
pub(super) fn kcmp(
    kind: i32,
    (pid, index): (i32, RawFd),
    (other_pid, other_index): (i32, RawFd),
) -> io::Result<Ordering> {
    // SAFETY: plain numbers.
    let order =
        check(unsafe { libc::syscall(libc::SYS_kcmp, pid, other_pid, kind, index, other_index) })?;
    Ok(match order {
        0 => Ordering::Equal,
        1 => Ordering::Less,
        _ => Ordering::Greater,
    })
}

/// Whether `file` is what the epoll set watches as its `nth` member under the number `fd`.
pub(super) fn is_epoll_target(
    file: BorrowedFd<'_>,
    epoll: BorrowedFd<'_>,
    fd: u32,
    nth: u32,
) -> io::Result<bool> {
    let me = std::process::id();
    let slot = [epoll.as_raw_fd().cast_unsigned(), fd, nth];
    let raw = file.as_raw_fd();
    // SAFETY: `slot` has the layout of `struct kcmp_epoll_slot` and outlives the call.
    let order = check(unsafe {
        libc::syscall(libc::SYS_kcmp, me, me, KCMP_EPOLL_TFD, raw, slot.as_ptr())
    })?;
    Ok(order == 0)
}

/// An `ioctl` that fills a structure.
pub(super) fn ioctl_get<T: Plain>(file: impl AsFd, request: libc::Ioctl) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let raw = file.as_fd().as_raw_fd();
    // SAFETY: each request used in this module writes at most a `T`.
    check(unsafe { libc::ioctl(raw, request, value.as_mut_ptr()) }.into())?;
    // SAFETY: zeroed or written by the kernel, and every bit pattern is valid for `Plain`.
    Ok(unsafe { value.assume_init() })
}

/// An `ioctl` that reads a structure.
pub(super) fn ioctl_set<T: Plain>(
    file: impl AsFd,
    request: libc::Ioctl,
    value: &T,
) -> io::Result<()> {
    let raw = file.as_fd().as_raw_fd();
    // SAFETY: each request used in this module reads at most a `T`.
    check(unsafe { libc::ioctl(raw, request, std::ptr::from_ref(value)) }.into()).map(drop)
}

/// An `ioctl` that takes a number.
pub(super) fn ioctl_number(
    file: impl AsFd,
    request: libc::Ioctl,
    value: i32,
) -> io::Result<libc::c_long> {
    // SAFETY: each request used in this module takes a number, no pointer.
    check(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), request, value) }.into())
}

/// An `ioctl` that returns a new descriptor.
pub(super) fn ioctl_file(file: impl AsFd, request: libc::Ioctl, value: i32) -> io::Result<OwnedFd> {
    owned(ioctl_number(file, request, value)?)
}

/// `fcntl` with a number.
pub(super) fn fcntl(file: impl AsFd, command: i32, value: i32) -> io::Result<i32> {
    // SAFETY: each command used in this module takes a number or nothing.
    let done = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, value) };
    check(done.into()).map(|_| done)
}

/// `fcntl` with a structure that is read and written.
pub(super) fn fcntl_with<T: Plain>(file: impl AsFd, command: i32, value: &mut T) -> io::Result<()> {
    let raw = file.as_fd().as_raw_fd();
    // SAFETY: each command used in this module reads and writes at most a `T`.
    check(unsafe { libc::fcntl(raw, command, std::ptr::from_mut(value)) }.into()).map(drop)
}

/// Opens a path beneath `root`, as a process whose root directory that is would.
pub(super) fn open_beneath(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: i32,
    mode: u32,
) -> io::Result<OwnedFd> {
    const RESOLVE_IN_ROOT: u64 = 0x10;
    let path = CString::new(path)?;
    let how = [
        u64::from(flags.cast_unsigned()),
        u64::from(mode),
        RESOLVE_IN_ROOT,
    ];
    let (raw, size) = (root.as_raw_fd(), size_of_val(&how));
    // SAFETY: `path` is a C string and `how` has the layout and size of `struct open_how`.
    owned(unsafe { libc::syscall(libc::SYS_openat2, raw, path.as_ptr(), how.as_ptr(), size) })
}

/// Opens a file handle on the filesystem of `mount`.
pub(super) fn open_by_handle(
    mount: BorrowedFd<'_>,
    kind: i32,
    bytes: &[u8],
    flags: i32,
) -> io::Result<OwnedFd> {
    let size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut handle = Vec::with_capacity(8 + bytes.len());
    handle.extend_from_slice(&size.to_ne_bytes());
    handle.extend_from_slice(&kind.to_ne_bytes());
    handle.extend_from_slice(bytes);
    let raw = mount.as_raw_fd();
    // SAFETY: `handle` is a `struct file_handle` with as many bytes as it says.
    owned(unsafe { libc::syscall(libc::SYS_open_by_handle_at, raw, handle.as_ptr(), flags) })
}

/// A timerfd that is not armed.
pub(super) fn timerfd(clock: i32, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: two plain numbers.
    owned(unsafe { libc::timerfd_create(clock, flags) }.into())
}

/// Arms a timerfd.
pub(super) fn arm(timer: impl AsFd, flags: i32, value: &libc::itimerspec) -> io::Result<()> {
    let raw = timer.as_fd().as_raw_fd();
    // SAFETY: `value` outlives the call, and nothing is written back.
    let done = unsafe { libc::timerfd_settime(raw, flags, value, std::ptr::null_mut()) };
    check(done.into()).map(drop)
}

/// The time of a clock, seconds and nanoseconds.
pub(super) fn clock(clock: i32) -> io::Result<libc::timespec> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` has room for the result.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) }.into())?;
    Ok(time)
}

/// A signalfd.
pub(super) fn signalfd(mask: u64, flags: i32) -> io::Result<OwnedFd> {
    let (mask, size) = ([mask], size_of::<u64>());
    // SAFETY: `mask` has the size that is given.
    owned(unsafe { libc::syscall(libc::SYS_signalfd4, -1, mask.as_ptr(), size, flags) })
}

/// An eventfd.
pub(super) fn eventfd(flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: two plain numbers.
    owned(unsafe { libc::eventfd(0, flags) }.into())
}

/// An inotify instance.
pub(super) fn inotify(flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: one plain number.
    owned(unsafe { libc::inotify_init1(flags) }.into())
}

/// Adds a watch; its descriptor.
pub(super) fn inotify_add(inotify: impl AsFd, path: &str, mask: u32) -> io::Result<i32> {
    let path = CString::new(path)?;
    let raw = inotify.as_fd().as_raw_fd();
    // SAFETY: `path` is a C string.
    let wd = unsafe { libc::inotify_add_watch(raw, path.as_ptr(), mask) };
    check(wd.into()).map(|_| wd)
}

/// An empty epoll set.
pub(super) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: one plain number.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into())
}

/// Adds `fd`, a number of the calling thread's table, to a set.
pub(super) fn epoll_add(epoll: RawFd, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: `event` outlives the call; bad numbers are answered by an error.
    let done = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    check(done.into()).map(drop)
}

/// Takes what is ready out of a set, without waiting; the `data` of each.
pub(super) fn epoll_ready(epoll: RawFd) -> io::Result<Vec<u64>> {
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    // SAFETY: `events` has room for as many as are asked for.
    let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 64, 0) };
    let count = usize::try_from(check(count.into())?).map_err(io::Error::other)?;
    Ok(events.iter().take(count).map(|event| event.u64).collect())
}

/// Puts `file` under a certain number of the calling thread's table.
pub(super) fn place_at(file: RawFd, number: RawFd) -> io::Result<()> {
    if file == number {
        return Ok(());
    }
    // SAFETY: only called by a thread whose table is its own copy (`unshare(CLONE_FILES)`), in which
    // no Rust value owns `number`.
    check(unsafe { libc::dup3(file, number, libc::O_CLOEXEC) }.into()).map(drop)
}

/// Closes all numbers of the calling thread's own table from `first` to `last`.
pub(super) fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: only called by a thread whose table is its own copy, in which no Rust value owns one
    // of these numbers.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// A memory file.
pub(super) fn memfd(name: &[u8], flags: u32) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    // SAFETY: `name` is a C string.
    owned(unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) })
}

/// A descriptor for a process that has ended and been waited for.
pub(super) fn dead_process() -> io::Result<OwnedFd> {
    let mut pidfd: RawFd = -1;
    let flags = libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: a fork that shares nothing; the child does nothing but end. `pidfd` has room for the
    // result, which the kernel writes in the parent.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) })?;
    if pid == 0 {
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: the call succeeded, so this is new and nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(pidfd) };
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: a child of our own, whose status is not wanted.
    check(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }.into())?;
    Ok(file)
}

/// Changes a member of a set.
pub(super) fn epoll_modify(epoll: RawFd, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: `event` outlives the call; bad numbers are answered by an error.
    let done = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, fd, &raw mut event) };
    check(done.into()).map(drop)
}

/// A duplicate at the lowest free number from `floor` on, as a bare number: for a thread whose table
/// is its own and ends with it.
pub(super) fn duplicate_above(fd: RawFd, floor: RawFd) -> io::Result<RawFd> {
    // SAFETY: plain numbers; a bad descriptor is answered by an error.
    let raw = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, floor) };
    check(raw.into()).map(|_| raw)
}

/// `flock`.
pub(super) fn flock(file: impl AsFd, how: i32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::flock(file.as_fd().as_raw_fd(), how) }.into()).map(drop)
}
