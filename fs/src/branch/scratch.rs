//! Layers that are written apart and then become a branch's head in one step.

use std::sync::Arc;

use crate::branch::change::Change;
use crate::error::{Error, Result};
use crate::id::LayerId;
use crate::kv::Durability;
use crate::layout::record::BranchRecord;
use crate::store::Store;
use crate::view::View;

/// A layer on top of a branch's frozen head that nothing refers to yet. Dropped without being
/// adopted, it is the collector's.
#[derive(Debug)]
pub(crate) struct Scratch {
    view: Arc<View>,
    layer: LayerId,
    /// The branch's head when the scratch layer was made: nothing is written in it.
    head: LayerId,
}

impl Scratch {
    /// Returns the view in which the scratch layer is written.
    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Returns the branch's head when the scratch layer was made.
    pub(crate) fn head(&self) -> LayerId {
        self.head
    }
}

impl Store {
    /// Freezes what `branch` is now and opens a scratch layer on it.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], and those of every write.
    pub(crate) fn scratch_on(self: &Arc<Self>, branch: &str) -> Result<Scratch> {
        let _structure = self.structure.lock();
        let record = self.branch_record(branch)?;
        let open = self.open_view(branch);
        let mut gate = open.as_deref().map(View::close_gate);
        let mut change = Change::new(self);
        let settled = change.settle(record.head)?;
        let layer = change.open_on(settled.frozen)?;
        if settled.head != record.head {
            change.put_branch(
                branch,
                &BranchRecord {
                    head: settled.head,
                    ..record
                },
            );
        }
        change.commit(Durability::Process)?;
        if settled.head != record.head
            && let (Some(view), Some(gate)) = (&open, &mut gate)
        {
            view.advance(gate, settled.head);
        }
        let view = Arc::new(View::new(Arc::clone(self), layer, None, false));
        Ok(Scratch {
            view,
            layer,
            head: settled.head,
        })
    }

    /// Makes a scratch layer the head of the branch that it was opened on, and notes that `merged` was
    /// merged into it. The branch's open view ends, as at a rollback.
    ///
    /// # Errors
    /// [`Error::BranchBusy`] if the branch was changed meanwhile, and those of every write.
    pub(crate) fn adopt_scratch(
        &self,
        branch: &str,
        scratch: Scratch,
        merged: Option<LayerId>,
    ) -> Result<LayerId> {
        let _structure = self.structure.lock();
        let record = self.branch_record(branch)?;
        let open = self.open_view(branch);
        let mut gate = open.as_deref().map(View::close_gate);
        if record.head != scratch.head || !self.layer_is_empty(record.head)? {
            return Err(Error::BranchBusy {
                name: branch.to_owned(),
                by: "it was changed meanwhile; try again".to_owned(),
            });
        }
        let mut change = Change::new(self);
        if let Some(merged) = merged {
            change.put_merged(scratch.layer, merged)?;
        }
        change.put_branch(
            branch,
            &BranchRecord {
                head: scratch.layer,
                ..record
            },
        );
        change.commit(Durability::Process)?;
        // The scratch view goes with the scratch: the branch's next view is the only one.
        if let (Some(view), Some(gate)) = (&open, &mut gate) {
            view.retire(gate);
            self.views.lock().remove(branch);
        }
        Ok(scratch.layer)
    }
}
