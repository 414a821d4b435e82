//! Names, and what each head sees of them: I10, I11.

use crate::attr::FileKind;
use crate::check::tree::At;
use crate::check::{Checker, Place};
use crate::id::{Ino, LayerId};
use crate::kv::Table;
use crate::layout::key;
use crate::layout::record::{DentryRecord, InodeRecord};
use crate::view::NAME_BYTES_MAX;

impl Checker<'_> {
    /// Looks at the version of a name that a layer wrote.
    pub(super) fn name(&mut self, at: &mut At, thing: &[u8]) {
        let layer = at.layer;
        // What does not decode was noted when the tables were read.
        let Ok((dir, _, name)) = key::parse_dentry(thing) else {
            return;
        };
        let place = Place::Version(Table::Dentries, thing, layer);
        let here = format!(
            "name '{}' in directory {dir}, layer {layer}",
            name.escape_ascii()
        );
        let older = at
            .parent
            .map(|parent| self.newest(Table::Dentries, thing, parent));
        let older = match older.transpose() {
            Ok(found) => found.flatten().map(|(_, value)| value),
            Err(error) => {
                self.problem(
                    "I1",
                    "an entry is damaged",
                    format!("{here}: {error}"),
                    place,
                );
                return;
            }
        };
        let old = older
            .as_deref()
            .and_then(|value| DentryRecord::decode(value).ok())
            .flatten();
        let value = self.get(Table::Dentries, &key::versioned(thing, layer), place);
        let Some(Ok(new)) = value.as_deref().map(DentryRecord::decode) else {
            return;
        };
        Self::grown(at, dir, new.as_ref(), old.as_ref());
        let Some(new) = new else { return };
        let legal = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && !name.contains(&0)
            && !name.contains(&b'/')
            && name != b"."
            && name != b"..";
        if !legal {
            self.problem(
                "I10",
                "a name is none that a directory can have",
                here.clone(),
                place,
            );
        }
        if new.fresh && older.is_some() {
            let detail = format!("{here}: it is said to be new, and is not");
            self.problem("I15", "a name contradicts an older one", detail, place);
        }
        match self.seen_inode(dir, layer) {
            Some(record) if record.attr.kind == FileKind::Directory && record.attr.nlink > 0 => {}
            Some(_) => {
                self.problem(
                    "I10",
                    "a name lies in what is no directory",
                    here.clone(),
                    place,
                );
            }
            None => {
                self.problem(
                    "I10",
                    "a name lies in a directory that is gone",
                    here.clone(),
                    place,
                );
            }
        }
        match self.seen_inode(new.ino, layer) {
            None => {
                let detail = format!("{here}: inode {}", new.ino);
                self.problem(
                    "I10",
                    "a name leads to an inode that is not there",
                    detail,
                    place,
                );
            }
            Some(record) if record.attr.kind != new.kind => {
                let detail = format!("{here}: {:?}, not {:?}", new.kind, record.attr.kind);
                self.problem("I10", "a name and its inode differ in kind", detail, place);
            }
            Some(record) if record.attr.nlink == 0 => {
                let detail = format!("{here}: inode {}", new.ino);
                self.problem(
                    "I14",
                    "a name leads to an inode that was removed",
                    detail,
                    place,
                );
            }
            Some(record) => {
                let own = self.names_of(&record, layer);
                if !own
                    .iter()
                    .any(|(parent, own)| *parent == dir && own == name)
                {
                    let detail = format!("{here}: inode {}", new.ino);
                    self.problem(
                        "I11",
                        "an inode does not know one of its names",
                        detail,
                        place,
                    );
                }
            }
        }
    }

    /// Returns an inode as a layer sees it. Damage was noted when the tables were read.
    pub(super) fn seen_inode(&self, ino: Ino, layer: LayerId) -> Option<InodeRecord> {
        let found = self
            .newest(Table::Inodes, &key::inode(ino), layer)
            .ok()
            .flatten();
        let value = found
            .map(|(_, value)| value)
            .filter(|value| !value.is_empty())?;
        InodeRecord::decode(ino, &value).ok()
    }

    /// Returns what a name leads to.
    pub(super) fn leads(&self, dir: Ino, name: &[u8], layer: LayerId) -> Option<Ino> {
        let thing = key::dentry(dir, self.store.hash(name), name);
        let found = self.newest(Table::Dentries, &thing, layer).ok().flatten();
        let record = DentryRecord::decode(&found?.1).ok().flatten();
        record.map(|record| record.ino)
    }

    /// Returns the names that an inode says it has, the first one first.
    pub(super) fn names_of(&self, record: &InodeRecord, layer: LayerId) -> Vec<(Ino, Vec<u8>)> {
        let mut names = vec![(record.parent, record.name.clone())];
        let prefix = key::inode(record.attr.ino);
        let mut visit = |thing: &[u8], _: LayerId, value: &[u8]| {
            if !value.is_empty() {
                let (_, parent, name) = key::parse_link(thing)?;
                names.push((parent, name.to_vec()));
            }
            Ok(true)
        };
        // A scan that fails was noted when the table was read.
        let _ = self
            .store
            .scan_versions(Table::Links, &prefix, &prefix, layer, &mut visit);
        names
    }

    /// Returns whether anything is in a directory.
    pub(super) fn has_names(&self, dir: Ino, layer: LayerId) -> bool {
        self.has_any(Table::Dentries, dir, layer)
    }

    /// Returns whether an inode has extended attributes.
    pub(super) fn has_xattrs(&self, ino: Ino, layer: LayerId) -> bool {
        self.has_any(Table::Xattrs, ino, layer)
    }

    fn has_any(&self, table: Table, ino: Ino, layer: LayerId) -> bool {
        let mut any = false;
        let prefix = key::inode(ino);
        let mut visit = |_: &[u8], _: LayerId, value: &[u8]| {
            any = !value.is_empty();
            Ok(!any)
        };
        let _ = self
            .store
            .scan_versions(table, &prefix, &prefix, layer, &mut visit);
        any
    }

    /// Returns whether an inode comes from the base.
    pub(super) fn is_of_base(&self, ino: Ino) -> bool {
        self.store
            .base_record(ino)
            .is_ok_and(|record| record.is_some())
    }
}
