//! The calls by which a process that holds nothing but the tracer's runner gets the address space of
//! an image. Content comes between [`lay_out`] and [`finish`](super::finish::finish), from outside.

use std::collections::HashMap;
use std::ops::Range;

use super::attach::attach;
use super::calls::{Argument, Calls, Expect};
use super::finish::advise;
use super::place::{Specials, empty, move_specials};
use super::space::{AddressSpace, Backing, FileRef, Flags, Mapping, SharedKey};

/// `MAP_DROPPABLE`, which takes the place of `MAP_PRIVATE`.
const MAP_DROPPABLE: i32 = 0x08;

/// How a file is opened for a mapping.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Opening {
    /// Which file.
    pub file: FileRef,
    /// For writing too: the mapping is shared and may be made writable.
    pub write: bool,
}

/// Where the process finds what the tracer holds for it.
#[derive(Debug)]
pub struct Hand<'a> {
    /// The descriptor in the process that refers to the tracer.
    pub tracer: i32,
    /// A descriptor number that nothing uses while the plan runs.
    pub free: i32,
    /// The tracer's descriptors of the files.
    pub files: &'a HashMap<Opening, i32>,
    /// The tracer's descriptors of shared memory other than System V segments.
    pub shared: &'a HashMap<SharedKey, i32>,
    /// The sizes of all System V segments, in whole pages, by identifier.
    pub segments: &'a HashMap<i32, u64>,
    /// The tracer's descriptor of the executable.
    pub exe: i32,
}

/// The files that must be open in the tracer, the executable not among them.
pub fn openings(space: &AddressSpace) -> Vec<Opening> {
    let mut openings: Vec<Opening> = Vec::new();
    for mapping in &space.mappings {
        if let Some(opening) = opening(mapping)
            && !openings.contains(&opening)
        {
            openings.push(opening);
        }
    }
    openings
}

fn opening(mapping: &Mapping) -> Option<Opening> {
    let Backing::File { file, .. } = &mapping.backing else {
        return None;
    };
    let write = mapping.flags.has(Flags::SHARED.with(Flags::MAY_WRITE));
    Some(Opening {
        file: file.clone(),
        write,
    })
}

/// The calls that empty the process but for `keep` (the runner and its data), move what the kernel
/// mapped to where it was, tell the kernel where things are, and map everything. The list ends
/// before any content exists.
///
/// `specials` are the kernel's own mappings of the process as it is now. `None` if a mapping of the
/// image needs one that this kernel does not give, or a file or memory that `hand` does not hold.
pub fn lay_out(
    space: &AddressSpace,
    specials: &Specials,
    keep: &[Range<u64>],
    hand: &Hand<'_>,
    data_address: u64,
) -> Option<Calls> {
    let mut calls = Calls::new(data_address);
    empty(&mut calls, specials, keep);
    move_specials(&mut calls, space, specials, keep)?;
    describe(&mut calls, space, hand);
    attach(&mut calls, space, hand)?;
    map_anonymous(&mut calls, space);
    map_shared(&mut calls, space, hand)?;
    map_files(&mut calls, space, hand)?;
    for mapping in &space.mappings {
        // Before content comes: these decide what kind of pages it gets.
        for (flag, advice) in [
            (Flags::HUGE_PAGE, libc::MADV_HUGEPAGE),
            (Flags::NO_HUGE_PAGE, libc::MADV_NOHUGEPAGE),
        ] {
            if mapping.flags.has(flag) {
                advise(
                    &mut calls,
                    mapping.start..mapping.end,
                    advice,
                    Expect::Anything,
                );
            }
        }
    }
    Some(calls)
}

/// Tells the kernel the fields of the address space and the executable. Comes before files are
/// mapped: the kernel refuses while the old executable is.
fn describe(calls: &mut Calls, space: &AddressSpace, hand: &Hand<'_>) {
    let mm = &space.mm;
    let auxv = calls.place(&mm.auxv);
    let words = [
        mm.code.start,
        mm.code.end,
        mm.data.start,
        mm.data.end,
        mm.brk.start,
        mm.brk.end,
        mm.start_stack,
        mm.args.start,
        mm.args.end,
        mm.env.start,
        mm.env.end,
        auxv,
    ];
    let mut map: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
    map.extend(
        u32::try_from(mm.auxv.len())
            .unwrap_or(u32::MAX)
            .to_ne_bytes(),
    );
    map.extend(hand.free.to_ne_bytes());
    let address = calls.place(&map);
    let exe = take(calls, hand, hand.exe);
    let exe = Argument::Result(exe);
    let free = Argument::from(hand.free);
    calls.add(
        "number the executable",
        libc::SYS_dup2,
        [exe, free],
        Expect::Success,
    );
    calls.add(
        "close a descriptor",
        libc::SYS_close,
        [exe],
        Expect::Success,
    );
    let arguments = [
        libc::PR_SET_MM.into(),
        libc::PR_SET_MM_MAP.into(),
        address.into(),
        (map.len() as u64).into(),
    ];
    calls.add(
        "describe the address space",
        libc::SYS_prctl,
        arguments,
        Expect::Success,
    );
    calls.add(
        "close a descriptor",
        libc::SYS_close,
        [free],
        Expect::Success,
    );
}

