//! What must be forgotten outside when a mount goes from one view to another.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::id::{Ino, LayerId};
use crate::kv::{Step, Table};
use crate::layout::key::{self, ChangeOf};
use crate::view::View;

/// Inodes that may differ between two heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Inodes whose content or attributes may differ.
    pub inodes: Vec<Ino>,
    /// Directories whose names may differ.
    pub dirs: Vec<Ino>,
}

impl View {
    /// Returns what may differ between this head and that of `other`, in time proportional to what
    /// was changed since their common ancestor.
    ///
    /// # Errors
    /// Those of the store.
    pub fn delta_inodes(&self, other: &View) -> Result<Delta> {
        let (a, b) = (self.head(), other.head());
        let store = self.store();
        // Nothing is folded while the lines are read.
        let _moving = store.moving.read();
        let lines: Vec<LayerId> = {
            let table = store.layer_table();
            let common = table.common_ancestor(a, b).ok_or(Error::BadLayer {
                layer: a,
                what: "it has another root",
            })?;
            let mut lines = table.line(a, Some(common));
            lines.extend(table.line(b, Some(common)));
            lines
        };
        let (mut inodes, mut dirs) = (BTreeSet::new(), BTreeSet::new());
        for layer in lines {
            let from = key::changes_of_layer(layer);
            store.kv().scan(Table::Changes, &from, &mut |found, _| {
                if !found.starts_with(&from) {
                    return Ok(Step::Stop);
                }
                let (_, of, thing) = key::parse_change(found)?;
                let ino = key::leading_ino(Table::Changes, thing)?;
                // Nobody outside knows these.
                if ino.is_annex() {
                    return Ok(Step::Next);
                }
                match of {
                    ChangeOf::Dentry => dirs.insert(ino),
                    _ => inodes.insert(ino),
                };
                Ok(Step::Next)
            })?;
        }
        Ok(Delta {
            inodes: inodes.into_iter().collect(),
            dirs: dirs.into_iter().collect(),
        })
    }
}
