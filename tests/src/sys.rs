//! System calls for which nix has no safe function, or which the tests need in their raw form.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use branchpoint_fs::attr::XattrMode;
use nix::errno::Errno;

fn c_string(bytes: &[u8]) -> Result<CString, Errno> {
    CString::new(bytes).map_err(|_| Errno::EINVAL)
}

fn path_of(path: &Path) -> Result<CString, Errno> {
    c_string(path.as_os_str().as_bytes())
}

/// Returns whether the path leads through a descriptor: to follow such a link is its purpose.
fn magic(path: &CString) -> bool {
    path.to_bytes().starts_with(b"/proc/self/fd/")
}

/// Sets an extended attribute. Follows symbolic links in `/proc` only.
pub fn set_xattr(path: &Path, name: &[u8], value: &[u8], mode: XattrMode) -> Result<(), Errno> {
    let (path, name) = (path_of(path)?, c_string(name)?);
    let flags = match mode {
        XattrMode::Either => 0,
        XattrMode::Create => libc::XATTR_CREATE,
        XattrMode::Replace => libc::XATTR_REPLACE,
    };
    let set = if magic(&path) {
        libc::setxattr
    } else {
        libc::lsetxattr
    };
    // SAFETY: both strings end with NUL, and the value's pointer and length belong together.
    let result = unsafe {
        set(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            flags,
        )
    };
    Errno::result(result).map(drop)
}

/// Returns an extended attribute. Follows symbolic links in `/proc` only.
pub fn get_xattr(path: &Path, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let (path, name) = (path_of(path)?, c_string(name)?);
    let mut value = vec![0_u8; 70_000];
    let get = if magic(&path) {
        libc::getxattr
    } else {
        libc::lgetxattr
    };
    // SAFETY: both strings end with NUL, and the buffer has the length given.
    let length = unsafe {
        get(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    let length = Errno::result(length)?;
    value.truncate(usize::try_from(length).expect("not negative"));
    Ok(value)
}

/// Returns the names of the extended attributes. Follows symbolic links in `/proc` only.
pub fn list_xattrs(path: &Path) -> Result<Vec<Vec<u8>>, Errno> {
    let path = path_of(path)?;
    let mut names = vec![0_u8; 70_000];
    let list = if magic(&path) {
        libc::listxattr
    } else {
        libc::llistxattr
    };
    // SAFETY: the path ends with NUL, and the buffer has the length given.
    let length = unsafe { list(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    let length = usize::try_from(Errno::result(length)?).expect("not negative");
    let names = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// Removes an extended attribute. Follows symbolic links in `/proc` only.
pub fn remove_xattr(path: &Path, name: &[u8]) -> Result<(), Errno> {
    let (path, name) = (path_of(path)?, c_string(name)?);
    let remove = if magic(&path) {
        libc::removexattr
    } else {
        libc::lremovexattr
    };
    // SAFETY: both strings end with NUL.
    let result = unsafe { remove(path.as_ptr(), name.as_ptr()) };
    Errno::result(result).map(drop)
}

/// Runs `work` in a thread that is this user, without capabilities. Other threads stay what they are.
pub fn as_user<T: Send>(uid: u32, gid: u32, groups: &[u32], work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_user(uid, gid, groups).expect("only root can run this test");
            work()
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The raw calls change this thread only; those of the C library would change all.
fn become_user(uid: u32, gid: u32, groups: &[u32]) -> Result<(), Errno> {
    // SAFETY: the pointer and the count describe the slice.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    Errno::result(result)?;
    // SAFETY: takes three numbers.
    Errno::result(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: takes three numbers.
    Errno::result(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })?;
    Ok(())
}

/// A file mapped shared and writable.
#[derive(Debug)]
pub struct SharedMapping {
    address: *mut u8,
    len: usize,
}

impl SharedMapping {
    /// Maps the first `len` bytes of an open file.
    pub fn new(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: asks for a new mapping at an address of the kernel's choice.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            address: address.cast(),
            len,
        })
    }

    /// Writes a byte.
    pub fn set(&self, at: usize, byte: u8) {
        assert!(at < self.len);
        // SAFETY: lies inside of the mapping, which lives as long as `self`; the address is volatile
        // memory shared with the kernel, never referenced.
        unsafe { self.address.wrapping_add(at).write_volatile(byte) };
    }

    /// Reads a byte.
    pub fn get(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: as in `set`.
        unsafe { self.address.wrapping_add(at).read_volatile() }
    }

    /// Waits until the file has what was written.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is the mapping's.
        let result = unsafe { libc::msync(self.address.cast(), self.len, libc::MS_SYNC) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the range is the mapping's, and nothing refers to it any more.
        unsafe { libc::munmap(self.address.cast(), self.len) };
    }
}

/// A process-wide lock attempt: whether the whole file could be locked for writing.
pub fn try_lock(file: BorrowedFd<'_>, command: i32) -> Result<bool, Errno> {
    let lock = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).expect("a small number"),
        l_whence: i16::try_from(libc::SEEK_SET).expect("a small number"),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the pointer is to a `flock`, as the commands F_SETLK and F_OFD_SETLK want it.
    match Errno::result(unsafe { libc::fcntl(file.as_raw_fd(), command, &lock) }) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Returns an inotify descriptor that watches `path` for `mask`.
pub fn watch(path: &Path, mask: u32) -> io::Result<std::fs::File> {
    use std::os::fd::FromRawFd;
    let path = path_of(path)?;
    // SAFETY: takes flags only.
    let raw = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
    let raw = Errno::result(raw)?;
    // SAFETY: the descriptor is new and nobody else's.
    let file = unsafe { std::fs::File::from_raw_fd(raw) };
    // SAFETY: the descriptor is open and the path ends with NUL.
    Errno::result(unsafe { libc::inotify_add_watch(raw, path.as_ptr(), mask) })?;
    Ok(file)
}

/// `copy_file_range`: returns how many bytes were copied, which may be fewer than asked for.
pub fn copy_file_range(
    from: BorrowedFd<'_>,
    from_offset: i64,
    to: BorrowedFd<'_>,
    to_offset: i64,
    len: usize,
) -> Result<usize, Errno> {
    let (mut from_offset, mut to_offset) = (from_offset, to_offset);
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: the descriptors are open, and the offsets outlive the call.
    let copied =
        unsafe { libc::copy_file_range(from, &mut from_offset, to, &mut to_offset, len, 0) };
    Ok(usize::try_from(Errno::result(copied)?).expect("not negative"))
}

impl SharedMapping {
    /// Reads from a file straight into the mapping, whose address is that of a page.
    pub fn fill_from(&self, file: &std::fs::File, offset: i64) -> Result<usize, Errno> {
        // SAFETY: the range is the mapping's.
        let count = unsafe { libc::pread(file.as_raw_fd(), self.address.cast(), self.len, offset) };
        Ok(usize::try_from(Errno::result(count)?).expect("not negative"))
    }
}
