//! Shared mappings, which have no safe interface.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// A shared, writable mapping of the start of a file.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes of `file`.
    pub(crate) fn new(file: &File, len: usize) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (anywhere, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: the kernel chooses the address, so nothing that exists is replaced.
        let start = unsafe { libc::mmap(anywhere, len, access, libc::MAP_SHARED, fd, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Self {
            start: NonNull::new(start.cast()).expect("not at address 0"),
            len,
        }
    }

    /// Writes one byte through the mapping.
    pub(crate) fn set(&self, offset: usize, value: u8) {
        assert!(offset < self.len);
        // SAFETY: inside the mapping.
        let byte = unsafe { self.start.add(offset) };
        // SAFETY: mapped and writable; volatile, because others map the file too.
        unsafe { byte.write_volatile(value) }
    }

    /// Reads one byte through the mapping.
    pub(crate) fn get(&self, offset: usize) -> u8 {
        assert!(offset < self.len);
        // SAFETY: inside the mapping.
        let byte = unsafe { self.start.add(offset) };
        // SAFETY: mapped and readable; volatile, because others map the file too.
        unsafe { byte.read_volatile() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was made by `new`, and nothing borrows from it.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A page-aligned buffer, as direct I/O wants it.
#[repr(align(4096))]
#[derive(Debug)]
pub(crate) struct Aligned(pub(crate) [u8; 8192]);
