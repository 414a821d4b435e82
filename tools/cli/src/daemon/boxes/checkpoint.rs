//! Checkpoints of boxes: files and processes of one instant under one id.

use std::sync::Arc;

use branchpoint_forker::checkpoint::take;
use branchpoint_forker::error::Error as Forker;
use branchpoint_forker::fault::Faults;
use branchpoint_forker::memory::store::InMemory;
use branchpoint_forker::report::{Report, Verdict};
use branchpoint_fs::id::CheckpointId;

use super::host::Here;
use super::{Boxed, image};
use crate::daemon::Daemon;
use crate::daemon::find::{Clock, micros};
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::boxes::{BoxCheckpoint, ReportLine};

/// Takes a checkpoint of a box that runs.
pub(crate) fn checkpoint(
    daemon: &Arc<Daemon>,
    name: &str,
    label: Option<&str>,
    durable: bool,
) -> Result<BoxCheckpoint> {
    let one = daemon.boxes.get(name)?;
    let _work = one.work.lock();
    of(daemon, &one, label, durable)
}

/// Takes a checkpoint. The caller holds the box.
pub(super) fn of(
    daemon: &Arc<Daemon>,
    one: &Boxed,
    label: Option<&str>,
    durable: bool,
) -> Result<BoxCheckpoint> {
    let clock = Clock::start();
    let branch = one.branch();
    daemon.locks.with(&[&branch], || {
        let kept: Vec<_> = one.sessions.all().iter().filter_map(|s| s.kept()).collect();
        let mut here = Here::of(one, &daemon.store, &branch)?;
        let init = one.running()?.init_pid();
        let memory = InMemory::new();
        let taken = take(init, &mut here, &memory, Faults::none())
            .map_err(|error| failed(one.name(), &error))?;
        let instant = here
            .instant
            .ok_or_else(|| Failure::new(FailureKind::Internal, "a checkpoint without files"))?;
        let image = image::Image {
            snapshot: Arc::new(taken.snapshot),
            sessions: kept,
        };
        image::save(&instant, &image, &memory)?;
        let info = daemon.store.finish_instant(&instant, label, durable)?;
        let report = lines(&image.snapshot.report);
        daemon
            .boxes
            .warm
            .keep(info.id, Arc::new(image), Arc::new(memory));
        Ok(BoxCheckpoint {
            id: info.id.to_string(),
            label: info.label,
            name: one.name().to_owned(),
            branch: branch.clone(),
            parent: info.parent.map(|id| id.to_string()),
            pause_us: micros(taken.pause),
            total_us: clock.elapsed_us(),
            memory_bytes: taken.memory_bytes,
            durable,
            report,
        })
    })
}

/// Returns the report of a checkpoint; nothing if it has no processes.
///
/// # Errors
/// The image is damaged.
pub(crate) fn report(daemon: &Daemon, id: CheckpointId) -> Result<Option<Vec<ReportLine>>> {
    let info = daemon.store.checkpoint_info(id)?;
    if !info.has_processes {
        return Ok(None);
    }
    let (image, _) = daemon.boxes.warm.find(&daemon.store, id, info.layer)?;
    Ok(Some(lines(&image.snapshot.report)))
}

/// Says why a tree was not captured or rebuilt.
pub(super) fn failed(name: &str, error: &Forker) -> Failure {
    match error {
        Forker::Refused(report) => {
            let refused = report
                .lines
                .iter()
                .filter(|line| line.verdict == Verdict::Refused);
            let mut what = Vec::new();
            let mut ways = Vec::new();
            for line in refused {
                what.push(format!(
                    "process {}, {}: {}",
                    line.pid, line.what, line.reason
                ));
                if let Some(way) = &line.way_out
                    && !ways.contains(way)
                {
                    ways.push(way.clone());
                }
            }
            let failure = Failure::new(
                FailureKind::Unsupported,
                format!(
                    "box '{name}' cannot be kept as it is, and goes on unharmed: {}",
                    what.join("; ")
                ),
            );
            if ways.is_empty() {
                failure
            } else {
                failure.hint(ways.join("; "))
            }
        }
        other => Failure::new(
            FailureKind::Io,
            format!("the processes of box '{name}': {other}"),
        ),
    }
}

fn lines(report: &Report) -> Vec<ReportLine> {
    let lines = report.lines.iter().map(|line| ReportLine {
        verdict: match line.verdict {
            Verdict::Exact => "exact",
            Verdict::Degraded => "degraded",
            Verdict::Refused => "refused",
        }
        .to_owned(),
        pid: line.pid,
        what: line.what.clone(),
        reason: line.reason.clone(),
        way_out: line.way_out.clone(),
    });
    lines.collect()
}
