//! Looking at a branch as it is now, and replacing all that it is in one step.

use std::sync::Arc;

use crate::branch::change::Change;
use crate::error::{Error, Result};
use crate::id::LayerId;
use crate::kv::Durability;
use crate::layout::record::{BranchRecord, LayerState};
use crate::store::Store;
use crate::view::View;

impl Store {
    /// Returns a read-only view of what `layer` holds now. If it is a branch's head, that is frozen
    /// and the branch goes on in a new layer: what is looked at does not change any more.
    ///
    /// # Errors
    /// [`Error::BadLayer`] if there is no such layer, and those of every write.
    pub(crate) fn snapshot(self: &Arc<Self>, layer: LayerId) -> Result<Arc<View>> {
        let structure = self.structure.lock();
        let state = self.layer_table().get(layer)?.state;
        if state != LayerState::Open {
            drop(structure);
            return self.view_at(layer);
        }
        let (name, record) = self
            .branch_records()?
            .into_iter()
            .find(|(_, record)| record.head == layer)
            .ok_or(Error::BadLayer {
                layer,
                what: "it is open and no branch's head",
            })?;
        if self.read_only() {
            // Nobody can change it either.
            drop(structure);
            return self.view(&name);
        }
        let frozen = self.settle_branch(&name, record)?;
        drop(structure);
        self.view_at(frozen)
    }

    /// Makes a new layer that nobody knows on what the branch is now. What is written there becomes
    /// the branch with [`Store::replace_head`]; if that never happens, it is the collector's.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], and those of every write.
    pub(crate) fn scratch(self: &Arc<Self>, branch: &str) -> Result<View> {
        let _structure = self.structure.lock();
        let frozen = self.settle_branch(branch, self.branch_record(branch)?)?;
        let mut change = Change::new(self);
        let layer = change.open_on(frozen)?;
        change.commit(Durability::Process)?;
        Ok(View::new(Arc::clone(self), layer, None, false))
    }

    /// Makes `layer`, which [`Store::scratch`] made, the head of the branch, in one step. The
    /// branch's open view, if there is one, answers ESTALE from then on.
    ///
    /// # Errors
    /// [`Error::BranchBusy`] if the branch was changed since the layer was made,
    /// [`Error::NoSuchBranch`], and those of every write.
    pub(crate) fn replace_head(&self, branch: &str, layer: LayerId) -> Result<()> {
        let _structure = self.structure.lock();
        let record = self.branch_record(branch)?;
        let view = self.open_view(branch);
        let mut gate = view.as_deref().map(View::close_gate);
        let parent = self.require_open(layer)?.parent;
        let unchanged =
            self.require_open(record.head)?.parent == parent && self.layer_is_empty(record.head)?;
        if !unchanged {
            return Err(Error::BranchBusy {
                name: branch.to_owned(),
                by: "it was changed meanwhile; try again".to_owned(),
            });
        }
        let mut change = Change::new(self);
        change.put_branch(
            branch,
            &BranchRecord {
                head: layer,
                ..record
            },
        );
        change.commit(Durability::Process)?;
        if let (Some(view), Some(gate)) = (&view, &mut gate) {
            view.retire(gate);
        }
        self.views.lock().remove(branch);
        Ok(())
    }

    /// Freezes a branch's head and lets it go on. Returns the frozen layer. The caller holds
    /// `structure`.
    fn settle_branch(&self, name: &str, record: BranchRecord) -> Result<LayerId> {
        let view = self.open_view(name);
        let mut gate = view.as_deref().map(View::close_gate);
        let mut change = Change::new(self);
        let settled = change.settle(record.head)?;
        if settled.head == record.head {
            return Ok(settled.frozen);
        }
        change.put_branch(
            name,
            &BranchRecord {
                head: settled.head,
                ..record
            },
        );
        change.commit(Durability::Process)?;
        if let (Some(view), Some(gate)) = (&view, &mut gate) {
            view.advance(gate, settled.head);
        }
        Ok(settled.frozen)
    }
}
