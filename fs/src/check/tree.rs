//! What each layer makes of the tree: I11 to I15.
//!
//! A layer's tree is its parent's with the layer's changes. So it is enough to look, in each layer, at
//! what its changes touch: that costs time in proportion to the changes, however many layers there are
//! and however large the trees.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::attr::FileKind;
use crate::check::{Checker, Place};
use crate::id::{Ino, LayerId};
use crate::kv::{Key, Table};
use crate::layout::key::{self, ChangeOf};
use crate::layout::record::{DentryRecord, InodeRecord, LayerState};

/// A layer while it is being looked at.
pub(super) struct At {
    pub(super) layer: LayerId,
    pub(super) parent: Option<LayerId>,
    /// Directories known to lie below the root.
    rooted: HashSet<Ino>,
    /// By how many subdirectories each directory grew.
    growth: BTreeMap<Ino, i64>,
    pub(super) touched: BTreeSet<Ino>,
    orphans: HashSet<Ino>,
}

impl Checker<'_> {
    /// Looks at all layers, the oldest first.
    pub(super) fn all_layers(&mut self) {
        let layers: Vec<_> = self
            .layers
            .iter()
            .filter(|(_, record)| record.state != LayerState::Dead)
            .map(|(id, record)| (*id, record.parent))
            .collect();
        for (layer, mut parent) in layers {
            let mut also = None;
            match self.folding {
                // Half of it is in the other already, and nobody sees it but through that one.
                Some((folded, _)) if folded == layer => continue,
                Some((folded, into)) if into == layer => {
                    parent = self.layers.get(&folded).and_then(|record| record.parent);
                    also = Some(folded);
                }
                _ => {}
            }
            self.layer(layer, also, parent);
        }
    }

    /// Looks at what the changes of one layer touch, and those of another that it takes in.
    fn layer(&mut self, layer: LayerId, also: Option<LayerId>, parent: Option<LayerId>) {
        let mut at = At {
            layer,
            parent,
            rooted: HashSet::new(),
            growth: BTreeMap::new(),
            touched: BTreeSet::new(),
            orphans: HashSet::new(),
        };
        let mut names = Vec::new();
        if layer == LayerId::ROOT {
            names = std::mem::take(&mut self.root_names);
            let things = std::mem::take(&mut self.root_inodes);
            let links = std::mem::take(&mut self.root_links);
            at.touched.extend(
                things
                    .iter()
                    .chain(&links)
                    .filter_map(|thing| key::leading_ino(Table::Inodes, thing).ok()),
            );
        }
        for changed in [Some(layer), also].into_iter().flatten() {
            let from = key::changes_of_layer(changed);
            self.each(Table::Changes, &from, &mut |_, found, _| {
                let Ok((_, of, thing)) = key::parse_change(found) else {
                    return;
                };
                let Ok(ino) = key::leading_ino(Table::Changes, thing) else {
                    return;
                };
                match of {
                    ChangeOf::Dentry => names.push(Key::from_slice(thing)),
                    ChangeOf::Inode | ChangeOf::Link => {
                        at.touched.insert(ino);
                    }
                    ChangeOf::Orphan => {
                        at.orphans.insert(ino);
                    }
                    ChangeOf::Xattr | ChangeOf::Blocks => {
                        at.touched.insert(ino);
                    }
                }
            });
        }
        for thing in &names {
            if self.interrupted.is_some() {
                return;
            }
            self.step("looking at names");
            self.name(&mut at, thing);
        }
        for ino in std::mem::take(&mut at.touched) {
            if self.interrupted.is_some() {
                return;
            }
            self.step("looking at inodes");
            self.inode(&mut at, ino);
        }
    }

    /// Notes that directory `dir` lost or gained names, with what they stood for.
    pub(super) fn grown(
        at: &mut At,
        dir: Ino,
        new: Option<&DentryRecord>,
        old: Option<&DentryRecord>,
    ) {
        let is_dir = |record: Option<&DentryRecord>| {
            i64::from(record.is_some_and(|record| record.kind == FileKind::Directory))
        };
        *at.growth.entry(dir).or_insert(0) += is_dir(new) - is_dir(old);
        at.touched.insert(dir);
        at.touched.extend(new.map(|record| record.ino));
        at.touched.extend(old.map(|record| record.ino));
    }

    fn inode(&mut self, at: &mut At, ino: Ino) {
        let layer = at.layer;
        let thing = key::inode(ino);
        let place = Place::Version(Table::Inodes, &thing, layer);
        let before = at.parent.and_then(|parent| self.seen_inode(ino, parent));
        let Some(record) = self.seen_inode(ino, layer) else {
            self.gone(at, ino, before.as_ref());
            return;
        };
        self.flags(at, &record);
        if record.attr.nlink == 0 {
            let was_orphan = before.as_ref().is_some_and(|before| before.attr.nlink == 0);
            if !was_orphan && !at.orphans.contains(&ino) && layer != LayerId::ROOT {
                let detail = format!("inode {ino}, layer {layer}");
                self.problem(
                    "I12",
                    "an inode without names is not noted as such",
                    detail,
                    place,
                );
            }
            self.gone(at, ino, before.as_ref());
            return;
        }
        if record.attr.kind == FileKind::Directory {
            self.directory(at, &record, before.as_ref());
        } else {
            self.link_count(at, &record);
        }
    }

    /// An inode that is not there, or has no name any more, must not be found by one.
    fn gone(&mut self, at: &At, ino: Ino, before: Option<&InodeRecord>) {
        let layer = at.layer;
        if let (Some(before), Some(parent)) = (before, at.parent) {
            for (dir, name) in self.names_of(before, parent) {
                if self.leads(dir, &name, layer) == Some(ino) {
                    let name = name.escape_ascii();
                    let detail =
                        format!("inode {ino}, name '{name}' in directory {dir}, layer {layer}");
                    let what = "a name leads to an inode that was removed";
                    self.problem("I14", what, detail, Place::Layer(layer));
                }
            }
            if before.attr.kind == FileKind::Directory && self.has_names(ino, layer) {
                let detail = format!("inode {ino}, layer {layer}");
                let what = "a directory was removed with names in it";
                self.problem("I14", what, detail, Place::Layer(layer));
            }
        }
    }

    fn link_count(&mut self, at: &At, record: &InodeRecord) {
        let (ino, layer) = (record.attr.ino, at.layer);
        let names = self.names_of(record, layer);
        let unique: BTreeSet<_> = names.iter().collect();
        let mut count = 0;
        let in_base = self.is_of_base(ino);
        let thing = key::inode(ino);
        let place = Place::Version(Table::Inodes, &thing, layer);
        for (n, (dir, name)) in (0..).zip(&names) {
            if self.leads(*dir, name, layer) == Some(ino) {
                count += 1;
            } else if !(in_base && n == 0) {
                // The first name of a base file may be one that is gone, while others were not seen yet.
                let detail = format!(
                    "inode {ino}, name '{}' in directory {dir}, layer {layer}",
                    name.escape_ascii()
                );
                self.problem(
                    "I11",
                    "an inode's own name does not lead to it",
                    detail,
                    place,
                );
            }
        }
        if unique.len() != names.len() {
            let detail = format!("inode {ino}, layer {layer}");
            self.problem("I11", "an inode has one name twice", detail, place);
        }
        let nlink = record.attr.nlink;
        // Names of a base file in directories that nobody has looked into are not known.
        if count > nlink || (!in_base && count != nlink) {
            let detail =
                format!("inode {ino}, layer {layer}: {nlink}, but {count} names lead to it");
            self.problem("I12", "a link count is wrong", detail, place);
        }
    }

    fn directory(&mut self, at: &mut At, record: &InodeRecord, before: Option<&InodeRecord>) {
        let (ino, layer) = (record.attr.ino, at.layer);
        let thing = key::inode(ino);
        let place = Place::Version(Table::Inodes, &thing, layer);
        let growth = at.growth.get(&ino).copied().unwrap_or(0);
        let known = match before {
            Some(before) if before.attr.nlink > 0 => Some(i64::from(before.attr.nlink)),
            // What the base says of its directories depends on its file system.
            _ => (!record.in_base).then_some(2),
        };
        if known.is_some_and(|known| known + growth != i64::from(record.attr.nlink)) {
            let detail = format!(
                "directory {ino}, layer {layer}: {}, after {known:?} and {growth:+} subdirectories",
                record.attr.nlink
            );
            self.problem("I12", "a directory's link count is wrong", detail, place);
        }
        let is_top = ino == Ino::ROOT || ino == Ino::ANNEX;
        if !is_top && self.leads(record.parent, &record.name, layer) != Some(ino) {
            let detail = format!(
                "directory {ino}, name '{}' in directory {}, layer {layer}",
                record.name.escape_ascii(),
                record.parent
            );
            self.problem(
                "I13",
                "a directory's own name does not lead to it",
                detail,
                place,
            );
        }
        self.rooted(at, record, place);
    }

    /// Climbs from a directory to the root.
    fn rooted(&mut self, at: &mut At, record: &InodeRecord, place: Place<'_>) {
        let mut path = HashSet::new();
        let mut dir = record.attr.ino;
        let mut next = Some(record.clone());
        while dir != Ino::ROOT && dir != Ino::ANNEX && !at.rooted.contains(&dir) {
            let above = next.filter(|above| above.attr.kind == FileKind::Directory);
            let (Some(above), true) = (above, path.insert(dir)) else {
                let (ino, layer) = (record.attr.ino, at.layer);
                let detail = format!("directory {ino}, layer {layer}: stopped at {dir}");
                self.problem(
                    "I13",
                    "a directory does not lie below the root",
                    detail,
                    place,
                );
                return;
            };
            dir = above.parent;
            next = self.seen_inode(dir, at.layer);
        }
        at.rooted.extend(path);
    }

    /// Returns whether a layer is an ancestor of another, or was one: it may have been folded since.
    fn may_lie_behind(&self, layer: LayerId, older: LayerId) -> bool {
        older <= layer && (!self.layers.contains_key(&older) || self.sees(layer, older))
    }

    /// What a version says about older ones must be true, or err on the safe side.
    fn flags(&mut self, at: &At, record: &InodeRecord) {
        let (ino, layer) = (record.attr.ino, at.layer);
        let thing = key::inode(ino);
        let place = Place::Version(Table::Inodes, &thing, layer);
        let mut wrong = Vec::new();
        if !self.may_lie_behind(layer, record.born) {
            wrong.push(format!(
                "born in layer {}, which is no ancestor",
                record.born
            ));
        }
        if let Some(parent) = at.parent
            && record.born == layer
            && self.seen_inode(ino, parent).is_some()
        {
            wrong.push("born in this layer, but known before".to_owned());
        }
        let grows = record
            .cuts
            .windows(2)
            .all(|pair| pair[0].block < pair[1].block && pair[0].layer < pair[1].layer);
        if !grows
            || record
                .cuts
                .iter()
                .any(|cut| !self.may_lie_behind(layer, cut.layer))
        {
            wrong.push(format!("cuts {:?}", record.cuts));
        }
        if !record.has_xattrs && self.has_xattrs(ino, layer) {
            wrong.push("it has extended attributes but says no".to_owned());
        }
        if record.in_base && !self.is_of_base(ino) {
            wrong.push("it lies in the base, but nobody knows where".to_owned());
        }
        let attr = &record.attr;
        if attr.kind == FileKind::Regular && !self.is_of_base(ino) && !attr.blocks.is_multiple_of(8)
        {
            wrong.push(format!("{} sectors are no whole blocks", attr.blocks));
        }
        if attr.perm & !0o7777 != 0 || attr.size > i64::MAX as u64 {
            wrong.push(format!("size {}, mode {:o}", attr.size, attr.perm));
        }
        for what in wrong {
            let detail = format!("inode {ino}, layer {layer}: {what}");
            self.problem("I15", "an inode contradicts itself", detail, place);
        }
    }
}
