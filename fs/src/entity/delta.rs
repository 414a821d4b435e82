//! What the layers between two heads and their common ancestor changed.

use std::collections::{BTreeMap, BTreeSet};

use crate::entity::ChangedBlocks;
use crate::error::{Error, Result};
use crate::id::{BlockIndex, Ino, LayerId};
use crate::kv::{Step, Table};
use crate::layout::bitmap::Bitmap;
use crate::layout::key::{self, ChangeOf};
use crate::layout::record::InodeRecord;
use crate::store::Store;

/// Everything that some layers touched: what is not in here is the same on both ends.
#[derive(Debug, Default)]
pub(crate) struct LayerDelta {
    /// The layer on which they lie.
    pub(crate) common: Option<LayerId>,
    /// Names, by directory.
    pub(crate) names: BTreeMap<Ino, BTreeSet<Vec<u8>>>,
    /// Inodes whose attributes, extended attributes or content were touched.
    pub(crate) inodes: BTreeSet<Ino>,
    /// Which blocks of them.
    blocks: BTreeMap<Ino, BTreeMap<u64, Bitmap>>,
}

impl LayerDelta {
    /// Collects what was changed in each of `heads` since their common ancestor.
    pub(crate) fn since_common(store: &Store, a: LayerId, b: LayerId) -> Result<[Self; 2]> {
        // Nothing is folded while the lines are read.
        let _moving = store.moving.read();
        let (common, lines) = {
            let layers = store.layer_table();
            layers.get(a)?;
            layers.get(b)?;
            let common = layers.common_ancestor(a, b).ok_or(Error::BadLayer {
                layer: a,
                what: "it has another root",
            })?;
            (
                common,
                [layers.line(a, Some(common)), layers.line(b, Some(common))],
            )
        };
        let [mine, theirs] = lines.map(|line| -> Result<Self> {
            let mut delta = Self {
                common: Some(common),
                ..Self::default()
            };
            for layer in line {
                delta.add(store, layer)?;
            }
            Ok(delta)
        });
        Ok([mine?, theirs?])
    }

    /// Collects what may differ between `base` and `head`, whichever way one comes to the other.
    pub(crate) fn between(store: &Store, base: LayerId, head: LayerId) -> Result<Self> {
        let [mut delta, other] = Self::since_common(store, base, head)?;
        delta.merge(other);
        Ok(delta)
    }

    fn add(&mut self, store: &Store, layer: LayerId) -> Result<()> {
        let from = key::changes_of_layer(layer);
        store.kv().scan(Table::Changes, &from, &mut |found, value| {
            if !found.starts_with(&from) {
                return Ok(Step::Stop);
            }
            let (_, of, thing) = key::parse_change(found)?;
            // Not part of the tree.
            if key::leading_ino(Table::Changes, thing)?.is_annex() {
                return Ok(Step::Next);
            }
            match of {
                ChangeOf::Dentry => {
                    let (parent, _, name) = key::parse_dentry(thing)?;
                    self.names.entry(parent).or_default().insert(name.to_vec());
                }
                ChangeOf::Blocks => {
                    let (ino, segment) = key::parse_segment(thing)?;
                    self.inodes.insert(ino);
                    let all = self
                        .blocks
                        .entry(ino)
                        .or_default()
                        .entry(segment)
                        .or_default();
                    for block in Bitmap::decode(value)?.blocks(segment) {
                        all.set(Bitmap::place(block).1);
                    }
                }
                ChangeOf::Orphan => {}
                ChangeOf::Inode | ChangeOf::Link | ChangeOf::Xattr => {
                    self.inodes.insert(key::leading_ino(Table::Changes, thing)?);
                }
            }
            Ok(Step::Next)
        })
    }

    /// Adds what another line changed.
    pub(crate) fn merge(&mut self, other: Self) {
        for (parent, names) in other.names {
            self.names.entry(parent).or_default().extend(names);
        }
        self.inodes.extend(other.inodes);
        for (ino, segments) in other.blocks {
            let mine = self.blocks.entry(ino).or_default();
            for (segment, bitmap) in segments {
                let all = mine.entry(segment).or_default();
                for block in bitmap.blocks(segment) {
                    all.set(Bitmap::place(block).1);
                }
            }
        }
    }

    /// Returns the blocks of an inode that were written.
    pub(crate) fn blocks(&self, ino: Ino) -> BTreeSet<u64> {
        let segments = self.blocks.get(&ino);
        let blocks = segments
            .into_iter()
            .flatten()
            .flat_map(|(segment, bits)| bits.blocks(*segment));
        blocks.map(|BlockIndex(block)| block).collect()
    }

    /// Returns which blocks of one inode can differ between two ends of these lines. [`None`]: all.
    pub(crate) fn changed_blocks(
        &self,
        mine: &InodeRecord,
        theirs: &InodeRecord,
    ) -> Option<ChangedBlocks> {
        let common = self.common?;
        let ino = mine.attr.ino;
        let known = ino == theirs.attr.ino
            && mine.born == theirs.born
            && mine.born <= common
            && mine.in_base == theirs.in_base;
        known.then(|| ChangedBlocks {
            blocks: self.blocks(ino),
            all_from: cut_since(mine, common).min(cut_since(theirs, common)),
        })
    }
}

/// Returns the first block that a truncation after `common` took away.
pub(crate) fn cut_since(record: &InodeRecord, common: LayerId) -> u64 {
    let cuts = record.cuts.iter().filter(|cut| cut.layer > common);
    cuts.map(|cut| cut.block).min().unwrap_or(u64::MAX)
}
