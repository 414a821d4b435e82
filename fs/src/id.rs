//! Identifiers. Integers that could be swapped by mistake are types of their own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Bytes in one block, the unit in which content is versioned: a page of memory on x86-64, so that
/// an address space and a file are the same kind of object.
pub const BLOCK_BYTES: u64 = 4096;

/// An inode number. Equal to the object id of a regular file's content, never used again once
/// given, and the same in every layer, branch and mount of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory of every view.
    pub const ROOT: Ino = Ino(1);

    /// The annex of every view (see `view/annex.rs`). It and all in it have the highest bit set; what is in
    /// the tree never has.
    pub const ANNEX: Ino = Ino(1 << 63);

    /// Returns the number for something in the annex.
    pub(crate) const fn into_annex(self) -> Ino {
        Ino(self.0 | Self::ANNEX.0)
    }

    /// Returns the number as the store's counter gave it.
    pub(crate) const fn given(self) -> u64 {
        self.0 & !Self::ANNEX.0
    }

    /// Returns whether this is the annex or lies in it.
    pub const fn is_annex(self) -> bool {
        self.0 & Self::ANNEX.0 != 0
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A layer. Ids only grow, so a child's id is always greater than its parent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LayerId(pub u64);

impl LayerId {
    /// The root layer, ancestor of every other one: the base as it was first seen.
    pub const ROOT: LayerId = LayerId(1);
}

impl fmt::Display for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Index of a block in an object: byte offset divided by [`BLOCK_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u64);

impl BlockIndex {
    /// Returns the block that holds the byte at `offset`.
    pub const fn containing(offset: u64) -> Self {
        Self(offset / BLOCK_BYTES)
    }

    /// Returns the first block that starts at or after `offset` bytes.
    pub const fn at_or_after(offset: u64) -> Self {
        Self(offset.div_ceil(BLOCK_BYTES))
    }

    /// Returns the offset in bytes at which this block starts.
    pub const fn start(self) -> u64 {
        self.0 * BLOCK_BYTES
    }
}

/// A checkpoint's id: random, shown as 16 hexadecimal digits, accepted by any unique prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId(pub u64);

impl CheckpointId {
    /// Digits shown where space is short; still unique in any store of reasonable size.
    pub const SHORT_DIGITS: usize = 8;

    /// Returns the first [`CheckpointId::SHORT_DIGITS`] digits.
    pub fn short(self) -> String {
        let mut text = self.to_string();
        text.truncate(Self::SHORT_DIGITS);
        text
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CheckpointId({self})")
    }
}

impl FromStr for CheckpointId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let well_formed = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        well_formed
            .then(|| u64::from_str_radix(text, 16).ok().map(CheckpointId))
            .flatten()
            .ok_or_else(|| Error::NoSuchRevision {
                name: text.to_owned(),
            })
    }
}

impl Serialize for CheckpointId {
    fn serialize<S: serde::Serializer>(
        &self,
        serializer: S,
    ) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CheckpointId {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
