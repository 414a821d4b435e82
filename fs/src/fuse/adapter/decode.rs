//! fuser's types into ours.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{INodeNo, RenameFlags, Request, TimeOrNow};

use crate::attr::{
    AllocateMode, Caller, RenameMode, SeekTo, SetAttr, SetTime, Timestamp, XattrMode,
};
use crate::fuse::node::Node;
use crate::fuse::service::Context;

/// Returns who asks.
pub(super) fn context(request: &Request) -> Context {
    let caller = Caller {
        uid: request.uid(),
        gid: request.gid(),
    };
    Context {
        caller,
        thread: request.pid(),
    }
}

/// Returns what the kernel means by a node id.
pub(super) fn node(ino: INodeNo) -> Node {
    Node::from_raw(ino.0)
}

/// Returns the attributes to change.
pub(super) fn set_attr(
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size: Option<u64>,
    atime: Option<TimeOrNow>,
    mtime: Option<TimeOrNow>,
    ctime: Option<SystemTime>,
) -> SetAttr {
    let time = |time| match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
    };
    SetAttr {
        perm: mode.map(|mode| mode & 0o7777),
        uid,
        gid,
        size,
        atime: atime.map(time),
        mtime: mtime.map(time),
        ctime: ctime.map(timestamp),
    }
}

/// Undoes what fuser 0.18 makes of times before 1970: it subtracts the nanoseconds from the epoch
/// instead of adding them to the seconds, which loses nothing.
fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => Timestamp::from(time),
        Err(before) => {
            let before: Duration = before.duration();
            let secs = before.as_secs().cast_signed().wrapping_neg();
            Timestamp {
                secs,
                nanos: before.subsec_nanos(),
            }
        }
    }
}

/// Returns what a rename is to do with its destination, unless the flags make no sense together.
pub(super) fn rename_mode(flags: RenameFlags) -> Option<RenameMode> {
    if flags.is_empty() {
        Some(RenameMode::Replace)
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        Some(RenameMode::NoReplace)
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        Some(RenameMode::Exchange)
    } else if flags == RenameFlags::RENAME_WHITEOUT {
        Some(RenameMode::Whiteout)
    } else {
        None
    }
}

/// Returns how an extended attribute is to be set.
pub(super) fn xattr_mode(flags: i32) -> Option<XattrMode> {
    match flags {
        0 => Some(XattrMode::Either),
        libc::XATTR_CREATE => Some(XattrMode::Create),
        libc::XATTR_REPLACE => Some(XattrMode::Replace),
        _ => None,
    }
}

/// Returns what fallocate is to do; `None` for what no view can.
pub(super) fn allocate_mode(mode: i32) -> Option<AllocateMode> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = ZERO | KEEP;
    match mode {
        0 => Some(AllocateMode::Reserve { keep_size: false }),
        KEEP => Some(AllocateMode::Reserve { keep_size: true }),
        PUNCH => Some(AllocateMode::PunchHole),
        ZERO => Some(AllocateMode::ZeroRange { keep_size: false }),
        ZERO_KEEP => Some(AllocateMode::ZeroRange { keep_size: true }),
        _ => None,
    }
}

/// Returns what to seek.
pub(super) fn seek_to(whence: i32) -> Option<SeekTo> {
    match whence {
        libc::SEEK_DATA => Some(SeekTo::Data),
        libc::SEEK_HOLE => Some(SeekTo::Hole),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fuser makes of the protocol's seconds and nanoseconds.
    fn fuser_time(secs: i64, nanos: u32) -> SystemTime {
        if secs >= 0 {
            UNIX_EPOCH + Duration::new(secs.cast_unsigned(), nanos)
        } else {
            UNIX_EPOCH - Duration::new(secs.unsigned_abs(), nanos)
        }
    }

    #[test]
    fn times_survive_fuser() {
        for (secs, nanos) in [
            (0, 0),
            (5, 1),
            (-1, 0),
            (-1, 999_999_999),
            (-2, 800_000_000),
        ] {
            assert_eq!(
                timestamp(fuser_time(secs, nanos)),
                Timestamp { secs, nanos }
            );
        }
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        let both = RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE;
        assert_eq!(rename_mode(both), None);
        assert_eq!(allocate_mode(libc::FALLOC_FL_COLLAPSE_RANGE), None);
        assert_eq!(allocate_mode(libc::FALLOC_FL_PUNCH_HOLE), None);
        assert_eq!(xattr_mode(libc::XATTR_CREATE | libc::XATTR_REPLACE), None);
    }
}
