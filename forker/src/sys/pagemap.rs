//! `PAGEMAP_SCAN`: which pages of an address space are what, told by the kernel as runs.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;

/// Properties of a page, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Categories(pub u64);

impl Categories {
    /// Written since it was armed for write tracking, or never armed.
    pub const WRITTEN: Self = Self(1 << 1);
    /// Belongs to a file or to shared memory, not to the process alone.
    pub const FILE: Self = Self(1 << 2);
    /// In memory.
    pub const PRESENT: Self = Self(1 << 3);
    /// In swap, or a marker of the kernel in the page table.
    pub const SWAPPED: Self = Self(1 << 4);
    /// The kernel's page of zeros.
    pub const ZERO: Self = Self(1 << 5);
    /// A guard page.
    pub const GUARD: Self = Self(1 << 8);

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A run of pages with equal properties.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// The properties that were asked for and hold.
    pub categories: u64,
}

/// What to look for: a page matches if each bit of `all` holds (or does not hold, for the bits of
/// `inverted`) and at least one of `any`, where `any` is not empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query {
    /// Bits whose sense is turned round.
    pub inverted: Categories,
    /// Bits that must all hold.
    pub all: Categories,
    /// Bits of which one must hold.
    pub any: Categories,
    /// Bits told with each run.
    pub told: Categories,
}

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct ScanArgument {
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

// The macro makes a public function without documentation.
#[allow(missing_docs, unreachable_pub)]
mod call {
    nix::ioctl_readwrite!(pagemap_scan, b'f', 16, super::ScanArgument);
}
use call::pagemap_scan;

/// How many runs one call can return.
const REGIONS: usize = 1024;

/// Calls `found` for each run of pages of `start..end` that matches, by address. `pagemap` is
/// `/proc/PID/pagemap`.
///
/// # Errors
/// What the kernel answers: `ENOTTY` before Linux 6.7.
pub fn scan(
    pagemap: &File,
    start: u64,
    end: u64,
    query: Query,
    mut found: impl FnMut(Region),
) -> io::Result<()> {
    let mut regions = [Region::default(); REGIONS];
    let mut at = start;
    while at < end {
        let mut argument = ScanArgument {
            size: size_of::<ScanArgument>() as u64,
            start: at,
            end,
            vec: regions.as_mut_ptr().expose_provenance() as u64,
            vec_len: REGIONS as u64,
            category_inverted: query.inverted.0,
            category_mask: query.all.with(query.inverted).0,
            category_anyof_mask: query.any.0,
            return_mask: query.told.0,
            ..ScanArgument::default()
        };
        // SAFETY: the descriptor is open, `argument` has the size and layout that it says, and
        // `vec` points at `vec_len` regions that nothing else uses meanwhile.
        let count = unsafe { pagemap_scan(pagemap.as_raw_fd(), &raw mut argument) }?;
        let filled = usize::try_from(count).unwrap_or(0);
        regions.iter().take(filled).copied().for_each(&mut found);
        if argument.walk_end <= at {
            return Err(Errno::EIO.into());
        }
        at = argument.walk_end;
    }
    Ok(())
}
