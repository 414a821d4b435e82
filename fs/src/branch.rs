//! Branches and checkpoints: how lines of layers are named, grown, forked and gone back on.
//!
//! Every change here is one atomic batch and costs the same whatever the size and the depth. The
//! order is always: close the gate of the branch's view, write the batch, show the layers in memory,
//! tell the view. A failed write therefore leaves everything as it was.

mod change;
mod checkpoint;
mod instant;
mod lifecycle;
mod log;
mod name;
mod records;
mod revision;
mod scratch;
mod snapshot;
mod views;

use serde::{Deserialize, Serialize};

use crate::id::{CheckpointId, LayerId};
use crate::layout::record::{BranchRecord, CheckpointRecord};

pub use instant::Instant;
pub use log::{LogNode, LogTree};
pub(crate) use scratch::Scratch;

/// What a name given by a person stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Revision {
    /// A branch: its present, which goes on changing.
    Branch {
        /// Its name.
        name: String,
        /// Its head at the time of the question.
        head: LayerId,
    },
    /// A checkpoint, which never changes.
    Checkpoint {
        /// Its id.
        id: CheckpointId,
        /// Its layer.
        layer: LayerId,
    },
}

impl Revision {
    /// Returns the layer: of a branch, its head at the time of the question.
    pub const fn layer(&self) -> LayerId {
        match self {
            Self::Branch { head, .. } => *head,
            Self::Checkpoint { layer, .. } => *layer,
        }
    }
}

/// A branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchInfo {
    /// Its name.
    pub name: String,
    /// The layer in which its next change goes.
    pub head: LayerId,
    /// The newest checkpoint behind its head.
    pub parent_checkpoint: Option<CheckpointId>,
    /// Microseconds since the epoch at which it was made.
    pub created_us: u64,
}

impl BranchInfo {
    fn new(name: impl Into<String>, record: &BranchRecord) -> Self {
        Self {
            name: name.into(),
            head: record.head,
            parent_checkpoint: record.checkpoint,
            created_us: record.created_us,
        }
    }
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointInfo {
    /// Its id.
    pub id: CheckpointId,
    /// Its layer. Checkpoints between which nothing changed share one.
    pub layer: LayerId,
    /// The checkpoint before it on its line.
    pub parent: Option<CheckpointId>,
    /// The branch of which it was taken, as it was called then.
    pub branch: String,
    /// What its maker called it.
    pub label: Option<String>,
    /// Microseconds since the epoch at which it was taken.
    pub created_us: u64,
    /// Processes belong to it: their image and memory lie in the annex of its layer.
    pub has_processes: bool,
    /// Nothing had changed since this checkpoint when another was asked for, so none was made.
    pub unchanged: bool,
}

impl CheckpointInfo {
    fn new(id: CheckpointId, record: CheckpointRecord) -> Self {
        Self {
            id,
            layer: record.layer,
            parent: record.parent,
            branch: record.branch,
            label: record.label,
            created_us: record.created_us,
            has_processes: record.has_processes,
            unchanged: false,
        }
    }
}

/// What a rollback did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollback {
    /// The head that was left.
    pub old_head: LayerId,
    /// The head in which the branch goes on.
    pub new_head: LayerId,
    /// The checkpoint on which the new head lies.
    pub checkpoint: Option<CheckpointInfo>,
    /// The newest checkpoint behind the head that was left.
    pub left: Option<CheckpointId>,
    /// Whether anything had been written since then.
    pub left_changes: bool,
}
