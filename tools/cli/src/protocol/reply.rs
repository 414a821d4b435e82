//! What the daemon answers: the objects that `--json` prints. `docs/json.md` describes them.
//!
//! Optional fields are left out when they have no value, so a script can ask for their presence.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::path::ShownPath;

/// Where something is mounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mounted {
    /// The branch that is shown, unless it is a checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) branch: Option<String>,
    /// The checkpoint that is shown read-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint: Option<String>,
    /// The directory.
    pub(crate) dir: String,
    /// Its exact bytes, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dir_base64: Option<String>,
    /// Whether writing is refused.
    pub(crate) read_only: bool,
    /// How long the operation took in the daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) elapsed_us: Option<u64>,
}

impl Mounted {
    /// Returns the directory in both forms.
    pub(crate) fn shown_dir(&self) -> ShownPath {
        ShownPath {
            text: self.dir.clone(),
            base64: self.dir_base64.clone(),
        }
    }
}

/// What was unmounted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Unmounted {
    /// The mounts that are gone.
    pub(crate) mounts: Vec<Mounted>,
}

/// A branch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Branch {
    /// What names it: the same as `name`.
    pub(crate) id: String,
    /// Its name.
    pub(crate) name: String,
    /// The layer that its next change goes to.
    pub(crate) head: u64,
    /// The youngest checkpoint behind its head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    /// When it was made, in microseconds since 1970.
    pub(crate) created_us: u64,
    /// Where it is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mounted: Option<String>,
    /// Exact bytes of `mounted`, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mounted_base64: Option<String>,
    /// From where it was made, as asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    /// How long the operation took.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) took: Option<Took>,
}

/// How long an operation took inside the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Took {
    /// From the request until the result, flushing included.
    pub(crate) elapsed_us: u64,
    /// The operation on the store itself, during which writers of the branch wait.
    pub(crate) pause_us: u64,
    /// Getting what programs wrote out of the kernel beforehand.
    pub(crate) flush_us: u64,
}

/// A checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// Its id.
    pub(crate) id: String,
    /// Its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    /// The branch of which it was made.
    pub(crate) branch: String,
    /// The checkpoint before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    /// The layer that it froze.
    pub(crate) layer: u64,
    /// When it was made, in microseconds since 1970.
    pub(crate) created_us: u64,
    /// Nothing had changed, so this is the id of the checkpoint before.
    pub(crate) unchanged: bool,
    /// Processes belong to it.
    pub(crate) has_processes: bool,
    /// What of its processes was not kept exactly; only `show` says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<Vec<super::boxes::ReportLine>>,
    /// How long the operation took.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) took: Option<Took>,
}

/// A checkpoint that was removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Deleted {
    /// What it was: the id of a checkpoint or the name of a branch.
    pub(crate) id: String,
    /// The youngest checkpoint behind a removed branch, from which it can be made again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
}

/// A branch that was brought back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RolledBack {
    /// The checkpoint that the branch now continues, or the state that was named.
    pub(crate) id: String,
    /// The branch.
    pub(crate) branch: String,
    /// Its head before.
    pub(crate) old_head: u64,
    /// Its head now.
    pub(crate) head: u64,
    /// The branch that keeps what was left behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<String>,
    /// Whether something written since the youngest checkpoint was dropped.
    pub(crate) dropped: bool,
    /// Checkpoints that lay behind the branch and do no longer, youngest first. They stay.
    pub(crate) newer: Vec<Checkpoint>,
    /// Whether there are more of them than listed.
    pub(crate) newer_left_off: bool,
    /// How long it took.
    #[serde(flatten)]
    pub(crate) took: Took,
}

/// A node of the tree: a layer that something names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Node {
    /// The layer.
    pub(crate) layer: u64,
    /// The node above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent_layer: Option<u64>,
    /// The checkpoints that it is the state of, oldest first.
    pub(crate) checkpoints: Vec<Checkpoint>,
    /// The branches whose head it is.
    pub(crate) branches: Vec<String>,
    /// Where those are mounted, and the checkpoint itself.
    pub(crate) mounts: Vec<Mounted>,
    /// Bytes that others see as well.
    pub(crate) shared_bytes: u64,
    /// Bytes that nothing else sees.
    pub(crate) private_bytes: u64,
    /// When it was made, in microseconds since 1970.
    pub(crate) created_us: u64,
}

