//! Where things lie: room for the tracer's runner, and the kernel's own mappings.

use std::collections::HashMap;
use std::ops::Range;

use super::attach::attachments;
use super::calls::{Calls, Expect};
use super::space::{AddressSpace, Backing};

/// First address behind the part of the address space that a program can map.
const TASK_END: u64 = 0x7fff_ffff_f000;

/// What the kernel itself mapped into the process that is to become another, by name.
pub type Specials = Vec<(String, Range<u64>)>;

/// All addresses that the address space occupies while it is rebuilt. The runner must lie elsewhere.
pub fn footprint(space: &AddressSpace, segments: &HashMap<i32, u64>) -> Vec<Range<u64>> {
    let whole = attachments(space).into_iter().map(|attachment| {
        let length = segments.get(&attachment.id).copied().unwrap_or(0);
        attachment.start..attachment.start.saturating_add(length)
    });
    space
        .mappings
        .iter()
        .map(|mapping| mapping.start..mapping.end)
        .chain(whole)
        .collect()
}

/// A range of `length` bytes that touches none of `taken`, as high as possible, or `None` if there
/// is none.
pub fn free_range(taken: &[Range<u64>], length: u64) -> Option<Range<u64>> {
    // Far from the top, where the stack of the process may still grow.
    const CEILING: u64 = 0x7000_0000_0000;
    let mut taken: Vec<&Range<u64>> = taken.iter().collect();
    taken.sort_by_key(|range| std::cmp::Reverse(range.end));
    let mut ceiling = CEILING;
    for range in taken {
        if range.start >= ceiling {
            continue;
        }
        if range
            .end
            .checked_add(length)
            .is_some_and(|end| end <= ceiling)
        {
            break;
        }
        ceiling = range.start;
    }
    let start = ceiling.checked_sub(length)?;
    (start >= 0x1_0000).then_some(start..ceiling)
}

/// Unmaps everything but `keep` and the kernel's own mappings.
pub(super) fn empty(calls: &mut Calls, specials: &Specials, keep: &[Range<u64>]) {
    let mut kept: Vec<Range<u64>> = keep
        .iter()
        .cloned()
        .chain(specials.iter().map(|(_, range)| range.clone()))
        .collect();
    kept.sort_by_key(|range| range.start);
    let mut at = 0;
    for range in kept.into_iter().chain(std::iter::once(TASK_END..TASK_END)) {
        unmap(calls, at..range.start.min(TASK_END));
        at = range.end;
    }
}

pub(super) fn unmap(calls: &mut Calls, range: Range<u64>) {
    if range.start < range.end {
        let arguments = [range.start.into(), (range.end - range.start).into()];
        calls.add("unmap", libc::SYS_munmap, arguments, Expect::Success);
    }
}

/// Moves the kernel's own mappings to where the image has them, and drops those it has not.
pub(super) fn move_specials(
    calls: &mut Calls,
    space: &AddressSpace,
    specials: &Specials,
    keep: &[Range<u64>],
) -> Option<()> {
    let wanted: Vec<(&str, Range<u64>)> = space
        .mappings
        .iter()
        .filter_map(|mapping| match &mapping.backing {
            Backing::Special(name) => Some((name.as_str(), mapping.start..mapping.end)),
            _ => None,
        })
        .collect();
    let mut moves = Vec::new();
    for (name, to) in &wanted {
        let (_, from) = specials.iter().find(|(special, _)| special == name)?;
        if from.end - from.start != to.end - to.start {
            return None;
        }
        moves.push((from.clone(), to.clone()));
    }
    for (name, range) in specials {
        if !wanted.iter().any(|(special, _)| special == name) {
            unmap(calls, range.clone());
        }
    }
    moves.retain(|(from, to)| from != to);
    let overlap = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
    let clash = moves
        .iter()
        .any(|(_, to)| specials.iter().any(|(_, at)| overlap(to, at)));
    if clash {
        // Old and new places overlap: by way of a place far from both.
        let mut taken: Vec<Range<u64>> = keep.to_vec();
        taken.extend(specials.iter().map(|(_, range)| range.clone()));
        taken.extend(wanted.iter().map(|(_, range)| range.clone()));
        for (from, to) in &mut moves {
            let between = free_range(&taken, to.end - to.start)?;
            relocate(calls, from, &between);
            taken.push(between.clone());
            *from = between;
        }
    }
    for (from, to) in &moves {
        relocate(calls, from, to);
    }
    Some(())
}

fn relocate(calls: &mut Calls, from: &Range<u64>, to: &Range<u64>) {
    let length = from.end - from.start;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let arguments = [
        from.start.into(),
        length.into(),
        length.into(),
        flags.into(),
        to.start.into(),
    ];
    calls.add(
        "move a mapping of the kernel",
        libc::SYS_mremap,
        arguments,
        Expect::Exactly(to.start),
    );
}
