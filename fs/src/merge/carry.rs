//! Carrying one side's changes over to the other, and finding what does not fit.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nix::errno::Errno;

use crate::attr::{Attr, Caller, FileKind, RenameMode};
use crate::diff::{Change, ChangeKind, same_content, same_xattrs};
use crate::error::Result;
use crate::id::Ino;
use crate::merge::MergeOutcome;
use crate::merge::transplant;
use crate::progress::Progress;
use crate::view::View;

pub(super) struct Carry {
    base: Arc<View>,
    theirs: Arc<View>,
    /// The scratch layer, which begins as our head.
    ours: Arc<View>,
    our_changes: HashMap<Vec<u8>, Change>,
    /// What their new inodes became here.
    made: HashMap<Ino, Ino>,
    their_removed: HashSet<Vec<u8>>,
    outcome: MergeOutcome,
    conflicts: Vec<String>,
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

fn found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error)
            if matches!(
                error.errno(),
                Errno::ENOENT | Errno::ESTALE | Errno::ENOTDIR
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns what a path leads to, without following links.
fn resolve(view: &View, path: &[u8]) -> Result<Option<Attr>> {
    let mut at = view.getattr(Ino::ROOT)?;
    for name in path
        .split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
    {
        match found(view.lookup(at.ino, name))? {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

impl Carry {
    pub(super) fn new(
        base: Arc<View>,
        theirs: Arc<View>,
        ours: Arc<View>,
        our_changes: HashMap<Vec<u8>, Change>,
        outcome: MergeOutcome,
    ) -> Self {
        Self {
            base,
            theirs,
            ours,
            our_changes,
            made: HashMap::new(),
            their_removed: HashSet::new(),
            outcome,
            conflicts: Vec::new(),
        }
    }

    pub(super) fn finish(self) -> (MergeOutcome, Vec<String>) {
        (self.outcome, self.conflicts)
    }

    /// Carries out all changes: what is renamed or made first, parents before what they hold;
    /// what is removed last, in the other order.
    pub(super) fn all(
        &mut self,
        changes: &[Change],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let removals: Vec<&Change> = changes
            .iter()
            .filter(|change| change.kind == ChangeKind::Removed)
            .collect();
        self.their_removed = removals.iter().map(|change| change.path.clone()).collect();
        let others = changes
            .iter()
            .filter(|change| change.kind != ChangeKind::Removed);
        let total = Some(changes.len() as u64);
        let ordered = others.chain(removals.into_iter().rev());
        for (done, change) in (1..).zip(ordered) {
            match change.kind {
                ChangeKind::Added => self.added(change)?,
                ChangeKind::Removed => self.removed(change)?,
                ChangeKind::Modified => self.modified(change)?,
                ChangeKind::Metadata => self.metadata(change)?,
                ChangeKind::Renamed => self.renamed(change)?,
                ChangeKind::TypeChanged => self.type_changed(change)?,
            }
            progress(Progress {
                done,
                total,
                what: "merging, in changes",
            });
        }
        Ok(())
    }

    fn conflict(&mut self, path: &[u8], what: &str) {
        self.conflicts.push(format!(
            "{}: {what}",
            String::from_utf8_lossy(path).escape_debug()
        ));
    }

    /// Returns the directory here in which their `path` belongs; [`None`] if there is none.
    fn parent_here(&self, path: &[u8]) -> Result<Option<Ino>> {
        let (dir, _) = split(path);
        let Some(their_dir) = resolve(&self.theirs, dir)? else {
            return Ok(None);
        };
        if let Some(made) = self.made.get(&their_dir.ino) {
            return Ok(Some(*made));
        }
        if let Some(same) = self.live(their_dir.ino)? {
            return Ok(Some(same.ino));
        }
        let here = resolve(&self.ours, dir)?;
        Ok(here
            .filter(|here| here.kind == FileKind::Directory)
            .map(|here| here.ino))
    }

    /// Returns our version of an inode if it has a name.
    fn live(&self, ino: Ino) -> Result<Option<Attr>> {
        Ok(found(self.ours.getattr(ino))?.filter(|attr| attr.nlink > 0))
    }

    fn same(&self, theirs: &Attr, ours: &Attr) -> Result<bool> {
        Ok(same_content(&self.theirs, theirs, &self.ours, ours)?
            && (theirs.perm, theirs.uid, theirs.gid) == (ours.perm, ours.uid, ours.gid)
            && same_xattrs(&self.theirs, theirs.ino, &self.ours, ours.ino)?)
    }

    fn added(&mut self, change: &Change) -> Result<()> {
        let Some(new) = change.new else { return Ok(()) };
        let (_, name) = split(&change.path);
        let Some(parent) = self.parent_here(&change.path)? else {
            self.conflict(&change.path, "added there, its directory was removed here");
            return Ok(());
        };
        if let Some(here) = found(self.ours.lookup(parent, name))? {
            let both_dirs = here.kind == FileKind::Directory && new.kind == FileKind::Directory;
            if both_dirs || self.same(&new, &here)? {
                self.made.insert(new.ino, here.ino);
                self.outcome.already_there += 1;
            } else {
                self.conflict(&change.path, "added on both sides, with different content");
            }
            return Ok(());
        }
        // A further name of a file that is here already, or that was just made.
        let known = match self.made.get(&new.ino) {
            Some(made) => Some(*made),
            None => self.live(new.ino)?.map(|here| here.ino),
        };
        match known.filter(|_| new.kind != FileKind::Directory) {
            Some(ino) => {
                self.ours.link(ino, parent, name)?;
            }
            None => {
                let made = transplant::make(&self.theirs, &new, &self.ours, parent, name)?;
                self.made.insert(new.ino, made.ino);
            }
        }
        self.outcome.added += 1;
        Ok(())
    }

    fn removed(&mut self, change: &Change) -> Result<()> {
        let Some(old) = change.old else { return Ok(()) };
        let (dir, name) = split(&change.path);
        let Some(parent) = resolve(&self.base, dir)? else {
            return Ok(());
        };
        let here = match self.live(parent.ino)? {
            Some(parent) => found(self.ours.lookup(parent.ino, name))?,
            None => None,
        };
        let Some(here) = here else {
            match self.live(old.ino)? {
                Some(_) if self.our_changes.contains_key(&change.path) => {
                    self.conflict(&change.path, "removed there, renamed here");
                }
                _ => self.outcome.already_there += 1,
            }
            return Ok(());
        };
        if old.kind == FileKind::Directory {
            match self.ours.rmdir(parent.ino, name) {
                Ok(()) => self.outcome.removed += 1,
                Err(error) if error.errno() == Errno::ENOTEMPTY => {
                    self.conflict(&change.path, "removed there, here it holds something new");
                }
                Err(error) if error.errno() == Errno::ENOTDIR => {
                    self.conflict(&change.path, "removed there, replaced here");
                }
                Err(error) => return Err(error),
            }
            return Ok(());
        }
        if here.ino != old.ino || self.our_changes.contains_key(&change.path) {
            self.conflict(&change.path, "removed there, modified here");
            return Ok(());
        }
        self.ours.unlink(parent.ino, name)?;
        self.outcome.removed += 1;
        Ok(())
    }

    /// Returns our counterpart of something that both sides had, wherever it is now.
    fn counterpart(&self, change: &Change) -> Result<Option<Attr>> {
        let Some(old) = change.old else {
            return Ok(None);
        };
        if let Some(same) = self.live(old.ino)? {
            return Ok(Some(same));
        }
        // We replaced it by another inode at the same path.
        resolve(&self.ours, &change.path)
    }

    fn modified(&mut self, change: &Change) -> Result<()> {
        let (Some(old), Some(new)) = (change.old, change.new) else {
            return Ok(());
        };
        let Some(here) = self.counterpart(change)? else {
            self.conflict(&change.path, "modified there, removed here");
            return Ok(());
        };
        let untouched = here.ino == old.ino && same_content(&self.base, &old, &self.ours, &here)?;
        if !untouched {
            if self.same(&new, &here)? {
                self.outcome.already_there += 1;
            } else {
                self.conflict(&change.path, "modified on both sides");
            }
            return Ok(());
        }
        if new.ino == old.ino && new.kind == FileKind::Regular {
            transplant::content(&self.theirs, &new, &self.ours, here.ino)?;
            self.merge_metadata(&old, &new, &here)?;
        } else {
            self.replace(change, &new, &here)?;
        }
        self.outcome.modified += 1;
        Ok(())
    }

    /// Puts a copy of their inode where ours is, which they replaced by another one.
    fn replace(&mut self, change: &Change, new: &Attr, here: &Attr) -> Result<()> {
        let (_, name) = split(&change.path);
        let names = self.ours.names_of(here.ino)?;
        let place = names
            .iter()
            .find(|(_, known)| known == name)
            .or_else(|| names.first())
            .cloned();
        let Some((parent, name)) = place else {
            return Ok(());
        };
        self.ours.unlink(parent, &name)?;
        match self.made.get(&new.ino) {
            Some(made) => {
                self.ours.link(*made, parent, &name)?;
            }
            None => {
                let made = transplant::make(&self.theirs, new, &self.ours, parent, &name)?;
                self.made.insert(new.ino, made.ino);
            }
        }
        Ok(())
    }

    /// Takes each attribute from the side that changed it; theirs if both did the same.
    fn merge_metadata(&mut self, old: &Attr, new: &Attr, here: &Attr) -> Result<()> {
        let mut wanted = *new;
        if new.perm == old.perm {
            wanted.perm = here.perm;
        }
        if new.uid == old.uid {
            wanted.uid = here.uid;
        }
        if new.gid == old.gid {
            wanted.gid = here.gid;
        }
        transplant::metadata(&self.theirs, &wanted, &self.ours, here.ino)
    }

    fn metadata(&mut self, change: &Change) -> Result<()> {
        let (Some(old), Some(new)) = (change.old, change.new) else {
            return Ok(());
        };
        let Some(here) = self.counterpart(change)? else {
            self.conflict(&change.path, "attributes changed there, removed here");
            return Ok(());
        };
        let one =
            |ours: u32, base: u32, theirs: u32| ours == base || theirs == base || ours == theirs;
        let fits = one(here.perm, old.perm, new.perm)
            && one(here.uid, old.uid, new.uid)
            && one(here.gid, old.gid, new.gid);
        let our_xattrs_changed = !same_xattrs(&self.base, old.ino, &self.ours, here.ino)?;
        let xattrs_fit =
            !our_xattrs_changed || same_xattrs(&self.theirs, new.ino, &self.ours, here.ino)?;
        if !fits || !xattrs_fit {
            self.conflict(&change.path, "attributes changed on both sides");
            return Ok(());
        }
        self.merge_metadata(&old, &new, &here)?;
        self.outcome.metadata += 1;
        Ok(())
    }

    fn renamed(&mut self, change: &Change) -> Result<()> {
        let (Some(old), Some(from)) = (change.old, &change.renamed_from) else {
            return Ok(());
        };
        let (from_dir, from_name) = split(from);
        let (_, name) = split(&change.path);
        let Some(here) = self.live(old.ino)? else {
            self.conflict(&change.path, "renamed there, removed here");
            return Ok(());
        };
        let Some(parent) = self.parent_here(&change.path)? else {
            self.conflict(
                &change.path,
                "renamed there, its directory was removed here",
            );
            return Ok(());
        };
        let at_target = found(self.ours.lookup(parent, name))?;
        if at_target.is_some_and(|at_target| at_target.ino == here.ino) {
            self.outcome.already_there += 1;
            return Ok(());
        }
        let from_parent = resolve(&self.base, from_dir)?;
        let source = match from_parent {
            Some(dir) => found(self.ours.lookup(dir.ino, from_name))?.map(|at| (dir.ino, at)),
            None => None,
        };
        let Some((source_dir, _)) = source.filter(|(_, at)| at.ino == here.ino) else {
            self.conflict(&change.path, "renamed on both sides");
            return Ok(());
        };
        // Their own removal of what stood there has not been carried over yet.
        let replaces = self.their_removed.contains(&change.path)
            || resolve(&self.base, &change.path)?.is_some();
        if at_target.is_some() && !replaces {
            self.conflict(&change.path, "renamed there to a name that is taken here");
            return Ok(());
        }
        let moved = self.ours.rename(
            Caller::ROOT,
            source_dir,
            from_name,
            parent,
            name,
            RenameMode::Replace,
        );
        match moved {
            Ok(()) => self.outcome.renamed += 1,
            Err(error)
                if matches!(
                    error.errno(),
                    Errno::EINVAL | Errno::ENOTEMPTY | Errno::EISDIR | Errno::ENOTDIR
                ) =>
            {
                self.conflict(
                    &change.path,
                    "renamed there, which does not fit what is here",
                );
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn type_changed(&mut self, change: &Change) -> Result<()> {
        let (Some(old), Some(new)) = (change.old, change.new) else {
            return Ok(());
        };
        let here = resolve(&self.ours, &change.path)?;
        let (_, name) = split(&change.path);
        let Some(here) = here.filter(|here| here.ino == old.ino) else {
            self.conflict(
                &change.path,
                "became another kind of file there, changed here",
            );
            return Ok(());
        };
        let Some(parent) = self.parent_here(&change.path)? else {
            return Ok(());
        };
        if here.kind == FileKind::Directory {
            self.remove_tree(parent, name, &change.path)?;
        } else if same_content(&self.base, &old, &self.ours, &here)? {
            self.ours.unlink(parent, name)?;
        } else {
            self.conflict(
                &change.path,
                "became another kind of file there, modified here",
            );
        }
        if found(self.ours.lookup(parent, name))?.is_none() {
            let made = transplant::make(&self.theirs, &new, &self.ours, parent, name)?;
            self.made.insert(new.ino, made.ino);
            self.outcome.modified += 1;
        }
        Ok(())
    }

    /// Removes a directory that they replaced, as far as we did not change what it holds.
    fn remove_tree(&mut self, parent: Ino, name: &[u8], path: &[u8]) -> Result<()> {
        let dir = self.ours.lookup(parent, name)?;
        let mut children = Vec::new();
        self.ours.readdir(dir.ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                children.push((entry.name.clone(), entry.kind));
            }
            true
        })?;
        for (child, kind) in children {
            let below = [path, b"/", &child].concat();
            if self.our_changes.contains_key(&below) {
                self.conflict(&below, "removed there, changed here");
            } else if kind == FileKind::Directory {
                self.remove_tree(dir.ino, &child, &below)?;
            } else {
                self.ours.unlink(dir.ino, &child)?;
            }
        }
        match self.ours.rmdir(parent, name) {
            Err(error) if error.errno() == Errno::ENOTEMPTY => Ok(()),
            other => other,
        }
    }
}
