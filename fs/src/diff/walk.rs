//! From the root down to everything that differs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use nix::errno::Errno;

use crate::attr::{Attr, FileKind};
use crate::diff::compare::{same_blocks, same_content, same_xattrs};
use crate::diff::delta::Delta;
use crate::diff::{Change, ChangeKind};
use crate::error::Result;
use crate::id::Ino;
use crate::view::View;

pub(super) fn walk(a: &View, b: &View, delta: Delta) -> Result<Vec<Change>> {
    let mut walk = Walk {
        a,
        b,
        delta,
        changes: Vec::new(),
        removed: BTreeMap::new(),
        added: Vec::new(),
    };
    walk.lead_to_inodes()?;
    walk.directory(&[], Some(Ino::ROOT), Some(Ino::ROOT))?;
    walk.root_itself()?;
    walk.match_renames()?;
    let mut changes = walk.changes;
    changes.sort_by(|x, y| x.path.cmp(&y.path).then(x.kind.cmp(&y.kind)));
    Ok(changes)
}

struct Walk<'a> {
    a: &'a View,
    b: &'a View,
    delta: Delta,
    changes: Vec<Change>,
    /// What is gone from its path, whole subtrees included.
    removed: BTreeMap<Vec<u8>, Attr>,
    /// What is new at its path; of subtrees only the top.
    added: Vec<(Vec<u8>, Attr)>,
}

/// Lets an inode that a view does not have be nothing.
fn present<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.errno(), Errno::ESTALE | Errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

