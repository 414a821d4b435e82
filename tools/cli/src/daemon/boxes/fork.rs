//! Forking: siblings that go on from one checkpoint, each on a branch of its own.

use std::sync::Arc;

use branchpoint_forker::memory::fill::Twins;
use branchpoint_fs::id::CheckpointId;

use super::record::Known;
use super::rollback::{give_up, rebuild, revision, wake};
use super::{Boxed, checkpoint, start};
use crate::daemon::Daemon;
use crate::daemon::find::Clock;
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::boxes::BoxFork;

use branchpoint_boxes::cgroup::Limits;

/// Makes `count` siblings of a box, which goes on, or of a checkpoint. One that fails does not keep the others
/// from running; `each` is told of every one.
pub(crate) fn fork(
    daemon: &Arc<Daemon>,
    of: &str,
    count: u32,
    each: &mut dyn FnMut(BoxFork) -> Result<()>,
) -> Result<()> {
    let (id, name, limits) = origin(daemon, of)?;
    revision(daemon, id)?;
    for _ in 0..count {
        let clock = Clock::start();
        let sibling = free_name(daemon, &name)?;
        let made = one(daemon, &sibling, &name, limits, id);
        each(BoxFork {
            id: sibling.clone(),
            checkpoint: id.to_string(),
            name: sibling.clone(),
            branch: sibling,
            error: made.as_ref().err().map(Failure::to_string),
            elapsed_us: clock.elapsed_us(),
        })?;
    }
    daemon.boxes.save();
    Ok(())
}

/// Returns the checkpoint to begin from, a name for siblings to be called after, and limits.
fn origin(daemon: &Arc<Daemon>, of: &str) -> Result<(CheckpointId, String, Limits)> {
    match daemon.boxes.get(of) {
        Ok(one) => {
            let _work = one.work.lock();
            let taken = checkpoint::of(daemon, &one, None, false)?;
            Ok((taken.id.parse()?, of.to_owned(), one.limits()))
        }
        Err(no_box) => {
            // Whoever misspells the name of a box is told about boxes.
            let id = daemon.checkpoint_named(of).map_err(|_| no_box)?;
            let branch = daemon.store.checkpoint_info(id)?.branch;
            Ok(match daemon.boxes.on_branch(&branch) {
                Some(one) => (id, one.name().to_owned(), one.limits()),
                None => (id, branch, Limits::default()),
            })
        }
    }
}

/// Returns a name that no branch and no box has.
pub(super) fn free_name(daemon: &Daemon, base: &str) -> Result<String> {
    let mut number = 1u32;
    loop {
        let name = format!("{base}-{number}");
        let is_box = daemon.boxes.table.lock().contains_key(&name);
        if !is_box && daemon.store.branch(&name).is_err() {
            return Ok(name);
        }
        number = number.checked_add(1).ok_or_else(|| {
            Failure::new(
                FailureKind::Exists,
                format!("all names like '{base}-1' are taken"),
            )
        })?;
    }
}

fn one(
    daemon: &Arc<Daemon>,
    name: &str,
    origin: &str,
    limits: Limits,
    id: CheckpointId,
) -> Result<()> {
    start::check_name(name)?;
    start::make_branch(daemon, name, &revision(daemon, id)?)?;
    let mut known = Known::new(name, name, limits);
    known.origin = Some(origin.to_owned());
    let one: Arc<Boxed> = known.into();
    let work = one.work.lock();
    daemon
        .boxes
        .table
        .lock()
        .insert(name.to_owned(), Arc::clone(&one));
    let begun = daemon
        .locks
        .with(&[name], || rebuild(daemon, &one, name, id, Twins::Siblings))
        .and_then(|rebuilt| wake(&one, rebuilt, &[]));
    if begun.is_err() {
        super::end::take_down(&one);
        daemon.boxes.table.lock().remove(name);
        give_up(daemon, name);
    }
    drop(work);
    begun
}
