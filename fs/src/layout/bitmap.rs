//! Which blocks of an object a layer holds: bitmaps of fixed segments.

use crate::error::{Error, Result};
use crate::id::BlockIndex;
use crate::kv::Table;

/// Blocks in one segment: 2 MiB of content in 64 bytes of bitmap. Small, because a write of one
/// block rewrites the bitmap of its segment.
pub const SEGMENT_BLOCKS: u64 = 512;

const WORDS: usize = 8;
const _: () = assert!(WORDS as u64 * 64 == SEGMENT_BLOCKS);

/// The blocks of one segment that a layer holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bitmap([u64; WORDS]);

impl Bitmap {
    /// Returns segment and position in it of `block`.
    pub const fn place(block: BlockIndex) -> (u64, u64) {
        (block.0 / SEGMENT_BLOCKS, block.0 % SEGMENT_BLOCKS)
    }

    const fn bit(at: u64) -> (usize, u64) {
        ((at / 64) as usize, 1 << (at % 64))
    }

    /// Returns whether position `at` is set.
    pub const fn get(&self, at: u64) -> bool {
        let (word, mask) = Self::bit(at);
        self.0[word] & mask != 0
    }

    /// Sets position `at`; returns whether it was clear.
    pub const fn set(&mut self, at: u64) -> bool {
        let (word, mask) = Self::bit(at);
        let was_clear = self.0[word] & mask == 0;
        self.0[word] |= mask;
        was_clear
    }

    /// Clears position `at`; returns whether it was set.
    pub const fn clear(&mut self, at: u64) -> bool {
        let (word, mask) = Self::bit(at);
        let was_set = self.0[word] & mask != 0;
        self.0[word] &= !mask;
        was_set
    }

    /// Returns whether no position is set.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Returns how many positions are set.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns the blocks that are set, given the number of the segment.
    pub fn blocks(self, segment: u64) -> impl Iterator<Item = BlockIndex> {
        (0..SEGMENT_BLOCKS)
            .filter(move |at| self.get(*at))
            .map(move |at| BlockIndex(segment * SEGMENT_BLOCKS + at))
    }

    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Returns the bitmap that `value` encodes.
    ///
    /// # Errors
    /// [`Error::BadEntry`] if it has the wrong length.
    pub fn decode(value: &[u8]) -> Result<Self> {
        let bad = || Error::BadEntry {
            table: Table::Changes.name(),
            what: format!("a bitmap of {} bytes", value.len()),
        };
        let bytes: &[u8; WORDS * 8] = value.try_into().map_err(|_| bad())?;
        let mut words = [0; WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        Ok(Self(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_clear_and_round_trip() {
        let mut bitmap = Bitmap::default();
        assert!(bitmap.set(0) && bitmap.set(511) && bitmap.set(64) && !bitmap.set(64));
        assert_eq!(bitmap.count(), 3);
        let blocks: Vec<u64> = bitmap.blocks(2).map(|block| block.0).collect();
        assert_eq!(blocks, [1024, 1088, 1535]);
        assert_eq!(Bitmap::decode(&bitmap.encode()).unwrap(), bitmap);
        assert!(bitmap.clear(0) && !bitmap.clear(0));
        assert!(Bitmap::decode(&[0; 63]).is_err());
        assert_eq!(Bitmap::place(BlockIndex(513)), (1, 1));
    }
}
