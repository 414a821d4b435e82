//! Checkpoints in two steps: the instant is fixed first, what belongs to it is written afterwards.
//!
//! A checkpoint with processes holds their memory, and writing that takes longer than they should stand
//! still. So their layer is frozen while they stand ([`Store::begin_instant`]); then they go on, in a new
//! layer, while memory and image are written into the annex of the frozen one; and only then does the
//! checkpoint get its id, in one batch ([`Store::finish_instant`]). Given up in between, or cut off by a
//! crash, it is an unnamed layer like others: nothing is lost, and there is no half checkpoint.

use std::sync::Arc;

use crate::branch::change::Change;
use crate::branch::{CheckpointInfo, name};
use crate::error::Result;
use crate::id::{CheckpointId, LayerId};
use crate::kv::Durability;
use crate::layout::record::{BranchRecord, CheckpointRecord};
use crate::store::{Store, now_us};
use crate::view::View;

/// A branch as it was at one instant, before it has become a checkpoint.
#[derive(Debug)]
pub struct Instant {
    branch: String,
    parent: Option<CheckpointId>,
    created_us: u64,
    /// Keeps the collector away from the layer.
    view: Arc<View>,
}

impl Instant {
    /// Returns the frozen layer.
    pub fn layer(&self) -> LayerId {
        self.view.head()
    }

    /// Returns a view of the frozen layer in whose annex may be written. Nothing else may be: the layer
    /// has been seen.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }
}

impl Store {
    /// Freezes what is in a branch now, always in a layer of its own, and lets the branch go on.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`](crate::error::Error::NoSuchBranch), and those of every write.
    pub fn begin_instant(self: &Arc<Self>, branch: &str) -> Result<Instant> {
        let _structure = self.structure.lock();
        let record = self.branch_record(branch)?;
        let view = self.open_view(branch);
        let mut gate = view.as_deref().map(View::close_gate);
        let mut change = Change::new(self);
        let settled = change.settle_anyway(record.head)?;
        change.put_branch(
            branch,
            &BranchRecord {
                head: settled.head,
                ..record
            },
        );
        change.commit(Durability::Process)?;
        if let (Some(view), Some(gate)) = (&view, &mut gate) {
            view.advance(gate, settled.head);
        }
        Ok(Instant {
            branch: branch.to_owned(),
            parent: record.checkpoint,
            created_us: now_us(),
            view: Arc::new(View::new(Arc::clone(self), settled.frozen, None, false)),
        })
    }

    /// Makes an instant a checkpoint with processes; with `durable`, it is on the disk afterwards.
    ///
    /// The branch comes after it from now on, unless it went elsewhere meanwhile.
    ///
    /// # Errors
    /// [`Error::BadName`](crate::error::Error::BadName) for the label, and those of every write.
    pub fn finish_instant(
        &self,
        instant: &Instant,
        label: Option<&str>,
        durable: bool,
    ) -> Result<CheckpointInfo> {
        if let Some(label) = label {
            name::check_label(label)?;
        }
        let _structure = self.structure.lock();
        let layer = instant.layer();
        let id = self.new_checkpoint_id()?;
        let checkpoint = CheckpointRecord {
            layer,
            parent: instant.parent,
            branch: instant.branch.clone(),
            label: label.map(str::to_owned),
            created_us: instant.created_us,
            has_processes: true,
        };
        let mut change = Change::new(self);
        change.put_checkpoint(id, &checkpoint);
        for (name, record) in self.branch_records()? {
            let goes_on =
                record.checkpoint == instant.parent && self.layer_table().sees(record.head, layer);
            if goes_on {
                let record = BranchRecord {
                    checkpoint: Some(id),
                    ..record
                };
                change.put_branch(&name, &record);
            }
        }
        change.commit(if durable {
            Durability::Disk
        } else {
            Durability::Process
        })?;
        Ok(CheckpointInfo::new(id, checkpoint))
    }
}
