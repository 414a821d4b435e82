//! The things that may differ between two layers.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::id::{Ino, LayerId};
use crate::kv::{Step, Table};
use crate::layout::bitmap::Bitmap;
use crate::layout::key::{self, ChangeOf};
use crate::store::Store;

/// Everything written on the lines from two layers up to their common ancestor.
#[derive(Debug, Default)]
pub(super) struct Delta {
    /// Inodes with other attributes, blocks or extended attributes.
    pub(super) inodes: HashSet<Ino>,
    /// Inodes with other extended attributes.
    pub(super) xattrs: HashSet<Ino>,
    /// Blocks that were written, by object and segment.
    pub(super) blocks: HashMap<Ino, HashMap<u64, Bitmap>>,
    /// Names that were written, by directory.
    pub(super) names: HashMap<Ino, BTreeSet<Vec<u8>>>,
}

pub(super) fn between(store: &Arc<Store>, a: LayerId, b: LayerId) -> Result<Delta> {
    let lines = {
        let table = store.layer_table();
        let common = table.common_ancestor(a, b).ok_or(Error::BadLayer {
            layer: a,
            what: "it has another root",
        })?;
        let mut lines = table.line(a, Some(common));
        lines.extend(table.line(b, Some(common)));
        lines
    };
    let mut delta = Delta::default();
    for layer in lines {
        let from = key::changes_of_layer(layer);
        store
            .kv()
            .scan(Table::Changes, &from, &mut |found, value| {
                if !found.starts_with(&from) {
                    return Ok(Step::Stop);
                }
                let (_, of, thing) = key::parse_change(found)?;
                delta.note(of, thing, value)?;
                Ok(Step::Next)
            })?;
    }
    Ok(delta)
}

impl Delta {
    fn note(&mut self, of: ChangeOf, thing: &[u8], value: &[u8]) -> Result<()> {
        match of {
            ChangeOf::Dentry => {
                let (parent, _, name) = key::parse_dentry(thing)?;
                self.names.entry(parent).or_default().insert(name.to_vec());
            }
            ChangeOf::Blocks => {
                let (ino, segment) = key::parse_segment(thing)?;
                self.inodes.insert(ino);
                let bitmap = Bitmap::decode(value)?;
                let segments = self.blocks.entry(ino).or_default();
                let merged = segments.entry(segment).or_default();
                bitmap.blocks(0).for_each(|block| {
                    merged.set(block.0);
                });
            }
            ChangeOf::Xattr => {
                let ino = key::leading_ino(Table::Changes, thing)?;
                self.inodes.insert(ino);
                self.xattrs.insert(ino);
            }
            ChangeOf::Inode => {
                self.inodes.insert(key::leading_ino(Table::Changes, thing)?);
            }
            ChangeOf::Link | ChangeOf::Orphan => {}
        }
        Ok(())
    }
}
