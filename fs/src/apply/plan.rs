//! What has to be done to a directory that is as the root layer says, to make it as the source says.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::same;
use crate::attr::{DirEntry, FileKind};
use crate::error::{Error, Result};
use crate::id::Ino;
use crate::tree::{self, children, join};
use crate::view::View;

/// What is to be done at a path.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// There is to be this directory, with its attributes.
    Directory(Ino),
    /// There is to be this file.
    Write(Ino),
    /// There is to be a further name of the file that is at `first`.
    Link { ino: Ino, first: Vec<u8> },
    /// There is to be nothing; `early` if something else takes the place.
    Remove { early: bool },
}

/// A path at which something is to be done.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) path: Vec<u8>,
    /// What the root layer has there.
    pub(super) old: Option<Ino>,
    pub(super) what: What,
}

/// Everything to be done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// In order of paths, a directory before what is in it.
    pub(super) steps: Vec<Step>,
    /// Files that stay as they are and get further names.
    pub(super) linked: BTreeMap<Vec<u8>, Ino>,
}

impl Plan {
    pub(super) fn make(old: &View, new: &View) -> Result<Plan> {
        let delta = old.delta_inodes(new)?;
        let mut maker = Maker {
            old,
            new,
            touched: delta.inodes.iter().copied().collect(),
            around: HashSet::new(),
            changed: HashMap::new(),
            placed: HashMap::new(),
            plan: Plan::default(),
        };
        for ino in delta.inodes.iter().chain(&delta.dirs) {
            maker.note_around(old, *ino)?;
            maker.note_around(new, *ino)?;
        }
        maker.compare_all()?;
        Ok(maker.plan)
    }
}

struct Maker<'a> {
    old: &'a View,
    new: &'a View,
    /// Inodes that may differ.
    touched: HashSet<Ino>,
    /// Directories below which something may differ.
    around: HashSet<Ino>,
    changed: HashMap<Ino, bool>,
    /// Where files with several names have been put.
    placed: HashMap<Ino, Vec<u8>>,
    plan: Plan,
}

/// A directory to be compared: its path, and what is there in the two views.
type Pair = (Vec<u8>, Option<Ino>, Option<Ino>);

