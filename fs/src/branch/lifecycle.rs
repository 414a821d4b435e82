//! Making, renaming, deleting branches, and going back on them.

use std::sync::Arc;

use crate::branch::change::Change;
use crate::branch::{BranchInfo, CheckpointInfo, Revision, Rollback, name};
use crate::error::{Error, Result};
use crate::kv::Durability;
use crate::layout::record::BranchRecord;
use crate::store::{Store, now_us};
use crate::view::View;

impl Store {
    /// Makes a branch of a checkpoint, or of what is in another branch now.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::BranchExists`], [`Error::NoSuchBranch`] and
    /// [`Error::NoSuchRevision`] if the source is gone, and those of every write.
    pub fn branch_create(self: &Arc<Self>, name: &str, from: &Revision) -> Result<BranchInfo> {
        name::check_branch(name)?;
        let _structure = self.structure.lock();
        self.require_free_name(name)?;
        match from {
            Revision::Branch { name: source, .. } => self.fork_branch(name, source),
            Revision::Checkpoint { id, .. } => {
                let layer = self.checkpoint_record(*id)?.layer;
                let mut change = Change::new(self);
                let head = change.open_on(layer)?;
                let record = BranchRecord {
                    head,
                    checkpoint: Some(*id),
                    created_us: now_us(),
                };
                change.put_branch(name, &record);
                change.commit(Durability::Process)?;
                Ok(BranchInfo::new(name, &record))
            }
        }
    }

    /// Freezes the head of `source` and lets both go on from there, each in a layer of its own.
    fn fork_branch(&self, name: &str, source: &str) -> Result<BranchInfo> {
        let origin = self.branch_record(source)?;
        let view = self.open_view(source);
        let mut gate = view.as_deref().map(View::close_gate);
        let mut change = Change::new(self);
        let settled = change.settle(origin.head)?;
        let moved = settled.head != origin.head;
        let record = BranchRecord {
            head: change.open_on(settled.frozen)?,
            checkpoint: origin.checkpoint,
            created_us: now_us(),
        };
        change.put_branch(name, &record);
        if moved {
            change.put_branch(
                source,
                &BranchRecord {
                    head: settled.head,
                    ..origin
                },
            );
        }
        change.commit(Durability::Process)?;
        if moved && let (Some(view), Some(gate)) = (&view, &mut gate) {
            view.advance(gate, settled.head);
        }
        Ok(BranchInfo::new(name, &record))
    }

    /// Gives a branch another name. Its view, if there is one, goes on undisturbed.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::NoSuchBranch`], [`Error::BranchExists`], and those of every
    /// write.
    pub fn branch_rename(&self, old: &str, new: &str) -> Result<BranchInfo> {
        name::check_branch(new)?;
        let _structure = self.structure.lock();
        let record = self.branch_record(old)?;
        self.require_free_name(new)?;
        let mut change = Change::new(self);
        change.delete_branch(old);
        change.put_branch(new, &record);
        change.commit(Durability::Process)?;
        let view = self.views.lock().remove(old);
        if let Some(view) = view.and_then(|view| view.upgrade()) {
            view.set_branch(Some(new.to_owned()));
            self.views
                .lock()
                .insert(new.to_owned(), Arc::downgrade(&view));
        }
        Ok(BranchInfo::new(new, &record))
    }

