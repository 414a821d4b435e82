//! Node ids: how the kernel names an inode of one of several views in one session.

use crate::id::Ino;

/// Bits of a node id that hold the inode number.
const INO_BITS: u32 = 40;
const INO_MASK: u64 = (1 << INO_BITS) - 1;

/// Number of the place in a session through which one view is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SlotId(pub(super) u32);

impl SlotId {
    /// The only slot of a mount that shows one view: its node ids equal the inode numbers. In a
    /// session with many, the directory that they are in.
    pub(super) const FIRST: SlotId = SlotId(0);

    /// The last slot: what the upper bits of a node id hold.
    pub(super) const MAX: SlotId = SlotId(u32::MAX >> (INO_BITS - 32));
}

/// What the kernel calls a node id: slot and inode number. The root of the first slot is 1, the
/// number that the protocol gives to the root of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    /// The slot.
    pub(super) slot: SlotId,
    /// The inode in the slot's view.
    pub(super) ino: Ino,
}

impl Node {
    /// The hidden directory of a slot, see [`super::control`]. No inode has this number: it
    /// would be the last one of 10¹².
    pub(super) const CONTROL: Ino = Ino(INO_MASK);

    /// Returns the node that the kernel means by `raw`.
    pub(super) fn from_raw(raw: u64) -> Self {
        let slot = u32::try_from(raw >> INO_BITS).unwrap_or(u32::MAX);
        Self {
            slot: SlotId(slot),
            ino: Ino(raw & INO_MASK),
        }
    }

    /// Returns the kernel's name for this node, or `None` if the inode number does not fit.
    pub(super) fn raw(self) -> Option<u64> {
        (self.ino.0 <= INO_MASK).then_some(u64::from(self.slot.0) << INO_BITS | self.ino.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_slot_is_transparent() {
        for ino in [1, 2, INO_MASK] {
            let node = Node {
                slot: SlotId::FIRST,
                ino: Ino(ino),
            };
            assert_eq!(node.raw(), Some(ino));
            assert_eq!(Node::from_raw(ino), node);
        }
    }

    #[test]
    fn slots_do_not_meet() {
        let node = Node {
            slot: SlotId(3),
            ino: Ino(1),
        };
        assert_eq!(node.raw(), Some((3 << 40) | 1));
        assert_eq!(Node::from_raw((3 << 40) | 1), node);
    }

    #[test]
    fn an_inode_number_that_does_not_fit_is_refused() {
        assert_eq!(
            Node {
                slot: SlotId(1),
                ino: Ino(1 << 40)
            }
            .raw(),
            None
        );
    }
}
