//! Which branch or state a request means, and how it is worked on while it is mounted.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use branchpoint_fs::branch::Revision;
use branchpoint_fs::fuse::Mount;
use branchpoint_fs::id::CheckpointId;
use branchpoint_fs::view::View;

use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::reply::Took;
use crate::protocol::{Place, Target};

use super::Daemon;
use super::mounts::{Entry, Shows};

/// Measures one operation in the daemon.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    flush: Duration,
    pause: Duration,
}

impl Clock {
    /// Starts to measure.
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
            flush: Duration::ZERO,
            pause: Duration::ZERO,
        }
    }

    /// Writes what the kernel holds back of a mount, if there is one.
    pub(crate) fn flush(&mut self, mount: Option<&Mount>) -> Result<()> {
        let Some(mount) = mount else { return Ok(()) };
        let start = Instant::now();
        mount.flush()?;
        self.flush += start.elapsed();
        Ok(())
    }

    /// Runs the operation itself.
    pub(crate) fn pause<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = work();
        self.pause += start.elapsed();
        result
    }

    /// Returns the time since the start in microseconds.
    pub(crate) fn elapsed_us(&self) -> u64 {
        micros(self.start.elapsed())
    }

    /// Returns everything measured.
    pub(crate) fn took(&self) -> Took {
        Took {
            elapsed_us: self.elapsed_us(),
            pause_us: micros(self.pause),
            flush_us: micros(self.flush),
        }
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Daemon {
    /// Returns the branch that `place` means.
    pub(crate) fn branch_at(&self, place: &Place) -> Result<String> {
        match self.shown_at(place) {
            Some(Shows::Branch(name)) => Ok(name),
            Some(Shows::Checkpoint(id)) => Err(Failure::new(
                FailureKind::Invalid,
                format!("this is a read-only mount of checkpoint {}", id.short()),
            )
            .hint("name the branch that is meant")),
            None => self.only_branch(),
        }
    }

    /// Returns the name of the branch or checkpoint that `place` means.
    pub(crate) fn revision_at(&self, place: &Place) -> Result<String> {
        match self.shown_at(place) {
            Some(Shows::Branch(name)) => Ok(name),
            Some(Shows::Checkpoint(id)) => Ok(id.to_string()),
            None => self.only_branch(),
        }
    }

    fn shown_at(&self, place: &Place) -> Option<Shows> {
        if let Some(name) = &place.named {
            return Some(Shows::Branch(name.clone()));
        }
        let view = place.view.as_ref()?;
        self.mounts.at(&view.0).map(|entry| entry.shows())
    }

    fn only_branch(&self) -> Result<String> {
        let mut names: Vec<String> = self
            .store
            .branches()?
            .into_iter()
            .map(|branch| branch.name)
            .collect();
        if names.len() == 1 {
            return Ok(names.remove(0));
        }
        let shown = if names.len() > 8 {
            format!("{} and {} more", names[..8].join(", "), names.len() - 8)
        } else {
            names.join(", ")
        };
        Err(Failure::new(
            FailureKind::Usage,
            format!("which branch? the store has several: {shown}"),
        )
        .hint("name one, or work inside of a directory where it is mounted"))
    }

    /// Returns the mounts that `target` means; at least one, unless all are meant.
    pub(crate) fn mounts_at(&self, target: &Target) -> Result<Vec<Arc<Entry>>> {
        let none = |message: String| {
            Failure::new(FailureKind::NotFound, message)
                .hint("`branchpoint stats` shows what is mounted where")
        };
        let all = self.mounts.all();
        match target {
            Target::All => Ok(all),
            Target::Only => match all.as_slice() {
                [only] => Ok(vec![Arc::clone(only)]),
                [] => Err(none("nothing is mounted from this store".to_owned())),
                _ => Err(Failure::new(
                    FailureKind::Usage,
                    format!("which mount? there are {}", all.len()),
                )
                .hint("name its directory or its branch; `branchpoint stats` shows them")),
            },
            Target::Dir(dir) => {
                let dir = dir.0.as_path();
                let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
                self.mounts
                    .at(&real)
                    .or_else(|| self.mounts.at(dir))
                    .map(|entry| vec![entry])
                    .ok_or_else(|| {
                        none(format!(
                            "nothing of this store is mounted at '{}'",
                            dir.display()
                        ))
                    })
            }
            Target::Branch(name) => self
                .mounts
                .of_branch(name)
                .map(|entry| vec![entry])
                .ok_or_else(|| match self.store.branch(name) {
                    Ok(_) => none(format!("branch '{name}' is not mounted")),
                    Err(error) => error.into(),
                }),
        }
    }

    /// Runs `work` on a branch while nothing else happens to it, with its mount if it has one.
    pub(crate) fn with_branch<R>(
        &self,
        name: &str,
        work: impl FnOnce(Option<&Mount>) -> Result<R>,
    ) -> Result<R> {
        self.locks
            .with(&[name], || match self.mounts.of_branch(name) {
                Some(entry) => {
                    let mount = entry.mount();
                    work(mount.as_ref())
                }
                None => {
                    if let Some(one) = self.boxes.on_branch(name) {
                        one.flush()?;
                    }
                    work(None)
                }
            })
    }

    /// Lets `work` give `branch` another head, which a mount of the branch shows at once.
    pub(crate) fn move_head<R>(
        &self,
        branch: &str,
        mount: Option<&Mount>,
        work: impl FnOnce() -> branchpoint_fs::error::Result<R>,
    ) -> Result<R> {
        let Some(mount) = mount else {
            return Ok(work()?);
        };
        let mut done = None;
        mount.switch(|| {
            done = Some(work()?);
            self.store.view(branch)
        })?;
        done.ok_or_else(|| Failure::new(FailureKind::Internal, "a switch did not do its work"))
    }

    /// Returns the state named `revision`, with everything written to it so far in the store.
    pub(crate) fn flushed(&self, revision: &str) -> Result<Revision> {
        match self.store.resolve(revision)? {
            Revision::Branch { name, .. } => self.with_branch(&name, |mount| {
                Clock::start().flush(mount)?;
                Ok(self.store.resolve(&name)?)
            }),
            checkpoint @ Revision::Checkpoint { .. } => Ok(checkpoint),
        }
    }

    /// Returns a view for reading the state `revision`.
    pub(crate) fn view_of(&self, revision: &Revision) -> Result<Arc<View>> {
        Ok(match revision {
            Revision::Branch { name, .. } => self.store.view(name)?,
            Revision::Checkpoint { layer, .. } => self.store.view_at(*layer)?,
        })
    }

    /// Returns the checkpoint named `revision`.
    pub(crate) fn checkpoint_named(&self, revision: &str) -> Result<CheckpointId> {
        match self.store.resolve(revision)? {
            Revision::Checkpoint { id, .. } => Ok(id),
            Revision::Branch { name, .. } => Err(Failure::new(
                FailureKind::Invalid,
                format!("'{name}' is a branch, not a checkpoint"),
            )
            .hint(format!("'{name}~0' is the youngest checkpoint behind it"))),
        }
    }

    /// Returns the mount point of a branch.
    pub(crate) fn dir_of(&self, name: &str) -> Option<Arc<Entry>> {
        self.mounts.of_branch(name)
    }

    /// Returns the store's directory.
    pub(crate) fn store_dir(&self) -> &Path {
        self.store.dir()
    }
}
