//! Checkpoints and going back to them.

use branchpoint_fs::branch::{CheckpointInfo, Revision};
use branchpoint_fs::id::CheckpointId;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::daemon::find::Clock;
use crate::daemon::responder::Responder;
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::Place;
use crate::protocol::reply::{Checkpoint, Deleted, RolledBack};

use super::end_of_list;

/// How far the lines of checkpoints are followed to tell what a rollback went back over: it takes a
/// while in a long line, and nobody reads more.
const PASSED_OVER_STEPS_MAX: usize = 20;

pub(super) fn create(
    daemon: &Daemon,
    branch: &Place,
    label: Option<&str>,
    durable: bool,
) -> Result<Checkpoint> {
    let branch = daemon.branch_at(branch)?;
    let mut clock = Clock::start();
    daemon.with_branch(&branch, |mount| {
        clock.flush(mount)?;
        let info = clock.pause(|| daemon.store.checkpoint(&branch, label, durable))?;
        Ok(Checkpoint {
            took: Some(clock.took()),
            ..describe(&info)
        })
    })
}

pub(super) fn list(daemon: &Daemon, out: &mut Responder<'_>) -> Result<Value> {
    for info in daemon.store.checkpoints()? {
        out.item(&describe(&info))?;
    }
    Ok(end_of_list())
}

pub(super) fn show(daemon: &Daemon, revision: &str) -> Result<Checkpoint> {
    let id = daemon.checkpoint_named(revision)?;
    Ok(Checkpoint {
        report: crate::daemon::boxes::report(daemon, id)?,
        ..describe(&daemon.store.checkpoint_info(id)?)
    })
}

pub(super) fn delete(daemon: &Daemon, revision: &str) -> Result<Deleted> {
    let id = daemon.checkpoint_named(revision)?;
    let shown = crate::daemon::mounts::Shows::Checkpoint(id);
    if let Some(entry) = daemon
        .mounts
        .all()
        .iter()
        .find(|entry| entry.shows() == shown)
    {
        let dir = entry.dir().display();
        return Err(Failure::new(
            FailureKind::Busy,
            format!("checkpoint {} is mounted at '{dir}'", id.short()),
        )
        .hint(format!("unmount it first: branchpoint unmount '{dir}'")));
    }
    daemon.store.checkpoint_delete(id)?;
    Ok(Deleted {
        id: id.to_string(),
        parent: None,
    })
}

pub(super) fn rollback(
    daemon: &Daemon,
    branch: &Place,
    to: &str,
    keep: Option<&str>,
) -> Result<RolledBack> {
    let branch = daemon.branch_at(branch)?;
    // Both are looked up before anything is flushed, so that a wrong name costs nothing.
    daemon.store.branch(&branch)?;
    if let Revision::Branch { name, .. } = daemon.store.resolve(to)? {
        return Err(Failure::new(
            FailureKind::Invalid,
            format!("'{name}' is a branch; a rollback goes to a checkpoint"),
        )
        .hint(format!("'{name}~0' is the youngest checkpoint behind it")));
    }
    let end_it = "end it first: branchpoint box stop BOX";
    super::boxes::require_no_box(daemon, &branch, end_it)?;
    let mut clock = Clock::start();
    daemon.with_branch(&branch, |mount| {
        // Counted from the lock on: BRANCH~N is relative to where the branch is now.
        let target = daemon.store.resolve(to)?;
        let outcome = daemon.move_head(&branch, mount, || {
            clock.pause(|| daemon.store.rollback(&branch, &target, keep))
        })?;
        let id = match (&outcome.checkpoint, &target) {
            (Some(checkpoint), _) => checkpoint.id.to_string(),
            (None, Revision::Checkpoint { id, .. }) => id.to_string(),
            (None, Revision::Branch { name, .. }) => name.clone(),
        };
        let took = clock.took();
        let newer = passed_over(daemon, outcome.left, outcome.checkpoint.map(|to| to.id))?;
        Ok(RolledBack {
            id,
            branch: branch.clone(),
            old_head: outcome.old_head.0,
            head: outcome.new_head.0,
            kept: keep.map(str::to_owned),
            dropped: outcome.left_changes && keep.is_none(),
            newer: newer.found.iter().map(describe).collect(),
            newer_left_off: newer.more,
            took,
        })
    })
}

/// Checkpoints that a rollback went back over.
#[derive(Debug, Default)]
struct PassedOver {
    found: Vec<CheckpointInfo>,
    more: bool,
}

/// Returns the checkpoints in the line of `left` that are not in the line of `to`, youngest first.
fn passed_over(
    daemon: &Daemon,
    left: Option<CheckpointId>,
    to: Option<CheckpointId>,
) -> Result<PassedOver> {
    let look = |id: Option<CheckpointId>| -> Result<Option<CheckpointInfo>> {
        Ok(id.map(|id| daemon.store.checkpoint_info(id)).transpose()?)
    };
    let mut passed = PassedOver::default();
    let (mut mine, mut other) = (look(left)?, look(to)?);
    // Of two lines, the younger end cannot be in the other, until both meet.
    for _ in 0..PASSED_OVER_STEPS_MAX {
        match (mine.take(), other.take()) {
            (None, _) => return Ok(passed),
            (Some(here), Some(there)) if here.id == there.id => return Ok(passed),
            (Some(here), Some(there)) if there.created_us > here.created_us => {
                mine = Some(here);
                other = look(there.parent)?;
            }
            (Some(here), there) => {
                mine = look(here.parent)?;
                other = there;
                passed.found.push(here);
            }
        }
    }
    passed.more = mine.is_some();
    Ok(passed)
}

pub(super) fn describe(info: &CheckpointInfo) -> Checkpoint {
    Checkpoint {
        id: info.id.to_string(),
        label: info.label.clone(),
        branch: info.branch.clone(),
        parent: info.parent.map(|id| id.to_string()),
        layer: info.layer.0,
        created_us: info.created_us,
        unchanged: info.unchanged,
        has_processes: info.has_processes,
        report: None,
        took: None,
    }
}
