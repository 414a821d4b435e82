//! Shared anonymous memory that this process creates for others.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::sysv::open_mapping;

/// Creates shared memory as `mmap(MAP_SHARED | MAP_ANONYMOUS)` does, and returns the file behind
/// it: mapped from it, it looks in `/proc/PID/maps` as if the process had made it.
///
/// # Errors
/// What the kernel answers, for no bytes too.
pub fn anonymous(bytes: u64) -> io::Result<File> {
    let length = usize::try_from(bytes).ok().and_then(NonZeroUsize::new);
    let length = length.ok_or(io::ErrorKind::InvalidInput)?;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let flags = MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE;
    // SAFETY: the kernel chooses the address, so no other memory is touched.
    let memory = unsafe { mmap_anonymous(None, length, protection, flags) }?;
    let file = open_mapping(memory.addr().get());
    // SAFETY: the mapping was made here just now, and nothing refers to its memory.
    unsafe { munmap(memory, length.get()) }?;
    file
}
