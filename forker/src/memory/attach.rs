//! Attaches System V segments.

use super::calls::{Calls, Expect};
use super::place::unmap;
use super::plan::{Hand, protect};
use super::space::{AddressSpace, Backing, Flags, Mapping, SharedKey};

/// One attachment of a System V segment: a program may have unmapped or protected parts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attachment<'a> {
    /// The segment.
    pub(super) id: i32,
    /// The address of the first byte of the segment.
    pub(super) start: u64,
    /// The mappings that are left of it, by address.
    parts: Vec<&'a Mapping>,
}

pub(super) fn attachments(space: &AddressSpace) -> Vec<Attachment<'_>> {
    let mut attachments: Vec<Attachment<'_>> = Vec::new();
    for mapping in &space.mappings {
        let Backing::Shared {
            key: SharedKey::SysV(id),
            offset,
        } = mapping.backing
        else {
            continue;
        };
        let start = mapping.start.wrapping_sub(offset);
        match attachments
            .iter_mut()
            .find(|other| other.id == id && other.start == start)
        {
            Some(attachment) => attachment.parts.push(mapping),
            None => attachments.push(Attachment {
                id,
                start,
                parts: vec![mapping],
            }),
        }
    }
    attachments
}

/// Attaches System V segments by identifier, so that the kernel counts them. The kernel attaches a
/// whole segment only; what the program had unmapped of it is unmapped again.
pub(super) fn attach(calls: &mut Calls, space: &AddressSpace, hand: &Hand<'_>) -> Option<()> {
    for Attachment { id, start, parts } in attachments(space) {
        let any = |flag| parts.iter().any(|part| part.flags.has(flag));
        let (mut flags, mut given) = (0, libc::PROT_READ);
        if any(Flags::MAY_WRITE) {
            given |= libc::PROT_WRITE;
        } else {
            flags |= libc::SHM_RDONLY;
        }
        if any(Flags::EXEC) {
            flags |= libc::SHM_EXEC;
            given |= libc::PROT_EXEC;
        }
        let arguments = [id.into(), start.into(), flags.into()];
        calls.add(
            "attach a segment",
            libc::SYS_shmat,
            arguments,
            Expect::Exactly(start),
        );
        let mut at = start;
        for part in &parts {
            unmap(calls, at..part.start);
            protect(calls, part, given);
            at = part.end;
        }
        unmap(calls, at..start.checked_add(*hand.segments.get(&id)?)?);
    }
    Some(())
}
