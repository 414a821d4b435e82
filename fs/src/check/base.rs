//! What is known about the base, and whether the base is still that: I16.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::attr::FileKind;
use crate::base::Base;
use crate::check::{Checker, Drift, Place};
use crate::id::{Ino, LayerId};
use crate::kv::{Key, Table};
use crate::layout::key;
use crate::layout::record::BaseRecord;

impl Checker<'_> {
    pub(super) fn base(&mut self) {
        let mut records: Vec<(Ino, BaseRecord)> = Vec::new();
        let mut index: Vec<Ino> = Vec::new();
        self.each(Table::Base, &[], &mut |checker, found, value| match found {
            [1, ino @ ..] if ino.len() == 8 => {
                let ino = key::leading_ino(Table::Base, ino);
                let Some(ino) = checker.read(ino, "key of a base inode", Place::Anywhere) else {
                    return;
                };
                let what = format!("base inode {ino}");
                let thing = key::inode(ino);
                let place = Place::Version(Table::Inodes, &thing, LayerId::ROOT);
                if let Some(record) = checker.read(BaseRecord::decode(value), &what, place) {
                    records.push((ino, record));
                }
            }
            [2, host @ ..] if host.len() == 16 => match <[u8; 8]>::try_from(value) {
                Ok(ino) => index.push(Ino(u64::from_le_bytes(ino))),
                Err(_) => {
                    let detail = "an index entry of the base has a wrong length".to_owned();
                    checker.problem("I1", "an entry is damaged", detail, Place::Anywhere);
                }
            },
            [3, ..] => {
                // What an apply left at a path, the empty one of the base itself included; nothing if
                // it removed what was there.
                if !value.is_empty() {
                    let what = "what was applied to the base";
                    checker.read(BaseRecord::decode(value), what, Place::Nowhere);
                }
            }
            _ => {
                let detail = format!("table base, key {}", super::scan::hex(found));
                checker.problem("I1", "an entry is damaged", detail, Place::Anywhere);
            }
        });
        self.report.counts.base_inodes = records.len() as u64;
        let known: std::collections::HashSet<Ino> = records.iter().map(|(ino, _)| *ino).collect();
        for ino in index.into_iter().filter(|ino| !known.contains(ino)) {
            let detail = format!("inode {ino}");
            self.problem(
                "I16",
                "the index of the base names an unknown inode",
                detail,
                Place::Nowhere,
            );
        }
        let store = self.store;
        if let Some(base) = store.base()
            && let Err(error) = base.check()
        {
            let path = base.dir().display().to_string();
            self.report.drift.push(Drift {
                path,
                what: error.to_string(),
            });
            return;
        }
        for (ino, record) in &records {
            self.step("comparing with the base");
            self.greatest_ino = self.greatest_ino.max(ino.given());
            let thing: Key = key::inode(*ino);
            let version = key::versioned(&thing, LayerId::ROOT);
            let place = Place::Version(Table::Inodes, &thing, LayerId::ROOT);
            if self.get(Table::Inodes, &version, place).is_none() {
                let detail = format!("inode {ino}, '{}'", shown(&record.path));
                self.problem(
                    "I16",
                    "an inode of the base has no first version",
                    detail,
                    place,
                );
                continue;
            }
            if let Some(base) = store.base() {
                self.drift(base, *ino, record);
            }
        }
    }

    fn drift(&mut self, base: &Base, ino: Ino, record: &BaseRecord) {
        let kind = self
            .seen_inode(ino, LayerId::ROOT)
            .map(|inode| inode.attr.kind);
        // Names and attributes were taken in at first sight. The base still matters for contents of
        // files, and for directories that nobody has looked into.
        let matters = match kind {
            Some(FileKind::Regular) => true,
            Some(FileKind::Directory) => !record.listed,
            _ => false,
        };
        if !matters {
            return;
        }
        let what = match base.stat(&record.path) {
            Ok(None) => "it is gone".to_owned(),
            Ok(Some(stat)) if FileKind::from_mode(stat.mode) != kind => {
                "it is something else now".to_owned()
            }
            Ok(Some(stat)) if kind == Some(FileKind::Regular) && stat.size != record.size => {
                format!("its size is {}, and was {}", stat.size, record.size)
            }
            Ok(Some(stat)) if kind == Some(FileKind::Regular) && stat.ctime != record.ctime => {
                "it was changed after it had first been seen".to_owned()
            }
            Ok(Some(_)) => return,
            Err(error) => format!("it cannot be read: {error}"),
        };
        self.report.drift.push(Drift {
            path: shown(&record.path),
            what,
        });
    }
}

fn shown(path: &[u8]) -> String {
    Path::new(OsStr::from_bytes(path)).display().to_string()
}
