//! Branches.

use branchpoint_fs::branch::{BranchInfo, Revision};
use serde_json::Value;

use crate::daemon::Daemon;
use crate::daemon::find::Clock;
use crate::daemon::responder::Responder;
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::Place;
use crate::protocol::path::ShownPath;
use crate::protocol::reply::{Branch, Deleted};

use super::end_of_list;

pub(super) fn create(daemon: &Daemon, name: &str, from: &Place) -> Result<Branch> {
    let from = daemon.revision_at(from)?;
    let mut clock = Clock::start();
    let info = match daemon.store.resolve(&from)? {
        Revision::Branch { name: source, .. } => daemon.with_branch(&source, |mount| {
            clock.flush(mount)?;
            // Its head may have moved on before nothing else could happen to it.
            let source = daemon.store.resolve(&source)?;
            Ok(clock.pause(|| daemon.store.branch_create(name, &source))?)
        })?,
        checkpoint @ Revision::Checkpoint { .. } => {
            clock.pause(|| daemon.store.branch_create(name, &checkpoint))?
        }
    };
    let mut branch = describe(daemon, &info);
    branch.from = Some(from);
    branch.took = Some(clock.took());
    Ok(branch)
}

pub(super) fn list(daemon: &Daemon, out: &mut Responder<'_>) -> Result<Value> {
    for info in daemon.store.branches()? {
        out.item(&describe(daemon, &info))?;
    }
    Ok(end_of_list())
}

pub(super) fn show(daemon: &Daemon, place: &Place) -> Result<Branch> {
    let name = daemon.branch_at(place)?;
    Ok(describe(daemon, &daemon.store.branch(&name)?))
}

pub(super) fn rename(daemon: &Daemon, old: &str, new: &str) -> Result<Branch> {
    daemon.locks.with(&[old, new], || {
        let entry = daemon.mounts.of_branch(old);
        let info = daemon.store.branch_rename(old, new)?;
        daemon.boxes.branch_renamed(old, new);
        if let Some(entry) = entry {
            entry.set_shows(crate::daemon::mounts::Shows::Branch(new.to_owned()));
        }
        Ok(describe(daemon, &info))
    })
}

pub(super) fn delete(daemon: &Daemon, name: &str) -> Result<Deleted> {
    daemon.locks.with(&[name], || {
        let info = daemon.store.branch(name)?;
        let end_it = "end it first: branchpoint box stop BOX";
        super::boxes::require_no_box(daemon, name, end_it)?;
        if let Some(entry) = daemon.mounts.of_branch(name) {
            let dir = entry.dir().display();
            return Err(Failure::new(
                FailureKind::Busy,
                format!("branch '{name}' is mounted at '{dir}'"),
            )
            .hint(format!("unmount it first: branchpoint unmount '{dir}'")));
        }
        daemon.store.branch_delete(name)?;
        let parent = info.parent_checkpoint.map(|id| id.to_string());
        Ok(Deleted {
            id: name.to_owned(),
            parent,
        })
    })
}

fn describe(daemon: &Daemon, info: &BranchInfo) -> Branch {
    let mounted = daemon
        .dir_of(&info.name)
        .map(|entry| ShownPath::of(entry.dir()));
    let (mounted, mounted_base64) = match mounted {
        Some(shown) => (Some(shown.text), shown.base64),
        None => (None, None),
    };
    Branch {
        id: info.name.clone(),
        name: info.name.clone(),
        head: info.head.0,
        parent: info.parent_checkpoint.map(|id| id.to_string()),
        created_us: info.created_us,
        mounted,
        mounted_base64,
        from: None,
        took: None,
    }
}