/// One difference between two states.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    /// `added`, `removed`, `modified`, `metadata`, `renamed` or `type_changed`.
    pub(crate) kind: String,
    /// The path.
    pub(crate) path: String,
    /// Its exact bytes, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path_base64: Option<String>,
    /// The path before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) renamed_from: Option<String>,
    /// Its exact bytes, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) renamed_from_base64: Option<String>,
    /// Mode with file type before, in octal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) old_mode: Option<String>,
    /// Mode with file type after, in octal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new_mode: Option<String>,
    /// Size before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) old_bytes: Option<u64>,
    /// Size after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new_bytes: Option<u64>,
    /// Lines only in the new state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) insertions: Option<u64>,
    /// Lines only in the old state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deletions: Option<u64>,
    /// The content is not text, or too large to compare.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) binary: bool,
    /// The change as `git apply` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<String>,
}

/// The end of a `diff`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DiffEnd {
    /// How many changes there were.
    pub(crate) changes: u64,
}

/// A problem found by `check`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Problem {
    /// The kind of problem.
    pub(crate) what: String,
    /// The invariant that does not hold, by its number in `docs/format.md`.
    pub(crate) invariant: String,
    /// Where and how.
    pub(crate) detail: String,
    /// The checkpoints and branches that cannot be trusted because of it.
    pub(crate) breaks: Vec<String>,
}

/// A file of the base that changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Drift {
    /// Its path below the base.
    pub(crate) path: String,
    /// What became of it.
    pub(crate) what: String,
}

/// The end of a `check`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Checked {
    /// Whether nothing is wrong.
    pub(crate) clean: bool,
    /// What is wrong.
    pub(crate) problems: Vec<Problem>,
    /// Problems beyond those listed.
    pub(crate) problems_left_off: u64,
    /// Files of the base that are not as they were first seen; nothing is damaged by that.
    pub(crate) drift: Vec<Drift>,
    /// What was looked at.
    pub(crate) counts: Map<String, Value>,
    /// How long it took.
    pub(crate) elapsed_us: u64,
}

/// The state of a daemon and its store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stats {
    /// The process.
    pub(crate) daemon_pid: u32,
    /// How long it has been running.
    pub(crate) uptime_us: u64,
    /// The store's directory.
    pub(crate) store: String,
    /// Its exact bytes, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store_base64: Option<String>,
    /// The base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) base: Option<String>,
    /// Whether the store takes no writes.
    pub(crate) read_only: bool,
    /// What is mounted where.
    pub(crate) mounts: Vec<Mounted>,
    /// Counts and sizes of the store.
    #[serde(flatten)]
    pub(crate) counts: Map<String, Value>,
}

/// The daemon was asked to end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stopped {
    /// Whether one was running.
    pub(crate) stopped: bool,
    /// Its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) daemon_pid: Option<u32>,
    /// The mounts that it removed.
    pub(crate) mounts: Vec<Mounted>,
    /// Why the last of what was written could not be put on the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unsynced: Option<String>,
}

/// What a merge, apply, export, import or collection did: the library's own numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// What was made or changed, if it has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// How long it took.
    pub(crate) elapsed_us: u64,
    /// The numbers.
    #[serde(flatten)]
    pub(crate) counts: Map<String, Value>,
}

/// What a daemon in the foreground says when it listens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Serving {
    /// Its process.
    pub(crate) daemon_pid: u32,
    /// The store's directory.
    pub(crate) store: String,
    /// Its exact bytes, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store_base64: Option<String>,
}

/// What a daemon that was started in the background says on its standard output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Readiness {
    /// It listens.
    Ready {
        /// Mounts of a daemon that died, which it has removed.
        stale_mounts: Vec<String>,
    },
    /// It could not start.
    Failed(crate::failure::Failure),
}
