//! Going back: a tree is rebuilt beside the one that runs, and then takes its place.
//!
//! Everything that can fail happens before anything is given up: the new tree is built on a branch of its own, with
//! a root, namespaces and sessions' ends of its own, and waits. Then the branch is replaced in one step, the sessions
//! go over, the tree is woken, and the old one is killed.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread;

use branchpoint_boxes::SEED_FD;
use branchpoint_boxes::instance::{Instance, host_pid};
use branchpoint_forker::fault::Faults;
use branchpoint_forker::memory::fill::Twins;
use branchpoint_forker::restore::{self, Parked, Seed};
use branchpoint_fs::branch::Revision;
use branchpoint_fs::id::CheckpointId;

use super::host::{NewEnds, There, tracer};
use super::root::Root;
use super::{Boxed, Running, checkpoint, end, fork, image, start};
use crate::daemon::Daemon;
use crate::daemon::find::Clock;
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::boxes::{BoxPort, BoxRollback};

/// A tree that is rebuilt and waits, with all that belongs to it.
pub(super) struct Rebuilt {
    parked: Parked,
    pub(super) instance: Arc<Instance>,
    pub(super) root: Arc<Root>,
    image: Arc<image::Image>,
    ends: NewEnds,
}

/// Lets a box go on from a checkpoint.
pub(crate) fn rollback(
    daemon: &Arc<Daemon>,
    name: &str,
    to: &str,
    keep: Option<&str>,
) -> Result<BoxRollback> {
    let clock = Clock::start();
    let one = daemon.boxes.get(name)?;
    let _work = one.work.lock();
    let id = daemon.checkpoint_named(to)?;
    let branch = one.branch();
    let next = fork::free_name(daemon, &format!("{branch}-going-back"))?;
    start::make_branch(daemon, &next, &revision(daemon, id)?)?;
    let switched = daemon.locks.with(&[&branch, &next], || {
        let rebuilt = rebuild(daemon, &one, &next, id, Twins::None)?;
        daemon.store.branch_replace(&branch, &next, keep)?;
        Ok(rebuilt)
    });
    let rebuilt = match switched {
        Ok(rebuilt) => rebuilt,
        Err(failure) => {
            give_up(daemon, &next);
            return Err(failure);
        }
    };
    let processes = rebuilt.parked.pids().len();
    put_in_place(&one, rebuilt)?;
    let switch_us = clock.elapsed_us();
    daemon.boxes.save();
    Ok(BoxRollback {
        id: id.to_string(),
        name: one.name().to_owned(),
        branch,
        kept: keep.map(str::to_owned),
        switch_us,
        total_us: clock.elapsed_us(),
        processes: u64::try_from(processes).unwrap_or(u64::MAX),
    })
}

/// Lets a rebuilt tree run in the place of the one that the box has, which is killed.
pub(super) fn put_in_place(one: &Arc<Boxed>, rebuilt: Rebuilt) -> Result<()> {
    let ports = one.ports();
    // The addresses on the host are free only when the old tree's forwarders are gone.
    let old = one.state.lock().running.take();
    let old = old.map(|running| {
        drop(running.forwards);
        (running.instance, running.root)
    });
    let woken = wake(one, rebuilt, &ports);
    if let Some(old) = old {
        bury(one, old);
    }
    if woken.is_err() {
        end::take_down(one);
    }
    woken
}

/// Returns a checkpoint as what a branch is made from.
pub(super) fn revision(daemon: &Daemon, id: CheckpointId) -> Result<Revision> {
    let info = daemon.store.checkpoint_info(id)?;
    if info.has_processes {
        return Ok(Revision::Checkpoint {
            id,
            layer: info.layer,
        });
    }
    Err(Failure::new(
        FailureKind::Invalid,
        format!("checkpoint {} holds files, but no processes", id.short()),
    )
    .hint(format!(
        "start a box on it: branchpoint box start --name NAME --from {}",
        id.short()
    )))
}

/// Removes the branch of an attempt that failed.
pub(super) fn give_up(daemon: &Daemon, branch: &str) {
    if let Err(error) = daemon.store.branch_delete(branch) {
        log::warn!("branch '{branch}' stays: {error}");
    }
}

/// Rebuilds the tree of a checkpoint on `branch`, which was made from it. The caller holds the branch's name.
pub(super) fn rebuild(
    daemon: &Arc<Daemon>,
    one: &Arc<Boxed>,
    branch: &str,
    id: CheckpointId,
    twins: Twins,
) -> Result<Rebuilt> {
    let layer = daemon.store.checkpoint_info(id)?.layer;
    let (image, memory) = daemon.boxes.warm.find(&daemon.store, id, layer)?;
    let root = Arc::new(Root::of_view(daemon, daemon.store.view(branch)?)?);
    let instance = Arc::new(start::build(daemon, one, &root)?);
    let tracer = tracer()?;
    let seed = instance.seed(tracer.as_fd())?;
    let pid = host_pid(&seed.pidfd).ok_or_else(|| {
        Failure::new(
            FailureKind::Io,
            "the seed of a process tree ended at once".to_owned(),
        )
    })?;
    let (there, ends) = There::new(
        Arc::clone(&instance),
        Arc::clone(&root),
        image.sessions.clone(),
    );
    let parked = restore::build(
        Arc::clone(&image.snapshot),
        instance.init_pid(),
        Seed {
            pid,
            tracer: SEED_FD,
        },
        Box::new(there),
        memory,
        twins,
        Faults::none(),
    )
    .map_err(|error| checkpoint::failed(one.name(), &error))?;
    Ok(Rebuilt {
        parked,
        instance,
        root,
        image,
        ends,
    })
}

/// Makes a rebuilt tree the box's, with its sessions and ports, and lets it run. The box has no other any more.
pub(super) fn wake(one: &Arc<Boxed>, rebuilt: Rebuilt, ports: &[BoxPort]) -> Result<()> {
    let Rebuilt {
        parked,
        instance,
        root,
        image,
        ends,
    } = rebuilt;
    one.state.lock().running = Some(Running {
        instance: Arc::clone(&instance),
        forwards: Vec::new(),
        root,
    });
    let mut ends = std::mem::take(&mut *ends.lock());
    for kept in &image.sessions {
        // Before it runs, or its end could be missed.
        let process = instance.adopt(kept.number, kept.pid)?;
        let ends = ends.remove(&kept.number).unwrap_or_default();
        one.sessions.rebuild(kept, process, ends)?;
    }
    let is_kept = |number| image.sessions.iter().any(|kept| kept.number == number);
    for session in one.sessions.all() {
        // Begun after the checkpoint: it never was.
        if !is_kept(session.number()) && session.snapshot().status.is_none() {
            one.sessions.remove(session.number());
        }
    }
    start::forward_all(one, ports)?;
    parked
        .wake()
        .map_err(|error| checkpoint::failed(one.name(), &error))
}

/// Ends a tree that another one has replaced; freeing its memory takes time that nobody should wait for.
fn bury(one: &Boxed, old: (Arc<Instance>, Arc<Root>)) {
    let name = one.name().to_owned();
    let ended = move || {
        let (instance, root) = old;
        if let Err(failure) = instance.kill() {
            log::error!("the old processes of box '{name}' do not end: {failure}");
        }
        drop(instance);
        drop(root);
    };
    if let Err(reason) = thread::Builder::new()
        .name("box-bury".to_owned())
        .spawn(ended)
    {
        log::error!("old processes of a box are not ended: {reason}");
    }
}