impl Maker<'_> {
    fn note_around(&mut self, view: &View, ino: Ino) -> Result<()> {
        let names = match view.names_of(ino) {
            Ok(names) => names,
            Err(error) if error.errno() == nix::errno::Errno::ESTALE => return Ok(()),
            Err(error) => return Err(error),
        };
        self.around.insert(ino);
        for (mut dir, _) in names {
            while self.around.insert(dir) && dir != Ino::ROOT {
                match view.names_of(dir) {
                    Ok(names) => dir = names.first().map_or(Ino::ROOT, |(parent, _)| *parent),
                    Err(error) if error.errno() == nix::errno::Errno::ESTALE => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn compare_all(&mut self) -> Result<()> {
        if self.touched.contains(&Ino::ROOT) && self.changed(Ino::ROOT)? {
            self.step(Vec::new(), Some(Ino::ROOT), What::Directory(Ino::ROOT));
        }
        let mut open: Vec<Pair> = vec![(Vec::new(), Some(Ino::ROOT), Some(Ino::ROOT))];
        while let Some((path, old, new)) = open.pop() {
            let list = |view: &View, dir: Option<Ino>| match dir {
                Some(dir) => children(view, dir),
                None => Ok(Vec::new()),
            };
            let mut names: BTreeMap<Vec<u8>, [Option<DirEntry>; 2]> = BTreeMap::new();
            for (side, entries) in [list(self.old, old)?, list(self.new, new)?]
                .into_iter()
                .enumerate()
            {
                for entry in entries {
                    let name = entry.name.clone();
                    names.entry(name).or_default()[side] = Some(entry);
                }
            }
            for (name, [old, new]) in names {
                let below = join(&path, &name);
                open.extend(self.compare(below, old.as_ref(), new.as_ref())?);
            }
        }
        self.plan.steps.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(())
    }

    fn step(&mut self, path: Vec<u8>, old: Option<Ino>, what: What) {
        self.plan.steps.push(Step { path, old, what });
    }

    /// Plans one name. Returns the directory below it that has to be compared, if there is one.
    fn compare(
        &mut self,
        path: Vec<u8>,
        old: Option<&DirEntry>,
        new: Option<&DirEntry>,
    ) -> Result<Option<Pair>> {
        let dir = |entry: Option<&DirEntry>| {
            entry
                .filter(|entry| entry.kind == FileKind::Directory)
                .map(|entry| entry.ino)
        };
        let (old_dir, new_dir) = (dir(old), dir(new));
        let old_ino = old.map(|entry| entry.ino);
        if let (Some(old), Some(new)) = (old, new)
            && old.ino == new.ino
        {
            let changed = self.touched.contains(&new.ino) && self.changed(new.ino)?;
            if changed && new_dir.is_some() {
                self.step(path.clone(), old_ino, What::Directory(new.ino));
            } else if changed {
                self.put(path.clone(), old_ino, new.ino)?;
            }
            let inside = new_dir.is_some() && self.around.contains(&new.ino);
            return Ok(inside.then_some((path, old_dir, new_dir)));
        }
        match (new, new_dir) {
            (None, _) => self.step(path.clone(), old_ino, What::Remove { early: false }),
            (_, Some(new)) => self.step(path.clone(), old_ino, What::Directory(new)),
            (Some(new), None) => self.put(path.clone(), old_ino, new.ino)?,
        }
        if let (Some(old_dir), None, Some(_)) = (old_dir, new_dir, new) {
            // A file takes the directory's place, which must be empty before that.
            self.remove_all(&path, old_dir)?;
            return Ok(None);
        }
        let inside = old_dir.is_some() || new_dir.is_some();
        Ok(inside.then_some((path, old_dir, new_dir)))
    }

    fn remove_all(&mut self, path: &[u8], dir: Ino) -> Result<()> {
        let old = self.old;
        tree::walk(old, dir, path, &mut |path, attr| {
            self.step(path, Some(attr.ino), What::Remove { early: true });
            Ok(())
        })
    }

    fn put(&mut self, path: Vec<u8>, old: Option<Ino>, ino: Ino) -> Result<()> {
        if self.new.getattr(ino)?.nlink > 1 {
            if !self.placed.contains_key(&ino)
                && let Some(stays) = self.unchanged_name(ino)?
            {
                self.plan.linked.insert(stays.clone(), ino);
                self.placed.insert(ino, stays);
            }
            if let Some(first) = self.placed.get(&ino).cloned() {
                self.step(path, old, What::Link { ino, first });
                return Ok(());
            }
            self.placed.insert(ino, path.clone());
        }
        self.step(path, old, What::Write(ino));
        Ok(())
    }

    /// Returns a path at which both views have this file, if it did not change.
    fn unchanged_name(&mut self, ino: Ino) -> Result<Option<Vec<u8>>> {
        if self.old.getattr(ino).is_err() || self.changed(ino)? {
            return Ok(None);
        }
        for (dir, name) in self.new.names_of(ino)? {
            let same = |view: &View| view.lookup(dir, &name).is_ok_and(|attr| attr.ino == ino);
            if !same(self.new) || !same(self.old) {
                continue;
            }
            if let (Some(here), Some(there)) = (self.new.path_of(dir)?, self.old.path_of(dir)?)
                && here == there
            {
                return Ok(Some(join(&here, &name)));
            }
        }
        Ok(None)
    }

    /// Returns whether an inode that both views have differs in anything that a directory shows.
    fn changed(&mut self, ino: Ino) -> Result<bool> {
        if let Some(known) = self.changed.get(&ino) {
            return Ok(*known);
        }
        let changed = match same::inode_of_views(self.old, self.new, ino) {
            // Others changed it, or it has been carried over already: the check will tell.
            Err(Error::BaseDrift { .. }) => true,
            same => !same?,
        };
        self.changed.insert(ino, changed);
        Ok(changed)
    }
}

/// Names a path for people.
pub(super) fn shown(path: &[u8]) -> String {
    if path.is_empty() {
        ".".to_owned()
    } else {
        String::from_utf8_lossy(path).into_owned()
    }
}

/// Returns the error for targets that others changed.
pub(super) fn conflicts(paths: Vec<String>) -> Result<()> {
    if paths.is_empty() {
        Ok(())
    } else {
        Err(Error::Conflicts { paths })
    }
}
