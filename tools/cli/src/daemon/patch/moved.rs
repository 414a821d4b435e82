//! The files that moved along with a directory.
//!
//! The library lists a renamed directory as one change; git knows no directories and needs each
//! file in it.

use std::collections::HashSet;
use std::sync::Arc;

use branchpoint_fs::attr::{Attr, FileKind};
use branchpoint_fs::diff::{Change, ChangeKind};
use branchpoint_fs::error::ErrorKind;
use branchpoint_fs::id::Ino;
use branchpoint_fs::view::View;

use crate::failure::Result;

/// Makes one change of each file that moved along with a directory.
#[derive(Debug)]
pub(crate) struct Moved<'a> {
    old: &'a Arc<View>,
    new: &'a Arc<View>,
    /// Where something new is that is listed by itself.
    listed: HashSet<&'a [u8]>,
    /// Files that were said to be moved.
    said: HashSet<Vec<u8>>,
}

impl<'a> Moved<'a> {
    /// Looks at `changes`, which are all between two views.
    pub(crate) fn new(old: &'a Arc<View>, new: &'a Arc<View>, changes: &'a [Change]) -> Self {
        let by_itself = |change: &&Change| {
            matches!(
                change.kind,
                ChangeKind::Added | ChangeKind::Renamed | ChangeKind::TypeChanged
            )
        };
        let listed = changes
            .iter()
            .filter(by_itself)
            .map(|change| change.path.as_slice())
            .collect();
        let moved = changes
            .iter()
            .filter(|change| change.kind == ChangeKind::Renamed);
        let said = moved.map(|change| change.path.clone()).collect();
        Self {
            old,
            new,
            listed,
            said,
        }
    }

    /// Says whether a change of what is at a path was told together with its renaming.
    pub(crate) fn is_told(&self, change: &Change) -> bool {
        matches!(change.kind, ChangeKind::Modified | ChangeKind::Metadata)
            && self.said.contains(&change.path)
    }

    /// Returns what moved along with the directory that `change` renamed, in order of path.
    pub(crate) fn along(&mut self, change: &Change) -> Result<Vec<Change>> {
        let mut found = Vec::new();
        let (Some(from), Some(before), Some(after)) =
            (&change.renamed_from, &change.old, &change.new)
        else {
            return Ok(found);
        };
        if after.kind != FileKind::Directory {
            return Ok(found);
        }
        let mut todo = vec![(from.clone(), before.ino, change.path.clone(), after.ino)];
        while let Some((from, before, to, after)) = todo.pop() {
            for (name, attr) in entries(self.new, after)? {
                let (from, to) = (below(&from, &name), below(&to, &name));
                if self.listed.contains(to.as_slice()) {
                    continue;
                }
                let old = match self.old.lookup(before, &name) {
                    Ok(old) => old,
                    // It came there in a way that the list tells by other paths.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(error) => return Err(error.into()),
                };
                if old.kind != attr.kind {
                    continue;
                }
                if attr.kind == FileKind::Directory {
                    todo.push((from, old.ino, to, attr.ino));
                    continue;
                }
                self.said.insert(to.clone());
                found.push(Change {
                    path: to,
                    kind: ChangeKind::Renamed,
                    old: Some(old),
                    new: Some(attr),
                    renamed_from: Some(from),
                });
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }
}

fn entries(view: &View, dir: Ino) -> Result<Vec<(Vec<u8>, Attr)>> {
    let mut entries = Vec::new();
    view.readdir_plus(dir, 0, &mut |entry, attr| {
        if entry.name != b"." && entry.name != b".." {
            entries.push((entry.name.clone(), *attr));
        }
        true
    })?;
    Ok(entries)
}

fn below(dir: &[u8], name: &[u8]) -> Vec<u8> {
    [dir, b"/", name].concat()
}
