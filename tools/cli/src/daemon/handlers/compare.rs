//! Comparing and merging.

use std::sync::Arc;

use branchpoint_fs::attr::{Attr, FileKind};
use branchpoint_fs::branch::Revision;
use branchpoint_fs::diff::{self, ChangeKind};
use branchpoint_fs::fuse::Mount;
use branchpoint_fs::merge::{self, MergeOutcome};
use branchpoint_fs::view::View;
use serde_json::Value;

use crate::daemon::Daemon;
use crate::daemon::find::Clock;
use crate::daemon::patch::{self, Moved};
use crate::daemon::responder::Responder;
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::Place;
use crate::protocol::path::ShownPath;
use crate::protocol::reply::{Change, DiffEnd, Outcome};

use super::{fields, value};

/// Merges into a mounted branch that are tried while programs go on there.
const ATTEMPTS_BESIDE_PROGRAMS: u32 = 3;

pub(super) fn diff(
    daemon: &Daemon,
    a: &str,
    b: &Place,
    patch: bool,
    stat: bool,
    out: &mut Responder<'_>,
) -> Result<Value> {
    let a = daemon.flushed(a)?;
    let b = daemon.flushed(&daemon.revision_at(b)?)?;
    let changes = diff::diff(&daemon.store, a.layer(), b.layer())?;
    let views = if patch || stat {
        Some((daemon.view_of(&a)?, daemon.view_of(&b)?))
    } else {
        None
    };
    let mut told = views.as_ref().map(|(old, new)| {
        let moved = Moved::new(old, new, &changes);
        (old, new, moved)
    });
    let mut count = 0;
    for change in &changes {
        let mut list = vec![describe(change)];
        if let Some((old, new, moved)) = &mut told {
            if !moved.is_told(change) {
                list = vec![detailed(old, new, change, patch)?];
            }
            if patch {
                for change in moved.along(change)? {
                    list.push(detailed(old, new, &change, patch)?);
                }
            }
        }
        for shown in list {
            count += 1;
            out.item(&shown)?;
        }
    }
    value(&DiffEnd { changes: count })
}

fn detailed(
    old: &Arc<View>,
    new: &Arc<View>,
    change: &diff::Change,
    patch: bool,
) -> Result<Change> {
    let detail = patch::detail(old, new, change)?;
    Ok(Change {
        insertions: detail.insertions,
        deletions: detail.deletions,
        binary: detail.binary,
        patch: (patch && !detail.patch.is_empty()).then_some(detail.patch),
        ..describe(change)
    })
}

fn describe(change: &diff::Change) -> Change {
    let path = ShownPath::new(&change.path);
    let from = change.renamed_from.as_deref().map(ShownPath::new);
    let mode = |attr: &Attr| format!("{:06o}", attr.kind.mode_bits() | attr.perm);
    let bytes = |attr: &Attr| (attr.kind == FileKind::Regular).then_some(attr.size);
    Change {
        kind: match change.kind {
            ChangeKind::Added => "added",
            ChangeKind::Removed => "removed",
            ChangeKind::Modified => "modified",
            ChangeKind::Metadata => "metadata",
            ChangeKind::Renamed => "renamed",
            ChangeKind::TypeChanged => "type_changed",
        }
        .to_owned(),
        path: path.text,
        path_base64: path.base64,
        renamed_from: from.as_ref().map(|from| from.text.clone()),
        renamed_from_base64: from.and_then(|from| from.base64),
        old_mode: change.old.as_ref().map(mode),
        new_mode: change.new.as_ref().map(mode),
        old_bytes: change.old.as_ref().and_then(bytes),
        new_bytes: change.new.as_ref().and_then(bytes),
        insertions: None,
        deletions: None,
        binary: false,
        patch: None,
    }
}

pub(super) fn merge(
    daemon: &Daemon,
    source: &str,
    into: &Place,
    out: &mut Responder<'_>,
) -> Result<Outcome> {
    let into = match daemon.branch_at(into) {
        Ok(name) => name,
        // Outside of a mount, bringing something home means to bring it into main.
        Err(failure) if into.named.is_none() && into.view.is_none() => {
            let main = daemon.store.branch("main").map_err(|_| failure)?;
            main.name
        }
        Err(failure) => return Err(failure),
    };
    if source == into {
        return Err(Failure::new(
            FailureKind::Invalid,
            format!("branch '{into}' cannot be merged into itself"),
        )
        .hint("name the branch that gets the changes with --into"));
    }
    daemon.store.branch(&into)?;
    let clock = Clock::start();
    let source = daemon.flushed(source)?;
    let names: Vec<&str> = match &source {
        Revision::Branch { name, .. } => vec![name, &into],
        Revision::Checkpoint { .. } => vec![&into],
    };
    daemon.locks.with(&names, || {
        let source = match &source {
            Revision::Branch { name, .. } => daemon.store.resolve(name)?,
            checkpoint @ Revision::Checkpoint { .. } => checkpoint.clone(),
        };
        let end_it = "merge into another branch, or end it first: branchpoint box stop BOX";
        super::boxes::require_no_box(daemon, &into, end_it)?;
        let entry = daemon.mounts.of_branch(&into);
        let mount = entry.as_ref().map(|entry| entry.mount());
        let mount = mount.as_ref().and_then(|mount| mount.as_ref());
        let outcome = bring_in(daemon, &source, &into, mount, out)?;
        Ok(Outcome {
            id: Some(into.clone()),
            elapsed_us: clock.elapsed_us(),
            counts: fields(&outcome)?,
        })
    })
}

/// Merges with programs kept out of the mount for the last step alone. What they write in between
/// makes that fail: then it is done again, and at last with the mount waiting all along.
fn bring_in(
    daemon: &Daemon,
    source: &Revision,
    into: &str,
    mount: Option<&Mount>,
    out: &mut Responder<'_>,
) -> Result<MergeOutcome> {
    for _ in 0..ATTEMPTS_BESIDE_PROGRAMS {
        Clock::start().flush(mount)?;
        let prepared =
            merge::prepare(&daemon.store, source, into, &mut |step| out.progress(&step))?;
        if let Some(outcome) = prepared.done() {
            return Ok(outcome.clone());
        }
        match daemon.move_head(into, mount, || prepared.finish()) {
            Err(failure) if mount.is_some() && failure.kind == FailureKind::Busy => {}
            result => return result,
        }
    }
    daemon.move_head(into, mount, || {
        merge::merge(&daemon.store, source, into, &mut |step| out.progress(&step))
    })
}
