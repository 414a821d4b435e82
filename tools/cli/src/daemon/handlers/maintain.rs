//! The tree, the numbers, the collector, the verifier, and the end.

use std::collections::HashMap;

use branchpoint_fs::{check, collect};
use serde_json::Value;

use crate::daemon::Daemon;
use crate::daemon::boxes::end_all;
use crate::daemon::find::Clock;
use crate::daemon::mounts::{Entry, Shows};
use crate::daemon::responder::Responder;
use crate::failure::Result;
use crate::protocol::path::ShownPath;
use crate::protocol::reply::{Checked, Drift, Mounted, Node, Outcome, Problem, Stats, Stopped};

use super::mounting::{require_idle, unmount};
use super::{end_of_list, fields};

pub(super) fn log(daemon: &Daemon, out: &mut Responder<'_>) -> Result<Value> {
    let mut of_branch: HashMap<String, Mounted> = HashMap::new();
    let mut of_checkpoint: HashMap<_, Vec<Mounted>> = HashMap::new();
    for entry in daemon.mounts.all() {
        match entry.shows() {
            Shows::Branch(name) => drop(of_branch.insert(name, entry.describe())),
            Shows::Checkpoint(id) => {
                of_checkpoint.entry(id).or_default().push(entry.describe());
            }
        }
    }
    for node in daemon.store.log()?.nodes {
        let mut mounts: Vec<Mounted> = node
            .branches
            .iter()
            .filter_map(|name| of_branch.get(name).cloned())
            .collect();
        for checkpoint in &node.checkpoints {
            mounts.extend(of_checkpoint.remove(&checkpoint.id).unwrap_or_default());
        }
        out.item(&Node {
            layer: node.layer.0,
            parent_layer: node.parent.map(|layer| layer.0),
            checkpoints: node
                .checkpoints
                .iter()
                .map(super::checkpoints::describe)
                .collect(),
            branches: node.branches,
            mounts,
            shared_bytes: node.shared_bytes,
            private_bytes: node.private_bytes,
            created_us: node.created_us,
        })?;
    }
    Ok(end_of_list())
}

pub(super) fn stats(daemon: &Daemon) -> Result<Stats> {
    let store = ShownPath::of(daemon.store_dir());
    let uptime = daemon.started.elapsed().as_micros();
    let mut counts = fields(&daemon.store.stats()?)?;
    // Said below, in a form that any path has.
    counts.remove("base");
    Ok(Stats {
        daemon_pid: std::process::id(),
        uptime_us: u64::try_from(uptime).unwrap_or(u64::MAX),
        store: store.text,
        store_base64: store.base64,
        base: daemon
            .store
            .base_dir()
            .map(|base| base.display().to_string()),
        read_only: daemon.store.read_only(),
        mounts: described(daemon),
        counts,
    })
}

pub(super) fn collect(daemon: &Daemon, dry_run: bool, out: &mut Responder<'_>) -> Result<Outcome> {
    let clock = Clock::start();
    let collected = collect::collect(&daemon.store, dry_run, &mut |step| out.progress(&step))?;
    let mut counts = fields(&collected)?;
    // Sizes end with their unit.
    if let Some(bytes) = counts.remove("bytes_freed") {
        counts.insert("freed_bytes".to_owned(), bytes);
    }
    Ok(Outcome {
        id: None,
        elapsed_us: clock.elapsed_us(),
        counts,
    })
}

pub(super) fn check(daemon: &Daemon, out: &mut Responder<'_>) -> Result<Checked> {
    let clock = Clock::start();
    let report = check::check(&daemon.store, &mut |step| out.progress(&step))?;
    let problem = |problem: &check::Problem| Problem {
        invariant: problem.invariant.clone(),
        what: problem.what.clone(),
        detail: problem.detail.clone(),
        breaks: problem.breaks.clone(),
    };
    let drift = |drift: &check::Drift| Drift {
        path: drift.path.clone(),
        what: drift.what.clone(),
    };
    Ok(Checked {
        clean: report.is_clean(),
        problems: report.problems.iter().map(problem).collect(),
        problems_left_off: report.problems_left_off,
        drift: report.drift.iter().map(drift).collect(),
        counts: fields(&report.counts)?,
        elapsed_us: clock.elapsed_us(),
    })
}

pub(super) fn stop(daemon: &Daemon, force: bool) -> Result<Stopped> {
    // All or nothing: no mount is removed as long as another could not be.
    if force {
        end_all(daemon);
    } else {
        super::boxes::require_none(daemon)?;
        require_idle(daemon)?;
    }
    let mounts = described(daemon);
    unmount(daemon, &crate::protocol::Target::All, force)?;
    // A disk that is full or broken must not keep the daemon alive: what was acknowledged is in files,
    // which whoever opens the store next reads.
    let unsynced = daemon.store.sync().err().map(|error| {
        log::error!("{error}");
        error.to_string()
    });
    Ok(Stopped {
        stopped: true,
        daemon_pid: Some(std::process::id()),
        mounts,
        unsynced,
    })
}

fn described(daemon: &Daemon) -> Vec<Mounted> {
    daemon
        .mounts
        .all()
        .iter()
        .map(|entry: &std::sync::Arc<Entry>| entry.describe())
        .collect()
}