impl Walk<'_> {
    /// Adds to the delta's names those that lead to a changed inode or directory.
    fn lead_to_inodes(&mut self) -> Result<()> {
        let mut todo: Vec<Ino> = self.delta.inodes.iter().copied().collect();
        todo.extend(self.delta.names.keys().copied());
        let mut seen: HashSet<Ino> = todo.iter().copied().collect();
        while let Some(ino) = todo.pop() {
            if ino == Ino::ROOT {
                continue;
            }
            for view in [self.a, self.b] {
                for (parent, name) in present(view.names_of(ino))?.unwrap_or_default() {
                    self.delta.names.entry(parent).or_default().insert(name);
                    if seen.insert(parent) {
                        todo.push(parent);
                    }
                }
            }
        }
        Ok(())
    }

    fn root_itself(&mut self) -> Result<()> {
        let (old, new) = (self.a.getattr(Ino::ROOT)?, self.b.getattr(Ino::ROOT)?);
        if self.metadata_differs(&old, &new)? {
            self.push(ChangeKind::Metadata, Vec::new(), Some(old), Some(new));
        }
        Ok(())
    }

    fn push(&mut self, kind: ChangeKind, path: Vec<u8>, old: Option<Attr>, new: Option<Attr>) {
        self.changes.push(Change {
            path,
            kind,
            old,
            new,
            renamed_from: None,
        });
    }

    /// Compares the names of two directories at one path.
    fn directory(&mut self, path: &[u8], old: Option<Ino>, new: Option<Ino>) -> Result<()> {
        let names: BTreeSet<Vec<u8>> = match (old, new) {
            (Some(one), Some(other)) if one == other => {
                self.delta.names.get(&one).cloned().unwrap_or_default()
            }
            _ => {
                let mut names = BTreeSet::new();
                for (view, ino) in [(self.a, old), (self.b, new)] {
                    if let Some(ino) = ino {
                        names.extend(list(view, ino)?.into_iter().map(|(name, _)| name));
                    }
                }
                names
            }
        };
        for name in names {
            let find = |view: &View, dir: Option<Ino>| match dir {
                Some(dir) => present(view.lookup(dir, &name)),
                None => Ok(None),
            };
            let (was, is) = (find(self.a, old)?, find(self.b, new)?);
            self.entry(join(path, &name), was, is)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: Vec<u8>, old: Option<Attr>, new: Option<Attr>) -> Result<()> {
        match (old, new) {
            (None, None) => Ok(()),
            (None, Some(new)) => {
                self.added.push((path, new));
                Ok(())
            }
            (Some(old), None) => self.remove(path, old),
            (Some(old), Some(new)) if old.kind != new.kind => {
                if old.kind == FileKind::Directory {
                    for (name, child) in list(self.a, old.ino)? {
                        self.remove(join(&path, &name), child)?;
                    }
                }
                if new.kind == FileKind::Directory {
                    for (name, child) in list(self.b, new.ino)? {
                        self.added.push((join(&path, &name), child));
                    }
                }
                self.push(ChangeKind::TypeChanged, path, Some(old), Some(new));
                Ok(())
            }
            (Some(old), Some(new)) => {
                if let Some(kind) = self.difference(&old, &new)? {
                    self.push(kind, path.clone(), Some(old), Some(new));
                }
                match new.kind {
                    FileKind::Directory => self.directory(&path, Some(old.ino), Some(new.ino)),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Returns how two inodes of one kind differ, if they do.
    fn difference(&self, old: &Attr, new: &Attr) -> Result<Option<ChangeKind>> {
        if old.ino == new.ino && !self.delta.inodes.contains(&old.ino) {
            return Ok(None);
        }
        let same = if old.ino == new.ino && old.kind == FileKind::Regular {
            same_blocks(self.a, old, self.b, new, self.delta.blocks.get(&old.ino))?
        } else {
            same_content(self.a, old, self.b, new)?
        };
        if !same {
            return Ok(Some(ChangeKind::Modified));
        }
        Ok(self
            .metadata_differs(old, new)?
            .then_some(ChangeKind::Metadata))
    }

    fn metadata_differs(&self, old: &Attr, new: &Attr) -> Result<bool> {
        if (old.perm, old.uid, old.gid) != (new.perm, new.uid, new.gid) {
            return Ok(true);
        }
        let may_differ = old.ino != new.ino || self.delta.xattrs.contains(&old.ino);
        Ok(may_differ && !same_xattrs(self.a, old.ino, self.b, new.ino)?)
    }

    fn remove(&mut self, path: Vec<u8>, old: Attr) -> Result<()> {
        if old.kind == FileKind::Directory {
            for (name, child) in list(self.a, old.ino)? {
                self.remove(join(&path, &name), child)?;
            }
        }
        self.removed.insert(path, old);
        Ok(())
    }

    /// What is gone at one path and new at another, with the same inode, was renamed.
    fn match_renames(&mut self) -> Result<()> {
        let mut gone: HashMap<Ino, Vec<Vec<u8>>> = HashMap::new();
        for (path, attr) in self.removed.iter().rev() {
            gone.entry(attr.ino).or_default().push(path.clone());
        }
        while let Some((path, new)) = self.added.pop() {
            let from = gone.get_mut(&new.ino).and_then(Vec::pop);
            let Some((from, old)) =
                from.and_then(|from| self.removed.remove(&from).map(|old| (from, old)))
            else {
                if new.kind == FileKind::Directory {
                    for (name, child) in list(self.b, new.ino)? {
                        self.added.push((join(&path, &name), child));
                    }
                }
                self.push(ChangeKind::Added, path, None, Some(new));
                continue;
            };
            self.changes.push(Change {
                path: path.clone(),
                kind: ChangeKind::Renamed,
                old: Some(old),
                new: Some(new),
                renamed_from: Some(from.clone()),
            });
            if let Some(kind) = self.difference(&old, &new)? {
                self.push(kind, path.clone(), Some(old), Some(new));
            }
            if new.kind == FileKind::Directory {
                // What moved with it is not gone; what changed inside is found by its inode.
                let prefix = join(&from, b"");
                self.removed.retain(|path, _| !path.starts_with(&prefix));
                for paths in gone.values_mut() {
                    paths.retain(|path| !path.starts_with(&prefix));
                }
                let before = self.removed.clone();
                self.directory(&path, Some(old.ino), Some(new.ino))?;
                for (path, attr) in &self.removed {
                    if !before.contains_key(path) {
                        gone.entry(attr.ino).or_default().push(path.clone());
                    }
                }
            }
        }
        for (path, old) in std::mem::take(&mut self.removed) {
            self.push(ChangeKind::Removed, path, Some(old), None);
        }
        Ok(())
    }
}

/// Returns names and attributes of a directory's entries.
pub(super) fn list(view: &View, dir: Ino) -> Result<Vec<(Vec<u8>, Attr)>> {
    let mut entries = Vec::new();
    view.readdir_plus(dir, 0, &mut |entry, attr| {
        if entry.name != b"." && entry.name != b".." {
            entries.push((entry.name.clone(), *attr));
        }
        true
    })?;
    Ok(entries)
}