/// Fetches a descriptor of the tracer.
fn take(calls: &mut Calls, hand: &Hand<'_>, descriptor: i32) -> usize {
    let arguments = [hand.tracer.into(), descriptor.into(), 0.into()];
    calls.add(
        "take a descriptor",
        libc::SYS_pidfd_getfd,
        arguments,
        Expect::Success,
    )
}

fn map(calls: &mut Calls, mapping: &Mapping, kind: i32, file: Argument, offset: u64) {
    let mut flags = kind | libc::MAP_FIXED_NOREPLACE;
    for (flag, bit) in [
        (Flags::NO_RESERVE, libc::MAP_NORESERVE),
        (Flags::GROWS_DOWN, libc::MAP_GROWSDOWN),
    ] {
        if mapping.flags.has(flag) {
            flags |= bit;
        }
    }
    // The kernel sets memory aside when a mapping is made writable, and keeps it when it no longer is;
    // it joins neighbours that agree in this only.
    let once_writable = mapping.flags.has(Flags::ACCOUNTED) && !mapping.flags.has(Flags::WRITE);
    let given = mapping.protection() | if once_writable { libc::PROT_WRITE } else { 0 };
    let arguments = [
        mapping.start.into(),
        mapping.len().into(),
        given.into(),
        flags.into(),
        file,
        offset.into(),
    ];
    calls.add(
        "map memory",
        libc::SYS_mmap,
        arguments,
        Expect::Exactly(mapping.start),
    );
    protect(calls, mapping, given);
}

fn map_anonymous(calls: &mut Calls, space: &AddressSpace) {
    for mapping in space
        .mappings
        .iter()
        .filter(|mapping| mapping.backing == Backing::Anonymous)
    {
        let droppable = mapping.flags.has(Flags::DROPPABLE);
        let kind = if droppable {
            MAP_DROPPABLE
        } else {
            libc::MAP_PRIVATE
        };
        map(
            calls,
            mapping,
            kind | libc::MAP_ANONYMOUS,
            Argument::from(-1),
            0,
        );
    }
}

fn sharing(mapping: &Mapping) -> i32 {
    if mapping.flags.has(Flags::SHARED) {
        libc::MAP_SHARED
    } else {
        libc::MAP_PRIVATE
    }
}

fn map_shared(calls: &mut Calls, space: &AddressSpace, hand: &Hand<'_>) -> Option<()> {
    let mut held: Vec<(SharedKey, usize)> = Vec::new();
    for mapping in &space.mappings {
        let Backing::Shared { key, offset } = &mapping.backing else {
            continue;
        };
        if matches!(key, SharedKey::SysV(_)) {
            continue;
        }
        let file = match held.iter().find(|(other, _)| other == key) {
            Some((_, file)) => *file,
            None => {
                let file = take(calls, hand, *hand.shared.get(key)?);
                held.push((*key, file));
                file
            }
        };
        map(
            calls,
            mapping,
            sharing(mapping),
            Argument::Result(file),
            *offset,
        );
    }
    for (_, file) in held {
        calls.add(
            "close a descriptor",
            libc::SYS_close,
            [Argument::Result(file)],
            Expect::Success,
        );
    }
    Some(())
}

/// Gives a mapping its protection, if it was made with another.
pub(super) fn protect(calls: &mut Calls, mapping: &Mapping, given: i32) {
    if given != mapping.protection() {
        let arguments = [
            mapping.start.into(),
            mapping.len().into(),
            mapping.protection().into(),
        ];
        calls.add(
            "protect memory",
            libc::SYS_mprotect,
            arguments,
            Expect::Success,
        );
    }
}

fn map_files(calls: &mut Calls, space: &AddressSpace, hand: &Hand<'_>) -> Option<()> {
    let of_files = space
        .mappings
        .iter()
        .filter_map(|mapping| Some((mapping, opening(mapping)?)));
    let mut held: Option<(Opening, usize)> = None;
    for (mapping, opening) in of_files {
        let Backing::File { offset, .. } = &mapping.backing else {
            continue;
        };
        // The mappings of one file lie next to each other as a rule.
        let file = match &held {
            Some((other, file)) if *other == opening => *file,
            _ => {
                close_held(calls, held.take());
                let file = take(calls, hand, *hand.files.get(&opening)?);
                held = Some((opening, file));
                file
            }
        };
        map(
            calls,
            mapping,
            sharing(mapping),
            Argument::Result(file),
            *offset,
        );
    }
    close_held(calls, held);
    Some(())
}

fn close_held(calls: &mut Calls, held: Option<(Opening, usize)>) {
    if let Some((_, file)) = held {
        calls.add(
            "close a descriptor",
            libc::SYS_close,
            [Argument::Result(file)],
            Expect::Success,
        );
    }
}
