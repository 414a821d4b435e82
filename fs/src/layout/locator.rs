//! Where the bytes of one version of one block are: the values of table `map`.

use crate::error::{Error, Result};
use crate::id::{BlockIndex, Ino, LayerId};
use crate::kv::Table;

/// Blocks in one run at most: 64 KiB, the size at which the engine writes fastest.
pub const RUN_BLOCKS: u64 = 16;

/// Contents up to this many bytes lie in the locator itself.
pub const INLINE_BYTES_MAX: usize = 64;

/// Which run holds a block, and which of the run's blocks it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPlace {
    /// Position of the block in the run.
    pub index: u8,
    /// Blocks in the run.
    pub count: u8,
    /// CRC-32C of the block's stored bytes.
    pub checksum: u32,
    /// What makes the run's key unique.
    pub sequence: u64,
}

/// The layer, object and first block under which a run is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOwner {
    /// Layer whose data it is.
    pub layer: LayerId,
    /// Object that wrote it.
    pub object: Ino,
    /// First block of the run in that object.
    pub first: BlockIndex,
}

/// Where the bytes of a block are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locator {
    /// Nowhere: it reads as zeros and takes no space.
    Hole,
    /// Here. Bytes up to the end of the block are zeros.
    Inline(Vec<u8>),
    /// In a run of the same layer and object.
    Run(RunPlace),
    /// In a run of another layer or object, from which it was copied without moving the bytes.
    Shared(RunPlace, RunOwner),
    /// In the base: that block of that base inode.
    Base(Ino, BlockIndex),
}

const HOLE: u8 = 0;
const INLINE: u8 = 1;
const RUN: u8 = 2;
const SHARED: u8 = 3;
const BASE: u8 = 4;

impl Locator {
    /// Returns the value to store.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Hole => vec![HOLE],
            Self::Inline(bytes) => {
                debug_assert!(bytes.len() <= INLINE_BYTES_MAX);
                let mut value = Vec::with_capacity(5 + bytes.len());
                value.push(INLINE);
                value.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
                value.extend_from_slice(bytes);
                value
            }
            Self::Run(place) => encode_place(RUN, place),
            Self::Shared(place, owner) => {
                let mut value = encode_place(SHARED, place);
                value.extend_from_slice(&owner.layer.0.to_le_bytes());
                value.extend_from_slice(&owner.object.0.to_le_bytes());
                value.extend_from_slice(&owner.first.0.to_le_bytes());
                value
            }
            Self::Base(ino, block) => {
                let mut value = vec![BASE];
                value.extend_from_slice(&ino.0.to_le_bytes());
                value.extend_from_slice(&block.0.to_le_bytes());
                value
            }
        }
    }

    /// Returns the locator that `value` encodes.
    ///
    /// # Errors
    /// [`Error::BadEntry`] if it is malformed.
    pub fn decode(value: &[u8]) -> Result<Self> {
        match value {
            [HOLE] => Ok(Self::Hole),
            [INLINE, rest @ ..] => match rest.split_first_chunk::<4>() {
                Some((sum, bytes)) if bytes.len() <= INLINE_BYTES_MAX => {
                    if crc32c::crc32c(bytes) == u32::from_le_bytes(*sum) {
                        Ok(Self::Inline(bytes.to_vec()))
                    } else {
                        Err(bad("checksum of an inline block"))
                    }
                }
                _ => Err(bad("length of an inline block")),
            },
            [RUN, rest @ ..] => match decode_place(rest)? {
                (place, []) => Ok(Self::Run(place)),
                _ => Err(bad("length of a locator")),
            },
            [SHARED, rest @ ..] => {
                let (place, rest) = decode_place(rest)?;
                let (layer, rest) = number(rest)?;
                let (object, rest) = number(rest)?;
                let (first, rest) = number(rest)?;
                if !rest.is_empty() {
                    return Err(bad("length of a locator"));
                }
                let owner = RunOwner {
                    layer: LayerId(layer),
                    object: Ino(object),
                    first: BlockIndex(first),
                };
                Ok(Self::Shared(place, owner))
            }
            [BASE, rest @ ..] => {
                let (ino, rest) = number(rest)?;
                let (block, rest) = number(rest)?;
                if !rest.is_empty() {
                    return Err(bad("length of a locator"));
                }
                Ok(Self::Base(Ino(ino), BlockIndex(block)))
            }
            _ => Err(bad("unknown kind of locator")),
        }
    }

    /// Returns whether the block takes space.
    pub const fn is_allocated(&self) -> bool {
        !matches!(self, Self::Hole)
    }
}

fn encode_place(tag: u8, place: &RunPlace) -> Vec<u8> {
    let mut value = Vec::with_capacity(40);
    value.push(tag);
    value.push(place.index);
    value.push(place.count);
    value.extend_from_slice(&place.checksum.to_le_bytes());
    value.extend_from_slice(&place.sequence.to_le_bytes());
    value
}

fn decode_place(bytes: &[u8]) -> Result<(RunPlace, &[u8])> {
    let Some(([index, count, sum @ ..], rest)) = bytes.split_first_chunk::<6>() else {
        return Err(bad("length of a locator"));
    };
    if index >= count || u64::from(*count) > RUN_BLOCKS {
        return Err(bad("place in a run"));
    }
    let (sequence, rest) = number(rest)?;
    let checksum = u32::from_le_bytes(*sum);
    Ok((
        RunPlace {
            index: *index,
            count: *count,
            checksum,
            sequence,
        },
        rest,
    ))
}

fn number(bytes: &[u8]) -> Result<(u64, &[u8])> {
    bytes
        .split_first_chunk::<8>()
        .map(|(number, rest)| (u64::from_le_bytes(*number), rest))
        .ok_or_else(|| bad("length of a locator"))
}

fn bad(what: &str) -> Error {
    Error::BadEntry {
        table: Table::Map.name(),
        what: what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_round_trips_and_truncation_is_an_error() {
        let place = RunPlace {
            index: 3,
            count: 16,
            checksum: 0xdead_beef,
            sequence: 1 << 40,
        };
        let owner = RunOwner {
            layer: LayerId(4),
            object: Ino(5),
            first: BlockIndex(6),
        };
        let all = [
            Locator::Hole,
            Locator::Inline(b"hello".to_vec()),
            Locator::Run(place),
            Locator::Shared(place, owner),
            Locator::Base(Ino(8), BlockIndex(9)),
        ];
        for locator in all {
            let value = locator.encode();
            assert_eq!(Locator::decode(&value).unwrap(), locator);
            assert!(
                Locator::decode(&value[..value.len() - 1]).is_err(),
                "{locator:?}"
            );
        }
    }

    #[test]
    fn a_flipped_bit_in_an_inline_block_is_found() {
        let mut value = Locator::Inline(b"hello".to_vec()).encode();
        *value.last_mut().unwrap() ^= 1;
        assert!(Locator::decode(&value).is_err());
    }
}
