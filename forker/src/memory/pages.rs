//! Which pages of an address space nothing else keeps.

use std::fs::File;
use std::io;
use std::ops::Range;

use super::space::{Flags, Mapping, PAGE, Run};
use crate::sys::pagemap::{Categories, Query, scan};

/// The runs of pages that belong to the mapping alone: touched anonymous pages, in memory or in
/// swap, and written pages of private file mappings. The kernel's page of zeros is left out.
/// `pagemap` is `/proc/PID/pagemap` of a process that stands still.
///
/// # Errors
/// What the kernel answers.
pub fn private_runs(pagemap: &File, mapping: &Mapping) -> io::Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    if !mapping.has_private_pages() {
        return Ok(runs);
    }
    // To ask whether a page is of a file makes the walk five times slower: only where it can be.
    let file = match mapping.backing {
        super::space::Backing::Anonymous => Categories::default(),
        _ => Categories::FILE,
    };
    let query = Query {
        inverted: Categories::ZERO.with(Categories::GUARD).with(file),
        any: Categories::PRESENT.with(Categories::SWAPPED),
        ..Query::default()
    };
    scan(pagemap, mapping.start, mapping.end, query, |region| {
        let (first, behind) = (region.start / PAGE, region.end / PAGE);
        match runs.last_mut() {
            Some(last) if last.first + last.count == first => last.count += behind - first,
            _ => runs.push(Run {
                first,
                count: behind - first,
            }),
        }
    })?;
    Ok(runs)
}

/// The guard pages in a mapping, as address ranges.
///
/// # Errors
/// What the kernel answers.
pub fn guards(pagemap: &File, start: u64, end: u64) -> io::Result<Vec<Range<u64>>> {
    let mut guards: Vec<Range<u64>> = Vec::new();
    let query = Query {
        all: Categories::GUARD,
        ..Query::default()
    };
    scan(pagemap, start, end, query, |region| {
        match guards.last_mut() {
            Some(last) if last.end == region.start => last.end = region.end,
            _ => guards.push(region.start..region.end),
        }
    })?;
    Ok(guards)
}

/// Whether guard pages can be in a mapping: the kernel puts them into ordinary memory only.
pub(super) fn can_have_guards(flags: Flags) -> bool {
    !flags.has_any(Flags::HUGETLB.with(Flags::IO).with(Flags::PFN))
}
