//! Versioned entries and the changes that list them: I1, I6, I7.

use std::collections::HashMap;

use crate::check::scan::hex;
use crate::check::{Checker, Place};
use crate::id::{Ino, LayerId};
use crate::kv::{Key, Table};
use crate::layout::bitmap::{Bitmap, SEGMENT_BLOCKS};
use crate::layout::key::{self, ChangeOf, LAYER_BYTES};
use crate::layout::locator::Locator;
use crate::layout::record::{DentryRecord, InodeRecord};

/// Bitmaps kept while blocks are looked at in the order of objects.
const BITMAPS_MAX: usize = 4096;

const VERSIONED: [(Table, ChangeOf); 5] = [
    (Table::Inodes, ChangeOf::Inode),
    (Table::Dentries, ChangeOf::Dentry),
    (Table::Links, ChangeOf::Link),
    (Table::Xattrs, ChangeOf::Xattr),
    (Table::Map, ChangeOf::Blocks),
];

impl Checker<'_> {
    /// Looks at each version of each thing.
    pub(super) fn all_entries(&mut self) {
        for (table, of) in VERSIONED {
            let mut bitmaps = HashMap::new();
            self.each(table, &[], &mut |checker, found, value| {
                checker.step("looking at entries");
                checker.report.counts.entries += 1;
                checker.entry(table, of, found, value, &mut bitmaps);
            });
        }
    }

    fn entry(
        &mut self,
        table: Table,
        of: ChangeOf,
        found: &[u8],
        value: &[u8],
        bitmaps: &mut HashMap<(LayerId, Ino, u64), Bitmap>,
    ) {
        let layer = key::layer_of(table, found);
        let Some(layer) = self.read(layer, "key of a version", Place::Anywhere) else {
            return;
        };
        let thing = &found[..found.len() - LAYER_BYTES];
        let place = Place::Version(table, thing, layer);
        if let Ok(ino) = key::leading_ino(table, thing) {
            self.greatest_ino = self.greatest_ino.max(ino.given());
        }
        self.value(table, thing, layer, value);
        if !self.layers.contains_key(&layer) {
            let detail = format!(
                "table {}, thing {}, layer {layer}",
                table.name(),
                hex(thing)
            );
            self.problem("I6", "an entry belongs to no layer", detail, place);
            return;
        }
        if layer == LayerId::ROOT {
            match table {
                Table::Inodes => self.root_inodes.push(Key::from_slice(thing)),
                Table::Dentries => self.root_names.push(Key::from_slice(thing)),
                Table::Links => self.root_links.push(Key::from_slice(thing)),
                _ => {}
            }
            return;
        }
        if self.is_dead(layer) {
            return;
        }
        let listed = if of == ChangeOf::Blocks {
            self.in_bitmap(thing, layer, bitmaps)
        } else {
            self.get(Table::Changes, &key::change(layer, of, thing), place)
                .is_some()
        };
        if !listed {
            let detail = format!(
                "table {}, thing {}, layer {layer}",
                table.name(),
                hex(thing)
            );
            self.problem(
                "I6",
                "a change is not listed among those of its layer",
                detail,
                place,
            );
        }
    }

    fn in_bitmap(
        &mut self,
        thing: &[u8],
        layer: LayerId,
        bitmaps: &mut HashMap<(LayerId, Ino, u64), Bitmap>,
    ) -> bool {
        // A malformed key was noted with its value.
        let Ok((ino, block)) = key::parse_block(thing) else {
            return true;
        };
        let (segment, at) = Bitmap::place(block);
        if let Some(bitmap) = bitmaps.get(&(layer, ino, segment)) {
            return bitmap.get(at);
        }
        let change = key::change(layer, ChangeOf::Blocks, &key::segment(ino, segment));
        let place = Place::Version(Table::Map, thing, layer);
        let value = self.get(Table::Changes, &change, place);
        // A bitmap that does not decode is noted where changes are looked at.
        let bitmap = value
            .and_then(|value| Bitmap::decode(&value).ok())
            .unwrap_or_default();
        if bitmaps.len() >= BITMAPS_MAX {
            bitmaps.clear();
        }
        bitmaps.insert((layer, ino, segment), bitmap);
        bitmap.get(at)
    }

    /// Decodes one version, and follows it if it says where bytes are.
    fn value(&mut self, table: Table, thing: &[u8], layer: LayerId, value: &[u8]) {
        let place = Place::Version(table, thing, layer);
        let what = format!(
            "table {}, thing {}, layer {layer}",
            table.name(),
            hex(thing)
        );
        match table {
            Table::Inodes => {
                let ino = key::leading_ino(table, thing);
                let Some(ino) = self.read(ino, &what, place) else {
                    return;
                };
                if thing.len() != 8 {
                    self.problem("I1", "an entry is damaged", what, place);
                } else if !value.is_empty() {
                    self.read(InodeRecord::decode(ino, value), &what, place);
                }
            }
            Table::Dentries => {
                if let Some((_, hash, name)) = self.read(key::parse_dentry(thing), &what, place)
                    && self.store.hash(name) != hash
                {
                    self.problem(
                        "I10",
                        "a name is kept under a wrong hash",
                        what.clone(),
                        place,
                    );
                }
                self.read(DentryRecord::decode(value), &what, place);
            }
            Table::Links => {
                self.read(key::parse_link(thing), &what, place);
                if !matches!(value, [] | [1]) {
                    self.problem("I1", "an entry is damaged", what, place);
                }
            }
            Table::Xattrs => {
                self.read(key::parse_xattr(thing), &what, place);
                if !matches!(value, [] | [1, ..]) {
                    self.problem("I1", "an entry is damaged", what, place);
                }
            }
            _ => {
                let parsed = key::parse_block(thing);
                if self.read(parsed, &what, place).is_some()
                    && let Some(locator) = self.read(Locator::decode(value), &what, place)
                {
                    self.locator(thing, layer, &locator);
                }
            }
        }
    }

    /// Looks at each change, and whether what it lists is there.
    pub(super) fn all_changes(&mut self) {
        self.each(Table::Changes, &[], &mut |checker, found, value| {
            checker.step("looking at changes");
            checker.report.counts.changes += 1;
            checker.change(found, value);
        });
    }

    fn change(&mut self, found: &[u8], value: &[u8]) {
        let what = format!("change {}", hex(found));
        let Some((layer, of, thing)) = self.read(key::parse_change(found), &what, Place::Anywhere)
        else {
            return;
        };
        if !self.layers.contains_key(&layer) {
            self.problem("I7", "a change belongs to no layer", what, Place::Nowhere);
            return;
        }
        // The collector removes entries before changes.
        if self.is_dead(layer) {
            return;
        }
        let place = Place::Layer(layer);
        if let Some(table) = of.table() {
            let entry = key::versioned(thing, layer);
            if self.get(table, &entry, place).is_none() {
                let detail = format!("table {}, {what}", table.name());
                self.problem("I7", "what a change lists is missing", detail, place);
            }
            return;
        }
        if of != ChangeOf::Blocks {
            if thing.len() != 8 {
                self.problem("I1", "an entry is damaged", what, place);
            }
            return;
        }
        let parsed = key::parse_segment(thing);
        let (Some((ino, segment)), Some(bitmap)) = (
            self.read(parsed, &what, place),
            self.read(Bitmap::decode(value), &what, place),
        ) else {
            return;
        };
        if segment > u64::MAX / SEGMENT_BLOCKS - 1 {
            self.problem("I1", "an entry is damaged", what, place);
            return;
        }
        for block in bitmap.blocks(segment) {
            let thing = key::block(ino, block);
            let place = Place::Version(Table::Map, &thing, layer);
            if self
                .get(Table::Map, &key::versioned(&thing, layer), place)
                .is_none()
            {
                let detail = format!("block {} of inode {ino}, layer {layer}", block.0);
                self.problem(
                    "I7",
                    "a block that a change lists is missing",
                    detail,
                    place,
                );
            }
        }
    }
}
