//! Flags of system calls into what the view does.

use crate::attr::{AllocateMode, RenameMode, SeekTo, XattrMode};

/// Returns what a rename is to do with its destination, unless the flags make no sense together.
pub(super) fn rename_mode(flags: u32) -> Option<RenameMode> {
    match flags {
        0 => Some(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Some(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Some(RenameMode::Exchange),
        libc::RENAME_WHITEOUT => Some(RenameMode::Whiteout),
        _ => None,
    }
}

/// Returns how an extended attribute is to be set.
pub(super) fn xattr_mode(flags: u32) -> Option<XattrMode> {
    match flags.cast_signed() {
        0 => Some(XattrMode::Either),
        libc::XATTR_CREATE => Some(XattrMode::Create),
        libc::XATTR_REPLACE => Some(XattrMode::Replace),
        _ => None,
    }
}

/// Returns what fallocate is to do; `None` for what no view can.
pub(super) fn allocate_mode(mode: u32) -> Option<AllocateMode> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = ZERO | KEEP;
    match mode.cast_signed() {
        0 => Some(AllocateMode::Reserve { keep_size: false }),
        KEEP => Some(AllocateMode::Reserve { keep_size: true }),
        PUNCH => Some(AllocateMode::PunchHole),
        ZERO => Some(AllocateMode::ZeroRange { keep_size: false }),
        ZERO_KEEP => Some(AllocateMode::ZeroRange { keep_size: true }),
        _ => None,
    }
}

/// Returns what to seek. The kernel asks for data and holes only.
pub(super) fn seek_to(whence: u32) -> Option<SeekTo> {
    match whence.cast_signed() {
        libc::SEEK_DATA => Some(SeekTo::Data),
        libc::SEEK_HOLE => Some(SeekTo::Hole),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        let both = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE;
        assert_eq!(rename_mode(both), None);
        for mode in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_PUNCH_HOLE] {
            assert_eq!(allocate_mode(mode.cast_unsigned()), None);
        }
        let both = libc::XATTR_CREATE | libc::XATTR_REPLACE;
        assert_eq!(xattr_mode(both.cast_unsigned()), None);
    }

    #[test]
    fn seeking_is_for_data_and_holes() {
        assert_eq!(seek_to(3), Some(SeekTo::Data));
        assert_eq!(seek_to(4), Some(SeekTo::Hole));
        assert_eq!(seek_to(0), None);
    }
}
