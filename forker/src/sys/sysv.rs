//! System V shared memory of the IPC namespace that the calling thread is in.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use serde::{Deserialize, Serialize};

/// The mark of a segment that goes with its last attachment (`SHM_DEST`).
pub const DESTROYED: u32 = 0o1000;
/// The mark of a segment locked into memory (`SHM_LOCKED`).
pub const LOCKED: u32 = 0o2000;
/// The mark of a segment of huge pages (`SHM_HUGETLB`).
pub const HUGE: u32 = 0o4000;

/// A segment as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its identifier.
    pub id: i32,
    /// The key by which it is found; 0 if by none.
    pub key: i32,
    /// The owner.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// Who created it.
    pub creator_uid: u32,
    /// The creator's group.
    pub creator_gid: u32,
    /// Access bits, and the marks [`DESTROYED`], [`LOCKED`] and [`HUGE`].
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
}

/// Runs `work` in a thread of its own that has entered an IPC namespace.
///
/// # Errors
/// The namespace cannot be entered, or what `work` answers.
pub fn inside<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(namespace, CloneFlags::CLONE_NEWIPC)?;
            work()
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace failed")))
    })
}

fn control(id: i32, command: i32, buffer: *mut libc::shmid_ds) -> io::Result<i32> {
    // SAFETY: `buffer` is null for commands that take none, and else a whole `shmid_ds` of the
    // caller's, which the kernel reads or fills.
    let answer = unsafe { libc::shmctl(id, command, buffer) };
    Errno::result(answer).map_err(io::Error::from)
}

/// `SHM_INFO` and `SHM_STAT` of `linux/shm.h`.
const SHM_INFO: i32 = 14;
const SHM_STAT: i32 = 13;

/// `struct shm_info`, which is smaller than a `shmid_ds`: only the answer is of interest.
fn highest_index() -> io::Result<i32> {
    let mut unused = MaybeUninit::<libc::shmid_ds>::zeroed();
    control(0, SHM_INFO, unused.as_mut_ptr())
}

/// All segments.
///
/// # Errors
/// What the kernel answers.
pub fn list() -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for index in 0..=highest_index()? {
        let mut state = MaybeUninit::<libc::shmid_ds>::zeroed();
        let id = match control(index, SHM_STAT, state.as_mut_ptr()) {
            Ok(id) => id,
            // Indices have gaps.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => continue,
            Err(error) => return Err(error),
        };
        // SAFETY: zeroed bytes are a valid `shmid_ds`, and the kernel has filled it.
        let state = unsafe { state.assume_init() };
        let access = state.shm_perm;
        segments.push(Segment {
            id,
            key: access.__key,
            uid: access.uid,
            gid: access.gid,
            creator_uid: access.cuid,
            creator_gid: access.cgid,
            mode: u32::from(access.mode),
            size: state.shm_segsz as u64,
        });
    }
    Ok(segments)
}

/// A file that shows the memory of a segment, for reading and writing at offsets.
///
/// # Errors
/// What the kernel answers.
pub fn open(id: i32) -> io::Result<File> {
    // SAFETY: the kernel chooses the address, so no other memory is touched.
    let address = unsafe { libc::shmat(id, ptr::null(), 0) };
    if address.addr() == usize::MAX {
        return Err(io::Error::last_os_error());
    }
    let file = open_mapping(address.addr());
    // SAFETY: the segment was attached here just now, and nothing refers to its memory.
    let _ = unsafe { libc::shmdt(address) };
    file
}

/// Opens what stands behind the mapping of this process that starts at an address.
pub(super) fn open_mapping(start: usize) -> io::Result<File> {
    let prefix = format!("{start:x}-");
    for entry in fs::read_dir("/proc/self/map_files")? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            return OpenOptions::new().read(true).write(true).open(entry.path());
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Creates a segment with the identifier, key, owner and access that it had. The marks come with
/// [`mark`], when all is attached.
///
/// # Errors
/// What the kernel answers; `AlreadyExists` if the identifier is taken.
pub fn create(segment: &Segment) -> io::Result<()> {
    fs::write("/proc/sys/kernel/shm_next_id", segment.id.to_string())?;
    let size = usize::try_from(segment.size).map_err(io::Error::other)?;
    let flags = libc::IPC_CREAT | libc::IPC_EXCL | i32::try_from(segment.mode & 0o777).unwrap_or(0);
    as_creator(segment.creator_uid, segment.creator_gid, || {
        // SAFETY: no memory is passed.
        let id = Errno::result(unsafe { libc::shmget(segment.key, size, flags) })?;
        if id == segment.id {
            Ok(())
        } else {
            Err(io::ErrorKind::AlreadyExists.into())
        }
    })?;
    let mut state = MaybeUninit::<libc::shmid_ds>::zeroed();
    control(segment.id, libc::IPC_STAT, state.as_mut_ptr())?;
    // SAFETY: zeroed bytes are a valid `shmid_ds`, and the kernel has filled it.
    let mut state = unsafe { state.assume_init() };
    state.shm_perm.uid = segment.uid;
    state.shm_perm.gid = segment.gid;
    control(segment.id, libc::IPC_SET, &raw mut state).map(drop)
}

/// Runs `work` with the effective user and group of a creator, in this thread only.
fn as_creator(uid: u32, gid: u32, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let set = |uid: u32, gid: u32, user_first: bool| -> io::Result<()> {
        let user = || {
            // SAFETY: no memory is passed; the raw call changes the calling thread alone.
            Errno::result(unsafe { libc::syscall(libc::SYS_setresuid, -1, uid, -1) })
        };
        let group = || {
            // SAFETY: as above.
            Errno::result(unsafe { libc::syscall(libc::SYS_setresgid, -1, gid, -1) })
        };
        if user_first {
            user().and_then(|_| group())
        } else {
            group().and_then(|_| user())
        }
        .map(drop)
        .map_err(io::Error::from)
    };
    if (uid, gid) == (0, 0) {
        return work();
    }
    set(uid, gid, false)?;
    let done = work();
    set(0, 0, true)?;
    done
}

/// Locks a segment and removes it, as its marks say: removed, it goes with its last attachment.
///
/// # Errors
/// What the kernel answers.
pub fn mark(segment: &Segment) -> io::Result<()> {
    if segment.mode & LOCKED != 0 {
        control(segment.id, libc::SHM_LOCK, ptr::null_mut())?;
    }
    if segment.mode & DESTROYED != 0 {
        control(segment.id, libc::IPC_RMID, ptr::null_mut())?;
    }
    Ok(())
}
