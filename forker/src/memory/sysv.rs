//! System V shared memory: segments belong to the IPC namespace and live without any process.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};

use super::shared::{bring_back, keep};
use super::space::{ObjectId, PAGE, Run};
use super::store::MemoryStore;
use crate::sys::sysv::{self, Segment};

/// A segment and its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSegment {
    /// What it is.
    pub segment: Segment,
    /// The object that holds its pages.
    pub object: ObjectId,
    /// The pages that hold something.
    pub runs: Vec<Run>,
}

/// The object of a segment; other shared memory and pids never reach this range.
fn object(id: i32) -> ObjectId {
    ObjectId((2 << 32) | u64::from(id.unsigned_abs()))
}

/// Reads all segments of a namespace into the store. Segments of huge pages come without content:
/// the caller refuses them by [`sysv::HUGE`].
///
/// # Errors
/// What the kernel or the store answers.
pub fn capture(namespace: BorrowedFd<'_>, store: &dyn MemoryStore) -> io::Result<Vec<KeptSegment>> {
    sysv::inside(namespace, || {
        let segments = sysv::list()?.into_iter().map(|segment| {
            let object = object(segment.id);
            let runs = if segment.mode & sysv::HUGE == 0 {
                keep(&sysv::open(segment.id)?, segment.size, object, store)?
            } else {
                Vec::new()
            };
            Ok(KeptSegment {
                segment,
                object,
                runs,
            })
        });
        segments.collect()
    })
}

/// Creates the segments in another namespace, with their content and identifiers. Which ones are to
/// vanish with their last attachment is told by [`mark`], when all is attached.
///
/// # Errors
/// What the kernel or the store answers.
pub fn create(
    namespace: BorrowedFd<'_>,
    kept: &[KeptSegment],
    store: &dyn MemoryStore,
) -> io::Result<()> {
    sysv::inside(namespace, || {
        kept.iter().try_for_each(
            |KeptSegment {
                 segment,
                 object,
                 runs,
             }| {
                sysv::create(segment)?;
                bring_back(&sysv::open(segment.id)?, segment.size, *object, runs, store)
            },
        )
    })
}

/// Locks the segments, and removes those that were removed while attached.
///
/// # Errors
/// What the kernel answers.
pub fn mark(namespace: BorrowedFd<'_>, kept: &[KeptSegment]) -> io::Result<()> {
    sysv::inside(namespace, || {
        kept.iter().try_for_each(|kept| sysv::mark(&kept.segment))
    })
}

/// The sizes in whole pages, by identifier, as the plan of an address space needs them.
pub fn sizes(kept: &[KeptSegment]) -> HashMap<i32, u64> {
    kept.iter()
        .map(|kept| (kept.segment.id, kept.segment.size.next_multiple_of(PAGE)))
        .collect()
}
