//! Carrying what a branch changed to a real directory, the base by default.
//!
//! In order: find out what differs between the root layer and the source; check that every target is
//! still what the source began with, or already what it is to become; keep in the root layer what the
//! base says of files that will change, for all other branches and checkpoints read it; then change
//! the directory, each file by a rename. Nothing is touched before everything has been checked. After
//! an interruption, doing it again completes it.

mod carry;
mod check;
mod host;
mod plan;
mod same;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::attr::FileKind;
use crate::base::Base;
use crate::error::{Error, Result};
use crate::id::{Ino, LayerId};
use crate::progress::{Progress, Watch};
use crate::store::Store;
use crate::view::View;

use host::Host;
use plan::{Plan, What};

/// What an apply did, or would do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ApplyOutcome {
    /// Files of any kind but directories written or replaced.
    pub written: u64,
    /// Directories made, or given other attributes.
    pub directories: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Files and directories removed.
    pub removed: u64,
    /// Targets that already were as they should be.
    pub unchanged: u64,
    /// Bytes of content written.
    pub bytes: u64,
    /// Bytes of the base kept in the store for the other branches and checkpoints.
    pub preserved_bytes: u64,
    /// Extended attributes that the directory does not take.
    pub attributes_skipped: u64,
}

/// Both sides of the difference, and where it goes.
struct Job<'a> {
    store: &'a Arc<Store>,
    old: &'a View,
    new: &'a View,
    /// The target directory, for looking at it.
    target: &'a Base,
    /// Whether that is the store's own base.
    is_base: bool,
    plan: Plan,
}

/// Carries the difference between the base as it was first seen and `source` to the base, or to the
/// directory `to`. With `dry_run`, only checks and counts.
///
/// # Errors
/// [`Error::Conflicts`] with all targets that were changed by others, nothing touched;
/// [`Error::BadInput`] if there is no base and no `to`; [`Error::BaseUnavailable`];
/// [`Error::TargetBusy`] while another apply changes the directory, from whatever store;
/// [`Error::Interrupted`] before the directory is changed; [`Error::Io`] for what it refuses.
pub fn apply(
    store: &Arc<Store>,
    source: LayerId,
    to: Option<&Path>,
    dry_run: bool,
    progress: &mut Watch<'_>,
) -> Result<ApplyOutcome> {
    let other = other_target(store, to)?;
    let target = match (&other, store.base()) {
        (Some(other), _) => other,
        (None, Some(base)) => base,
        (None, None) => {
            let what = "this store has no base to apply to: name a directory".to_owned();
            return Err(Error::BadInput { what });
        }
    };
    target.check()?;
    // Held until the end: what was checked stays so, as far as other applies go.
    let _alone = (!dry_run).then(|| host::lock(target.dir())).transpose()?;
    let new = store.snapshot(source)?;
    let old = store.view_at(LayerId::ROOT)?;
    let job = Job {
        store,
        old: &old,
        new: &new,
        target,
        is_base: other.is_none(),
        plan: Plan::make(&old, &new)?,
    };
    let done = job.check()?;
    let mut outcome = ApplyOutcome::default();
    if dry_run {
        job.count(&done, &mut outcome);
        return Ok(outcome);
    }
    let host = Host::open(target.dir())?;
    if job.is_base {
        outcome.preserved_bytes = job.preserve(&done, progress)?;
    }
    job.carry(&host, &done, &mut outcome, progress)?;
    Ok(outcome)
}

/// Opens `to`, unless it is the base itself.
fn other_target(store: &Store, to: Option<&Path>) -> Result<Option<Base>> {
    let Some(to) = to else {
        return Ok(None);
    };
    let target = Base::open(to, store.dir())?;
    let is_base = store.base().is_some_and(|base| base.dir() == target.dir());
    Ok((!is_base).then_some(target))
}

impl Job<'_> {
    /// Keeps the content of all files of the base that will be touched. Even a further hard link
    /// changes the time by which an unchanged file is known.
    fn preserve(&self, done: &BTreeSet<usize>, progress: &mut Watch<'_>) -> Result<u64> {
        let steps = self.plan.steps.iter().enumerate();
        let open = steps.filter(|(number, _)| !done.contains(number));
        let mut files: BTreeSet<Ino> = open.filter_map(|(_, step)| step.old).collect();
        files.extend(self.plan.linked.values());
        let total = Some(files.len() as u64);
        let mut bytes = 0;
        for (done, ino) in (1..).zip(files) {
            if self.old.getattr(ino)?.kind == FileKind::Regular {
                bytes += self.old.preserve(ino)?;
            }
            progress(Progress {
                done,
                total,
                what: "keeping files of the base",
            })?;
        }
        self.store.sync()?;
        // Whoever was reading meanwhile may have decided to ask the base: let them finish.
        drop(self.store.moving.write());
        Ok(bytes)
    }

    fn count(&self, done: &BTreeSet<usize>, outcome: &mut ApplyOutcome) {
        for (number, step) in self.plan.steps.iter().enumerate() {
            if done.contains(&number) {
                outcome.unchanged += 1;
                continue;
            }
            match step.what {
                What::Directory(_) => outcome.directories += 1,
                What::Write(ino) => {
                    outcome.written += 1;
                    if let Ok(attr) = self.new.getattr(ino)
                        && attr.kind == FileKind::Regular
                    {
                        outcome.bytes += attr.size;
                    }
                }
                What::Link { .. } => outcome.hard_links += 1,
                What::Remove { .. } => outcome.removed += 1,
            }
        }
    }
}