    /// Lets `successor` take the place, and the name, of `branch` in one step. With `keep`, what `branch` was
    /// becomes a branch of that name; without, it is the collector's. Views of both stay what they show.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], [`Error::BadName`] and [`Error::BranchExists`] for `keep`, and those of every
    /// write.
    pub fn branch_replace(&self, branch: &str, successor: &str, keep: Option<&str>) -> Result<()> {
        if let Some(keep) = keep {
            name::check_branch(keep)?;
        }
        let _structure = self.structure.lock();
        let old = self.branch_record(branch)?;
        let new = self.branch_record(successor)?;
        if let Some(keep) = keep {
            self.require_free_name(keep)?;
        }
        let mut change = Change::new(self);
        change.delete_branch(successor);
        change.put_branch(
            branch,
            &BranchRecord {
                created_us: old.created_us,
                ..new
            },
        );
        if let Some(keep) = keep {
            change.put_branch(
                keep,
                &BranchRecord {
                    created_us: now_us(),
                    ..old
                },
            );
        }
        change.commit(Durability::Process)?;
        let mut views = self.views.lock();
        let left = views.remove(branch).and_then(|view| view.upgrade());
        let next = views.remove(successor).and_then(|view| view.upgrade());
        if let Some(view) = left {
            view.set_branch(keep.map(str::to_owned));
            if let Some(keep) = keep {
                views.insert(keep.to_owned(), Arc::downgrade(&view));
            }
        }
        if let Some(view) = next {
            view.set_branch(Some(branch.to_owned()));
            views.insert(branch.to_owned(), Arc::downgrade(&view));
        }
        Ok(())
    }

    /// Deletes a branch. Its checkpoints stay; what only its head held is the collector's.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], [`Error::BranchBusy`] while a view of it is open,
    /// [`Error::BadInput`] for the only branch of a store, and those of every write.
    pub fn branch_delete(&self, name: &str) -> Result<()> {
        let _structure = self.structure.lock();
        self.branch_record(name)?;
        if self.open_view(name).is_some() {
            let by = "a view of it is open; unmount it first".to_owned();
            return Err(Error::BranchBusy {
                name: name.to_owned(),
                by,
            });
        }
        if self.branch_records()?.len() == 1 {
            let what = format!(
                "branch '{name}' is the only one and a store needs one: make another one first"
            );
            return Err(Error::BadInput { what });
        }
        let mut change = Change::new(self);
        change.delete_branch(name);
        change.commit(Durability::Process)?;
        self.views.lock().remove(name);
        Ok(())
    }

    /// Lets a branch go on from a checkpoint, in a new layer. With `keep`, what it was until now
    /// becomes a branch of that name; without, it is the collector's.
    ///
    /// The branch's open view, if there is one, answers ESTALE from then on; [`Store::view`] gives
    /// its successor.
    ///
    /// # Errors
    /// [`Error::BadInput`] if `to` is a branch, [`Error::BadName`] and [`Error::BranchExists`] for
    /// `keep`, [`Error::NoSuchBranch`], [`Error::NoSuchRevision`], and those of every write.
    pub fn rollback(
        self: &Arc<Self>,
        branch: &str,
        to: &Revision,
        keep: Option<&str>,
    ) -> Result<Rollback> {
        let id = match to {
            Revision::Checkpoint { id, .. } => *id,
            Revision::Branch { name, .. } => {
                let what = format!(
                    "'{name}' is a branch, and a rollback goes to a checkpoint: give a checkpoint, \
                     '{name}~0' for the newest of it, or switch the mount to the branch"
                );
                return Err(Error::BadInput { what });
            }
        };
        if let Some(keep) = keep {
            name::check_branch(keep)?;
        }
        let _structure = self.structure.lock();
        let left = self.branch_record(branch)?;
        if let Some(keep) = keep {
            self.require_free_name(keep)?;
        }
        let checkpoint = self.checkpoint_record(id)?;
        let view = self.open_view(branch);
        let mut gate = view.as_deref().map(View::close_gate);
        let left_changes = !self.layer_is_empty(left.head)?;
        let mut change = Change::new(self);
        let new_head = change.open_on(checkpoint.layer)?;
        let went_back = BranchRecord {
            head: new_head,
            checkpoint: Some(id),
            created_us: left.created_us,
        };
        change.put_branch(branch, &went_back);
        if let Some(keep) = keep {
            change.put_branch(
                keep,
                &BranchRecord {
                    created_us: now_us(),
                    ..left.clone()
                },
            );
        }
        change.commit(Durability::Process)?;
        if let (Some(view), Some(gate)) = (&view, &mut gate) {
            view.retire(gate);
        }
        self.views.lock().remove(branch);
        let checkpoint = Some(CheckpointInfo::new(id, checkpoint));
        Ok(Rollback {
            old_head: left.head,
            new_head,
            checkpoint,
            left: left.checkpoint,
            left_changes,
        })
    }
}
