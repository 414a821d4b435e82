//! Memory for many pages at once, in huge pages where there are any: what was copied out of a
//! process while it stood still.

use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

/// Zeroed memory of a fixed size. What was not written costs nothing.
#[derive(Debug)]
pub struct Arena {
    memory: Option<(NonNull<libc::c_void>, NonZeroUsize)>,
}

// SAFETY: the arena owns its memory alone, and hands it out by `&` and `&mut` only.
unsafe impl Send for Arena {}
// SAFETY: through `&Arena` the memory can only be read.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of so many bytes.
    ///
    /// # Errors
    /// No address space left.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let Some(length) = NonZeroUsize::new(bytes) else {
            return Ok(Self { memory: None });
        };
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: the kernel chooses the address, so no other memory is touched.
        let memory = unsafe { mmap_anonymous(None, length, protection, flags) }?;
        // SAFETY: advice about memory that was just mapped changes no content. Without huge pages
        // the arena is slower and nothing else.
        let _ = unsafe { madvise(memory, bytes, MmapAdvise::MADV_HUGEPAGE) };
        Ok(Self {
            memory: Some((memory, length)),
        })
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        self.memory.map_or(&[], |(memory, length)| {
            // SAFETY: the mapping is readable, zeroed by the kernel, `length` bytes long, lives as
            // long as `self`, and is written through `&mut self` only.
            unsafe { std::slice::from_raw_parts(memory.as_ptr().cast::<u8>(), length.get()) }
        })
    }

    /// All bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.map_or(&mut [], |(memory, length)| {
            // SAFETY: as in `bytes`, and `&mut self` makes this the only reference.
            unsafe { std::slice::from_raw_parts_mut(memory.as_ptr().cast::<u8>(), length.get()) }
        })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some((memory, length)) = self.memory {
            // SAFETY: the mapping is ours, and no reference outlives the arena.
            let _ = unsafe { munmap(memory, length.get()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_as_zeros_and_keeps_what_is_written() {
        let mut arena = Arena::new(5 << 20).unwrap();
        assert!(arena.bytes().iter().all(|byte| *byte == 0));
        arena.bytes_mut()[4 << 20] = 7;
        assert_eq!(arena.bytes()[4 << 20], 7);
        assert_eq!(Arena::new(0).unwrap().bytes(), b"");
    }
}
