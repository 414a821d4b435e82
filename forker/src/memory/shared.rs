//! Memory that several processes share: each piece is kept once, whoever maps it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{Gid, Uid, Whence, fchown, lseek};
use serde::{Deserialize, Serialize};

use super::copy::put_non_zero;
use super::scan::map_file;
use super::space::{AddressSpace, Backing, ObjectId, PAGE, Run, SharedKey};
use super::store::MemoryStore;

/// How many bytes are read or written at once.
const PART: usize = 1 << 20;

/// One piece of shared memory other than a System V segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMemory {
    /// By what mappings and descriptors name it.
    pub key: SharedKey,
    /// The object that holds its pages.
    pub object: ObjectId,
    /// What the program sees it as.
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// The pages that hold something.
    pub runs: Vec<Run>,
}

/// What a piece of shared memory is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Made by `mmap`.
    Anonymous,
    /// Made by `memfd_create`.
    Memfd {
        /// Its name.
        name: Vec<u8>,
        /// `F_GET_SEALS`.
        seals: i32,
        /// Access bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
}

/// The pieces of shared memory of a tree, found but not read.
#[derive(Debug, Default)]
pub struct Pieces {
    files: BTreeMap<SharedKey, File>,
}

impl Pieces {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what an address space maps, System V segments left out.
    ///
    /// # Errors
    /// `/proc/PID/map_files` cannot be opened.
    pub fn add_mapped(&mut self, pid: i32, space: &AddressSpace) -> io::Result<()> {
        for mapping in &space.mappings {
            if let Backing::Shared {
                key: key @ SharedKey::Inode(_),
                ..
            } = mapping.backing
            {
                self.add_file(key, || {
                    File::open(map_file(pid, mapping.start, mapping.end))
                })?;
            }
        }
        if let Some(key) = space.exe_shared {
            self.add_file(key, || File::open(format!("/proc/{pid}/exe")))?;
        }
        Ok(())
    }

    /// Adds a memfd that a descriptor refers to, if it is not there yet; `open` opens it again.
    ///
    /// # Errors
    /// What `open` answers.
    pub fn add_file(
        &mut self,
        key: SharedKey,
        open: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<()> {
        if let Entry::Vacant(place) = self.files.entry(key) {
            place.insert(open()?);
        }
        Ok(())
    }

    /// Reads all pieces into the store. Called while all processes that could write stand still.
    ///
    /// # Errors
    /// What the kernel or the store answers.
    pub fn capture(self, store: &dyn MemoryStore) -> io::Result<Vec<SharedMemory>> {
        let mut pieces = Vec::with_capacity(self.files.len());
        for (index, (key, file)) in self.files.into_iter().enumerate() {
            let object = ObjectId::of_shared(index);
            let size = file.metadata()?.len();
            let runs = keep(&file, size, object, store)?;
            pieces.push(SharedMemory {
                key,
                object,
                kind: kind(&file)?,
                size,
                runs,
            });
        }
        Ok(pieces)
    }
}

/// The key of a memfd, by an open file of it.
///
/// # Errors
/// The file cannot be asked.
pub fn key_of(file: &File) -> io::Result<Option<SharedKey>> {
    let metadata = file.metadata()?;
    let shared = metadata.dev() == super::scan::shmem_device()?;
    Ok(shared.then(|| SharedKey::Inode(metadata.ino())))
}

fn kind(file: &File) -> io::Result<Kind> {
    let link = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let path = link.as_os_str().as_bytes();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let Some(name) = path.strip_prefix(b"/memfd:") else {
        return Ok(Kind::Anonymous);
    };
    let metadata = file.metadata()?;
    Ok(Kind::Memfd {
        name: name.to_vec(),
        seals: fcntl(file, FcntlArg::F_GET_SEALS)?,
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
    })
}

/// Stores the pages of a file of shared memory that are not zero.
pub(super) fn keep(
    file: &File,
    size: u64,
    object: ObjectId,
    store: &dyn MemoryStore,
) -> io::Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    let mut buffer = vec![0; PART];
    let mut at = 0;
    while let Some(start) = seek(file, at, Whence::SeekData)? {
        let end = seek(file, start, Whence::SeekHole)?.unwrap_or(size);
        at = start / PAGE * PAGE;
        while at < end {
            let left = usize::try_from(end - at).map_or(PART, |left| left.min(PART));
            let bytes = &mut buffer[..left];
            file.read_exact_at(bytes, at)?;
            // The tail of the last page reads as zeros in memory, and is none of the file.
            let whole = left.next_multiple_of(usize::try_from(PAGE).map_err(io::Error::other)?);
            buffer[left..whole].fill(0);
            put_non_zero(
                store,
                object,
                at / PAGE,
                &buffer[..whole],
                |run| match runs.last_mut() {
                    Some(last) if last.first + last.count == run.first => last.count += run.count,
                    _ => runs.push(run),
                },
            )?;
            at += left as u64;
        }
    }
    Ok(runs)
}

fn seek(file: &File, at: u64, whence: Whence) -> io::Result<Option<u64>> {
    let at = i64::try_from(at).map_err(io::Error::other)?;
    match lseek(file.as_fd(), at, whence) {
        Ok(found) => Ok(u64::try_from(found).ok()),
        Err(Errno::ENXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Creates a piece again, with its content. Seals come with [`seal`], when all is mapped.
///
/// # Errors
/// What the kernel or the store answers.
pub fn create(piece: &SharedMemory, store: &dyn MemoryStore) -> io::Result<File> {
    let file = match &piece.kind {
        Kind::Anonymous => crate::sys::shared::anonymous(piece.size)?,
        Kind::Memfd {
            name,
            mode,
            uid,
            gid,
            ..
        } => {
            let name = CString::new(name.as_slice()).map_err(io::Error::other)?;
            let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
            let file = File::from(memfd_create(name.as_c_str(), flags)?);
            file.set_len(piece.size)?;
            fchown(&file, Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)))?;
            file.set_permissions(Permissions::from_mode(*mode))?;
            file
        }
    };
    bring_back(&file, piece.size, piece.object, &piece.runs, store)?;
    Ok(file)
}

/// Writes stored pages into a file of shared memory.
pub(super) fn bring_back(
    file: &File,
    size: u64,
    object: ObjectId,
    runs: &[Run],
    store: &dyn MemoryStore,
) -> io::Result<()> {
    let mut buffer = vec![0; PART];
    for run in runs {
        let (mut at, end) = (run.start(), run.start() + run.bytes());
        while at < end {
            let length = usize::try_from(end - at).map_or(PART, |left| left.min(PART));
            let bytes = &mut buffer[..length];
            store.get(object, at / PAGE, bytes)?;
            let inside =
                usize::try_from(size.saturating_sub(at)).map_or(length, |left| left.min(length));
            file.write_all_at(&bytes[..inside], at)?;
            at += length as u64;
        }
    }
    Ok(())
}

/// Seals a memfd as it was.
///
/// # Errors
/// What the kernel answers: a writable mapping that the original had not.
pub fn seal(piece: &SharedMemory, file: &File) -> io::Result<()> {
    if let Kind::Memfd { seals, .. } = &piece.kind {
        fcntl(
            file,
            FcntlArg::F_ADD_SEALS(SealFlag::from_bits_retain(*seals)),
        )?;
    }
    Ok(())
}

/// Opens a piece again with other access, as a descriptor of it may have had.
///
/// # Errors
/// What the kernel answers.
pub fn reopen(file: &File, write: bool) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options()
        .read(true)
        .write(write)
        .open(Path::new(&path))
}
