//! Looking at a branch as it is now while it goes on changing.

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
            return self.locked_view_at(layer);
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
        self.locked_view_at(frozen)
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
