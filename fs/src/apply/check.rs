//! Making sure that nothing of what others did to the directory gets lost.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::plan::{Step, What, conflicts, shown};
use super::{Job, same};
use crate::attr::FileKind;
use crate::base::BaseStat;
use crate::error::{Error, Result};
use crate::id::Ino;
use crate::kv::Table;
use crate::layout::key;
use crate::layout::record::BaseRecord;
use crate::tree;

impl Job<'_> {
    /// Checks all targets. Returns which steps are done already.
    ///
    /// # Errors
    /// [`Error::Conflicts`] with every target that is neither what it was nor what it is to be.
    pub(super) fn check(&self) -> Result<BTreeSet<usize>> {
        let mut bad = Vec::new();
        let mut done = BTreeSet::new();
        let steps = &self.plan.steps;
        let planned: HashMap<&[u8], &Step> = steps
            .iter()
            .map(|step| (step.path.as_slice(), step))
            .collect();
        let mut parents: HashSet<&[u8]> = HashSet::new();
        for (number, step) in steps.iter().enumerate() {
            let (dir, _) = tree::split(&step.path);
            let removes = matches!(step.what, What::Remove { .. });
            if !removes && parents.insert(dir) && !planned.contains_key(dir) {
                let stat = self.target.stat(dir)?;
                let usable = stat.is_some_and(|stat| is_dir(&stat) && !stat.hidden);
                if !usable {
                    bad.push(format!(
                        "{} (not a directory that can be changed)",
                        shown(dir)
                    ));
                    continue;
                }
            }
            match self.check_step(step, &planned)? {
                Verdict::Done => {
                    done.insert(number);
                }
                Verdict::Clear => {}
                Verdict::Conflict(why) => bad.push(format!("{} ({why})", shown(&step.path))),
            }
        }
        for (path, ino) in &self.plan.linked {
            let stat = self.target.stat(path)?;
            if !matches!(self.was(path, Some(*ino), stat.as_ref())?, Verdict::Clear) {
                bad.push(format!("{} (changed by others)", shown(path)));
            }
        }
        conflicts(bad)?;
        Ok(done)
    }

    fn check_step(&self, step: &Step, planned: &HashMap<&[u8], &Step>) -> Result<Verdict> {
        let path = &step.path;
        let stat = self.target.stat(path)?;
        if stat.is_some_and(|stat| stat.hidden) {
            return Ok(Verdict::Conflict("not to be touched"));
        }
        match (&step.what, &stat) {
            (What::Directory(ino), Some(stat)) if is_dir(stat) => self.directory(step, *ino, stat),
            (What::Remove { .. }, None) => Ok(Verdict::Done),
            (What::Remove { .. }, Some(stat)) if is_dir(stat) => {
                let was_dir = step.old.map(|old| self.old.getattr(old)).transpose()?;
                if was_dir.is_none_or(|attr| attr.kind != FileKind::Directory) {
                    return Ok(Verdict::Conflict("a directory now"));
                }
                self.only_planned(path, planned)
            }
            (What::Write(ino) | What::Link { ino, .. }, Some(stat)) => {
                if is_dir(stat) {
                    let was_dir = step.old.map(|old| self.old.getattr(old)).transpose()?;
                    return match was_dir.is_some_and(|attr| attr.kind == FileKind::Directory) {
                        true => self.only_planned(path, planned),
                        false => Ok(Verdict::Conflict("a directory now")),
                    };
                }
                let same = unless_drifted(same::whole(self.new, *ino, self.target, path, stat))?;
                let done = match &step.what {
                    What::Link { first, .. } => {
                        let unchanged = self.plan.linked.contains_key(first);
                        let first = self.target.stat(first)?;
                        let linked = first.is_some_and(|f| (f.dev, f.ino) == (stat.dev, stat.ino));
                        if same && !linked {
                            return Ok(Verdict::Clear);
                        }
                        linked && (same || unchanged)
                    }
                    _ => same,
                };
                if done {
                    return Ok(Verdict::Done);
                }
                self.was(path, step.old, Some(stat))
            }
            _ => self.was(path, step.old, stat.as_ref()),
        }
    }

    /// A directory may be changed by others, but not in what the source changed of it.
    fn directory(&self, step: &Step, new: Ino, stat: &BaseStat) -> Result<Verdict> {
        let attr = self.new.getattr(new)?;
        let old = step.old.map(|old| self.old.getattr(old)).transpose()?;
        let clash = |old: u32, new: u32, now: u32| old != new && now != old && now != new;
        if let Some(old) = old.filter(|old| old.kind == FileKind::Directory) {
            let perm = stat.mode & 0o7777;
            if clash(old.perm, attr.perm, perm)
                || clash(old.uid, attr.uid, stat.uid)
                || clash(old.gid, attr.gid, stat.gid)
            {
                return Ok(Verdict::Conflict("its mode or owner was changed by others"));
            }
        }
        Ok(Verdict::Clear)
    }

    /// A directory can only go if everything in it goes.
    fn only_planned(&self, path: &[u8], planned: &HashMap<&[u8], &Step>) -> Result<Verdict> {
        for (name, ..) in self.target.read_dir(path)? {
            let below = tree::join(path, &name);
            let goes = planned
                .get(below.as_slice())
                .is_some_and(|step| matches!(step.what, What::Remove { .. }));
            if !goes {
                return Ok(Verdict::Conflict("others put something into it"));
            }
        }
        Ok(Verdict::Clear)
    }

    /// Checks that a target is what the source began with, or what was applied last.
    fn was(&self, path: &[u8], old: Option<Ino>, stat: Option<&BaseStat>) -> Result<Verdict> {
        let applied = match self.is_base {
            true => self.store.kv().get(Table::Base, &key::base_applied(path))?,
            false => None,
        };
        let Some(stat) = stat else {
            let expected = old.is_none() || applied.is_some_and(|value| value.is_empty());
            return Ok(if expected {
                Verdict::Clear
            } else {
                Verdict::Conflict("removed by others")
            });
        };
        if let Some(value) = applied.filter(|value| !value.is_empty()) {
            let known = BaseRecord::decode(&value)?;
            if (known.ctime, known.size) == (stat.ctime, stat.size) {
                return Ok(Verdict::Clear);
            }
        }
        let Some(old) = old else {
            return Ok(Verdict::Conflict("made by others"));
        };
        if self.is_base
            && let Some(known) = self.store.base_record(old)?
            && (known.ctime, known.size) == (stat.ctime, stat.size)
        {
            return Ok(Verdict::Clear);
        }
        // Its times can have changed without it: by a copy, or by another of its names.
        let same = unless_drifted(same::content(self.old, old, self.target, path, stat))?;
        Ok(if same {
            Verdict::Clear
        } else {
            Verdict::Conflict("changed by others")
        })
    }
}

enum Verdict {
    /// It is what it was.
    Clear,
    /// It is what it is to be.
    Done,
    /// It is neither; how so.
    Conflict(&'static str),
}

/// What cannot be read because the base is another one now is not the same.
fn unless_drifted(same: Result<bool>) -> Result<bool> {
    match same {
        Err(Error::BaseDrift { .. }) => Ok(false),
        other => other,
    }
}

fn is_dir(stat: &BaseStat) -> bool {
    FileKind::from_mode(stat.mode) == Some(FileKind::Directory)
}
