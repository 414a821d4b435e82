//! Promoting a sibling: its files are merged into another box's branch, and its processes take that box's place.
//!
//! As at a rollback, nothing is given up before everything has succeeded: the merge and the tree are made on a branch
//! of their own, which then becomes the box's in one step.

use std::sync::Arc;

use branchpoint_forker::memory::fill::Twins;
use branchpoint_fs::branch::Revision;
use branchpoint_fs::merge::merge as merge_files;
use branchpoint_fs::progress::Watch;

use super::rollback::{Rebuilt, give_up, put_in_place, rebuild, revision};
use super::{Boxed, checkpoint, end, fork};
use crate::daemon::Daemon;
use crate::daemon::find::Clock;
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::boxes::BoxMerge;

/// Merges box `child` into box `into`, by default the one that it was forked of. The child's branch stays; its box is
/// the other one from then on.
pub(crate) fn merge(
    daemon: &Arc<Daemon>,
    child: &str,
    into: Option<&str>,
    watch: &mut Watch<'_>,
) -> Result<BoxMerge> {
    let clock = Clock::start();
    let child = daemon.boxes.get(child)?;
    let into = daemon.boxes.get(&target(&child, into)?)?;
    if Arc::ptr_eq(&child, &into) {
        let message = format!("box '{}' cannot be merged into itself", child.name());
        return Err(Failure::new(FailureKind::Invalid, message)
            .hint("name the box that it is to become with --into"));
    }
    // Always in the same order, whoever merges into whom.
    let (first, second) = if child.name() < into.name() {
        (&child, &into)
    } else {
        (&into, &child)
    };
    let (_first, _second) = (first.work.lock(), second.work.lock());
    let taken = checkpoint::of(daemon, &child, None, false)?;
    let id = taken.id.parse()?;
    let branch = into.branch();
    let next = fork::free_name(daemon, &format!("{branch}-merging"))?;
    let made = daemon.locks.with(&[&branch, &next], || {
        into.flush()?;
        let now = daemon.store.resolve(&branch)?;
        daemon.store.branch_create(&next, &now)?;
        let done = onto(daemon, &into, &next, &revision(daemon, id)?, watch);
        let done = done.and_then(|(counts, rebuilt)| {
            daemon.store.branch_replace(&branch, &next, None)?;
            Ok((counts, rebuilt))
        });
        if done.is_err() {
            give_up(daemon, &next);
        }
        done
    });
    let (counts, rebuilt) = made?;
    put_in_place(&into, rebuilt)?;
    let switch_us = clock.elapsed_us();
    end::take_down(&child);
    child.sessions.clear();
    daemon.boxes.table.lock().remove(child.name());
    daemon.boxes.save();
    Ok(BoxMerge {
        id: into.name().to_owned(),
        merged: child.name().to_owned(),
        checkpoint: taken.id,
        branch,
        added: counts.added,
        removed: counts.removed,
        modified: counts.modified,
        metadata: counts.metadata,
        renamed: counts.renamed,
        switch_us,
        total_us: clock.elapsed_us(),
    })
}

fn target(child: &Boxed, into: Option<&str>) -> Result<String> {
    into.map(str::to_owned)
        .or_else(|| child.origin.clone())
        .ok_or_else(|| {
            let message = format!("box '{}' was not forked of another one", child.name());
            Failure::new(FailureKind::Usage, message)
                .hint("name the box that it is to become with --into")
        })
}

/// Merges the files and rebuilds the processes of a checkpoint on `next`.
fn onto(
    daemon: &Arc<Daemon>,
    into: &Arc<Boxed>,
    next: &str,
    from: &Revision,
    watch: &mut Watch<'_>,
) -> Result<(branchpoint_fs::merge::MergeOutcome, Rebuilt)> {
    let Revision::Checkpoint { id, .. } = from else {
        return Err(Failure::new(
            FailureKind::Internal,
            "a box is merged from a checkpoint",
        ));
    };
    let counts = merge_files(&daemon.store, from, next, watch)?;
    let rebuilt = rebuild(daemon, into, next, *id, Twins::None)?;
    Ok((counts, rebuilt))
}
