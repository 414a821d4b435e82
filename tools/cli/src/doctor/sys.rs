//! Tries of system calls that no library offers. Each touches only this process, or a child that
//! was made for it.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::ptr;

const PAGE_BYTES: usize = 4096;

/// `_IOWR(0xAA, 0x3F, struct uffdio_api)`, 24 bytes.
const UFFDIO_API: libc::c_ulong = 0xC018_AA3F;
/// The version that `UFFDIO_API` asks for.
const UFFD_API: u64 = 0xAA;
const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;

/// `struct uffdio_api` of the kernel.
#[repr(C)]
#[derive(Default)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}
const _: () = assert!(size_of::<UffdioApi>() == 24);

/// `_IOWR('f', 16, struct pm_scan_arg)`, 96 bytes.
const PAGEMAP_SCAN: libc::c_ulong = 0xC060_6610;
const PAGE_IS_PRESENT: u64 = 1 << 3;

/// `struct pm_scan_arg` of the kernel.
#[repr(C)]
#[derive(Default)]
struct PmScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}
const _: () = assert!(size_of::<PmScanArg>() == 96);

/// `struct page_region` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// Asks for a userfaultfd with asynchronous write protection.
pub(super) fn probe_write_protect() -> io::Result<String> {
    // SAFETY: takes one integer and makes a descriptor.
    let raw =
        unsafe { libc::syscall(libc::SYS_userfaultfd, UFFD_USER_MODE_ONLY | libc::O_CLOEXEC) };
    let fd = own(raw)?;
    let mut api = UffdioApi {
        api: UFFD_API,
        features: UFFD_FEATURE_WP_ASYNC,
        ..Default::default()
    };
    // SAFETY: the request's argument is a `struct uffdio_api`, which lives across the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), UFFDIO_API, &raw mut api) };
    check(result)?;
    Ok("a descriptor with the feature was given".to_owned())
}

/// Scans one page of this process.
pub(super) fn probe_pagemap_scan() -> io::Result<String> {
    let page = Page::new()?;
    page.write(1);
    let pagemap = File::open("/proc/self/pagemap")?;
    let mut regions = [PageRegion::default(); 1];
    let mut argument = PmScanArg {
        size: u64::try_from(size_of::<PmScanArg>()).unwrap_or(0),
        start: page.address(),
        end: page.address() + 4096,
        vec: regions
            .as_mut_ptr()
            .expose_provenance()
            .try_into()
            .unwrap_or(0),
        vec_len: 1,
        category_mask: PAGE_IS_PRESENT,
        return_mask: PAGE_IS_PRESENT,
        ..Default::default()
    };
    // SAFETY: the argument is a `struct pm_scan_arg` that names one page of this process and room
    // for one region; all three live across the call.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut argument) };
    check(found)?;
    if found == 1 {
        Ok("a page was found by scanning".to_owned())
    } else {
        Err(io::Error::other("a scan did not find a page that is there"))
    }
}

/// Dirties a page and looks whether the kernel marked it. Kernels without soft-dirty bits accept
/// the request to clear them all the same, so only this tells.
pub(super) fn probe_soft_dirty() -> io::Result<bool> {
    const BIT: u64 = 1 << 55;
    let page = Page::new()?;
    page.write(1);
    let entry = || -> io::Result<u64> {
        let mut bytes = [0; 8];
        let index = page.address() / 4096;
        File::open("/proc/self/pagemap")?.read_exact_at(&mut bytes, index * 8)?;
        // The kernel writes the entry in the order of this machine.
        Ok(u64::from_ne_bytes(bytes))
    };
    fs::write("/proc/self/clear_refs", "4")?;
    let before = entry()? & BIT;
    page.write(2);
    let after = entry()? & BIT;
    Ok(before == 0 && after != 0)
}

/// Seizes and lets go of `child`, a child of this process.
pub(super) fn probe_ptrace(child: u32) -> io::Result<()> {
    let child = libc::pid_t::try_from(child).map_err(io::Error::other)?;
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: attaches to a child of ours that runs nothing but `sleep`; no memory is passed.
    let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, child, none, none) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Copies a descriptor of this process by way of a pidfd.
pub(super) fn probe_pidfd_getfd() -> io::Result<()> {
    let file = File::open("/dev/null")?;
    // SAFETY: takes a pid and flags and makes a descriptor.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(own_pid()), 0) };
    let pidfd = own(raw)?;
    // SAFETY: takes two descriptors that are open, and flags, and makes a descriptor.
    let raw = unsafe {
        libc::syscall(
            libc::SYS_pidfd_getfd,
            pidfd.as_raw_fd(),
            file.as_raw_fd(),
            0,
        )
    };
    own(raw).map(drop)
}

/// Compares two descriptors of this process.
pub(super) fn probe_kcmp() -> io::Result<()> {
    const KCMP_FILE: libc::c_long = 0;
    let file = File::open("/dev/null")?;
    let (pid, fd) = (
        libc::c_long::from(own_pid()),
        libc::c_long::from(file.as_raw_fd()),
    );
    // SAFETY: takes integers only.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_FILE, fd, fd) };
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::other("a descriptor differs from itself")),
    }
}

fn own_pid() -> libc::pid_t {
    nix::unistd::getpid().as_raw()
}

fn own(raw: libc::c_long) -> io::Result<OwnedFd> {
    let raw = i32::try_from(raw).map_err(io::Error::other)?;
    check(raw)?;
    // SAFETY: called with the result of a system call that has just made this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// One page of private memory.
struct Page(*mut u8);

impl Page {
    fn new() -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let at = unsafe { libc::mmap(ptr::null_mut(), PAGE_BYTES, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(at.cast()))
    }

    fn address(&self) -> u64 {
        u64::try_from(self.0.expose_provenance()).unwrap_or(0)
    }

    fn write(&self, byte: u8) {
        // SAFETY: the mapping is writable and lives as long as self. Volatile, for the point is
        // that the kernel sees the write.
        unsafe { self.0.write_volatile(byte) };
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and nothing points into it any more.
        unsafe { libc::munmap(self.0.cast(), PAGE_BYTES) };
    }
}
