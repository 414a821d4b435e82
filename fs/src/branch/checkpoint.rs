//! Taking and forgetting checkpoints.

use std::sync::Arc;

use crate::branch::change::Change;
use crate::branch::{CheckpointInfo, name};
use crate::error::Result;
use crate::id::{CheckpointId, LayerId};
use crate::kv::Durability;
use crate::layout::record::{BranchRecord, CheckpointRecord};
use crate::store::{Store, now_us, random_u64};
use crate::view::View;

impl Store {
    /// Makes a checkpoint of what is in a branch now; with `durable`, it is on the disk afterwards.
    ///
    /// If nothing changed since the newest checkpoint and no other label is asked for, that one is
    /// returned, with `unchanged` set.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`](crate::error::Error::NoSuchBranch),
    /// [`Error::BadName`](crate::error::Error::BadName) for the label, and those of every write;
    /// after an error there is no new checkpoint and the branch goes on as before.
    pub fn checkpoint(
        self: &Arc<Self>,
        branch: &str,
        label: Option<&str>,
        durable: bool,
    ) -> Result<CheckpointInfo> {
        if let Some(label) = label {
            name::check_label(label)?;
        }
        let _structure = self.structure.lock();
        let record = self.branch_record(branch)?;
        if let Some(label) = label {
            self.require_findable(label)?;
        }
        let view = self.open_view(branch);
        let mut gate = view.as_deref().map(View::close_gate);
        let mut change = Change::new(self);
        let settled = change.settle(record.head)?;
        let elided = settled.head == record.head;
        if elided && let Some(newest) = self.newest_on(&record, settled.frozen, label)? {
            drop(gate);
            if durable {
                self.sync()?;
            }
            return Ok(CheckpointInfo {
                unchanged: true,
                ..newest
            });
        }
        let id = self.new_checkpoint_id()?;
        let checkpoint = CheckpointRecord {
            layer: settled.frozen,
            parent: record.checkpoint,
            branch: branch.to_owned(),
            label: label.map(str::to_owned),
            created_us: now_us(),
            has_processes: false,
        };
        let moved = BranchRecord {
            head: settled.head,
            checkpoint: Some(id),
            ..record
        };
        change.put_checkpoint(id, &checkpoint);
        change.put_branch(branch, &moved);
        change.commit(if durable {
            Durability::Disk
        } else {
            Durability::Process
        })?;
        if !elided && let (Some(view), Some(gate)) = (&view, &mut gate) {
            view.advance(gate, settled.head);
        }
        Ok(CheckpointInfo::new(id, checkpoint))
    }

    /// Returns the branch's newest checkpoint if it lies on `layer` and `label` does not ask for
    /// another one.
    fn newest_on(
        &self,
        branch: &BranchRecord,
        layer: LayerId,
        label: Option<&str>,
    ) -> Result<Option<CheckpointInfo>> {
        let Some(id) = branch.checkpoint else {
            return Ok(None);
        };
        let newest = self.checkpoint_info(id)?;
        let fits = newest.layer == layer && (label.is_none() || newest.label.as_deref() == label);
        Ok(fits.then_some(newest))
    }

    pub(super) fn new_checkpoint_id(&self) -> Result<CheckpointId> {
        loop {
            let id = CheckpointId(random_u64()?);
            if id.0 != 0 && self.find_checkpoint(id)?.is_none() {
                return Ok(id);
            }
        }
    }

    /// Forgets a checkpoint. Branches and checkpoints that came after it come after its parent from
    /// now on. What only it held is the collector's.
    ///
    /// # Errors
    /// [`Error::NoSuchRevision`](crate::error::Error::NoSuchRevision), and those of every write.
    pub fn checkpoint_delete(&self, id: CheckpointId) -> Result<()> {
        let _structure = self.structure.lock();
        let parent = self.checkpoint_record(id)?.parent;
        let mut change = Change::new(self);
        change.delete_checkpoint(id);
        self.each_checkpoint(CheckpointId(0), &mut |other, mut record| {
            if record.parent == Some(id) {
                record.parent = parent;
                change.put_checkpoint(other, &record);
            }
            true
        })?;
        for (name, mut record) in self.branch_records()? {
            if record.checkpoint == Some(id) {
                record.checkpoint = parent;
                change.put_branch(&name, &record);
            }
        }
        change.commit(Durability::Process)
    }
}
