//! What is set when the content is there, because it would stand in the way before.

use std::ops::Range;

use super::calls::{Calls, Expect};
use super::space::{AddressSpace, Backing, Flags, LockFuture, Mapping};

/// `MADV_GUARD_INSTALL`.
const GUARD_INSTALL: i32 = 102;

/// `mseal`.
const SYS_MSEAL: i64 = 462;

/// The calls that come after the content: guard pages, advice, names, locks and seals.
pub fn finish(space: &AddressSpace, data_address: u64) -> Calls {
    let mut calls = Calls::new(data_address);
    for mapping in &space.mappings {
        let range = mapping.start..mapping.end;
        for guard in &mapping.guards {
            advise(&mut calls, guard.clone(), GUARD_INSTALL, Expect::Success);
        }
        // Memory that may be dropped has these by itself.
        let droppable = mapping.flags.has(Flags::DROPPABLE);
        for (flag, advice, expect) in [
            (Flags::DONT_FORK, libc::MADV_DONTFORK, Expect::Success),
            (Flags::WIPE_ON_FORK, libc::MADV_WIPEONFORK, Expect::Success),
            (Flags::DONT_DUMP, libc::MADV_DONTDUMP, Expect::Anything),
            (Flags::MERGEABLE, libc::MADV_MERGEABLE, Expect::Anything),
            (Flags::SEQUENTIAL, libc::MADV_SEQUENTIAL, Expect::Anything),
            (Flags::RANDOM, libc::MADV_RANDOM, Expect::Anything),
        ] {
            let special = matches!(mapping.backing, Backing::Special(_));
            if mapping.flags.has(flag) && !droppable && !special {
                advise(&mut calls, range.clone(), advice, expect);
            }
        }
        if let Some(name) = &mapping.name {
            let mut bytes = name.clone();
            bytes.push(0);
            let name = calls.place(&bytes);
            let arguments = [
                libc::PR_SET_VMA.into(),
                libc::PR_SET_VMA_ANON_NAME.into(),
                mapping.start.into(),
                mapping.len().into(),
                name.into(),
            ];
            calls.add("name memory", libc::SYS_prctl, arguments, Expect::Anything);
        }
        lock(&mut calls, mapping);
    }
    if let Some(future) = space.lock_future {
        let on_fault = if future == LockFuture::OnFault {
            libc::MCL_ONFAULT
        } else {
            0
        };
        let flags = (libc::MCL_FUTURE | on_fault).into();
        calls.add(
            "lock future memory",
            libc::SYS_mlockall,
            [flags],
            Expect::Success,
        );
    }
    for mapping in space
        .mappings
        .iter()
        .filter(|mapping| mapping.flags.has(Flags::SEALED))
    {
        let arguments = [mapping.start.into(), mapping.len().into(), 0.into()];
        calls.add("seal memory", SYS_MSEAL, arguments, Expect::Success);
    }
    calls
}

fn lock(calls: &mut Calls, mapping: &Mapping) {
    if mapping.flags.has(Flags::LOCKED) {
        let on_fault = u64::from(mapping.flags.has(Flags::LOCKED_ON_FAULT));
        let arguments = [mapping.start.into(), mapping.len().into(), on_fault.into()];
        // Of inaccessible memory the kernel keeps the lock and answers ENOMEM.
        let expect = if mapping.flags.has(Flags::READ) {
            Expect::Success
        } else {
            Expect::Anything
        };
        calls.add("lock memory", libc::SYS_mlock2, arguments, expect);
    }
}

pub(super) fn advise(calls: &mut Calls, range: Range<u64>, advice: i32, expect: Expect) {
    let arguments = [
        range.start.into(),
        (range.end - range.start).into(),
        advice.into(),
    ];
    calls.add("advise about memory", libc::SYS_madvise, arguments, expect);
}
