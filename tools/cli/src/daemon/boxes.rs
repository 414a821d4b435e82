//! The boxes of a store: names and what belongs to them, whatever instance a box has at the moment.
//!
//! Lock order: a box's own lock ([`Boxed::work`]), then the names of branches, then mounts. The table is taken for a
//! moment and never while waiting.

mod checkpoint;
mod end;
mod fork;
mod host;
mod image;
mod merge;
mod record;
mod rollback;
mod root;
mod start;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use branchpoint_boxes::cgroup::{self, Hierarchies, Limits};
use branchpoint_boxes::instance::{Instance, Launcher};
use branchpoint_boxes::port::Forward;
use branchpoint_boxes::session::{Session, Sessions};
use branchpoint_fs::fuse::SlotMount;
use parking_lot::Mutex;

use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::boxes::BoxPort;

pub(crate) use checkpoint::{checkpoint, report};
pub(crate) use end::{end_all, remove, stop};
pub(crate) use fork::fork;
pub(crate) use merge::merge;
pub(crate) use rollback::rollback;
pub(crate) use start::{Beginning, open, start};

/// The word by which this program becomes the first process of a box.
pub(crate) const BOX_INIT: &str = "box-init";

/// A box.
#[derive(Debug)]
pub(crate) struct Boxed {
    name: String,
    created_us: u64,
    /// The box that it was forked of.
    origin: Option<String>,
    /// Held while something happens to the box as a whole.
    work: Mutex<()>,
    state: Mutex<State>,
    /// Those of its instances, one after the other.
    pub(crate) sessions: Arc<Sessions>,
}

#[derive(Debug)]
struct State {
    branch: String,
    limits: Limits,
    ports: Vec<BoxPort>,
    running: Option<Running>,
}

/// What a box has only while it runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// Ends before its root goes away: fields are dropped in this order.
    pub(crate) instance: Arc<Instance>,
    pub(crate) forwards: Vec<Forward>,
    pub(crate) root: Arc<root::Root>,
}

impl Boxed {
    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns when it was made, in microseconds since 1970.
    pub(crate) fn created_us(&self) -> u64 {
        self.created_us
    }

    /// Returns the branch on which it works.
    pub(crate) fn branch(&self) -> String {
        self.state.lock().branch.clone()
    }

    /// Returns its limits.
    pub(crate) fn limits(&self) -> Limits {
        self.state.lock().limits
    }

    /// Returns its forwarded ports, with the host's real numbers while it runs.
    pub(crate) fn ports(&self) -> Vec<BoxPort> {
        let state = self.state.lock();
        match &state.running {
            Some(running) => running
                .forwards
                .iter()
                .map(|forward| BoxPort {
                    host: forward.address(),
                    inside: forward.port(),
                })
                .collect(),
            None => state.ports.clone(),
        }
    }

    /// Returns its present instance, if it runs.
    pub(crate) fn instance(&self) -> Option<Arc<Instance>> {
        let state = self.state.lock();
        state
            .running
            .as_ref()
            .map(|running| Arc::clone(&running.instance))
    }

    /// Returns its present instance.
    pub(crate) fn running(&self) -> Result<Arc<Instance>> {
        self.instance().ok_or_else(|| {
            Failure::new(
                FailureKind::Invalid,
                format!("box '{}' is not running", self.name),
            )
            .hint(format!(
                "start it: branchpoint box start --name {}",
                self.name
            ))
        })
    }

    /// Returns its present root, if it runs.
    fn root(&self) -> Option<Arc<root::Root>> {
        let state = self.state.lock();
        state
            .running
            .as_ref()
            .map(|running| Arc::clone(&running.root))
    }

    /// Waits until what its processes have written so far is in its branch.
    pub(crate) fn flush(&self) -> Result<()> {
        let (Some(instance), Some(root)) = (self.instance(), self.root()) else {
            return Ok(());
        };
        let pids: Vec<u32> = instance
            .processes()?
            .iter()
            .filter_map(|process| u32::try_from(process.host_pid).ok())
            .collect();
        Ok(root.flush(&pids)?)
    }

    /// Forwards one more port.
    pub(crate) fn add_port(&self, port: &BoxPort) -> Result<BoxPort> {
        let instance = self.running()?;
        let forward = Forward::listen(port.host, port.inside, instance.network())?;
        let added = BoxPort {
            host: forward.address(),
            inside: forward.port(),
        };
        let mut state = self.state.lock();
        if let Some(running) = &mut state.running {
            running.forwards.push(forward);
        }
        state.ports.push(added.clone());
        Ok(added)
    }

    /// Forwards a port of the host no more.
    pub(crate) fn remove_port(&self, host: u16) -> Result<()> {
        let mut state = self.state.lock();
        let before = state.ports.len();
        state.ports.retain(|port| port.host.port() != host);
        let gone: Vec<Forward> = match &mut state.running {
            Some(running) => running
                .forwards
                .extract_if(.., |forward| forward.address().port() == host)
                .collect(),
            None => Vec::new(),
        };
        let found = state.ports.len() < before || !gone.is_empty();
        // Waits for a thread.
        drop(state);
        drop(gone);
        if found {
            return Ok(());
        }
        Err(Failure::new(
            FailureKind::NotFound,
            format!("box '{}' has no forwarded port {host}", self.name),
        )
        .hint(format!("`branchpoint box port {}` lists them", self.name)))
    }

    /// Returns a session by its number, or the one that `choose` takes.
    pub(crate) fn session(
        &self,
        number: Option<u32>,
        choose: impl FnOnce(Vec<Arc<Session>>) -> Option<Arc<Session>>,
    ) -> Result<Arc<Session>> {
        let found = match number {
            Some(number) => self.sessions.get(number),
            None => choose(self.sessions.all()),
        };
        found.ok_or_else(|| {
            let message = match number {
                Some(number) => format!("box '{}' has no session {number}", self.name),
                None => format!("box '{}' has no session", self.name),
            };
            Failure::new(FailureKind::NotFound, message)
                .hint(format!("`branchpoint box show {}` lists them", self.name))
        })
    }
}

/// All boxes of a store.
#[derive(Debug)]
pub(crate) struct Boxes {
    table: Mutex<BTreeMap<String, Arc<Boxed>>>,
    /// Where their roots and their record are.
    dir: PathBuf,
    /// The cgroup above those of all instances.
    cgroup: PathBuf,
    next_instance: AtomicU64,
    launcher: Mutex<Option<Arc<Launcher>>>,
    /// The session of which every instance's root is a slot, once there was a box.
    slots: Mutex<Option<Arc<SlotMount>>>,
    /// What the newest checkpoints hold.
    warm: image::Warm,
    /// Held while the record is written.
    writing: Mutex<()>,
}

impl Boxes {
    /// Reads the record of the store in `store`, and ends and removes what a daemon that died has left of its
    /// boxes. To be called when the store's lock is held and dead mounts are gone.
    pub(crate) fn open(store: &Path) -> Result<Self> {
        let fail = |reason| Failure::io(format!("look at '{}'", store.display()), &reason);
        let found = fs::metadata(store).map_err(fail)?;
        let boxes = Self {
            table: Mutex::default(),
            dir: store.join("boxes"),
            cgroup: PathBuf::from(format!("branchpoint-{:x}-{:x}", found.dev(), found.ino())),
            next_instance: AtomicU64::new(1),
            launcher: Mutex::new(None),
            slots: Mutex::new(None),
            warm: image::Warm::default(),
            writing: Mutex::new(()),
        };
        // Without cgroups there was never a box.
        if let Ok(hierarchies) = Hierarchies::find() {
            match cgroup::clean(&hierarchies, &boxes.cgroup) {
                Ok(0) => {}
                Ok(count) => log::warn!("removed {count} cgroups that a daemon that died had left"),
                Err(failure) => log::error!("boxes of a daemon that died are left: {failure}"),
            }
        }
        root::clean(&boxes.dir);
        for known in record::read(&boxes.dir)? {
            boxes.table.lock().insert(known.name.clone(), known.into());
        }
        Ok(boxes)
    }

    /// Returns all, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Boxed>> {
        self.table.lock().values().cloned().collect()
    }

    /// Returns those that run.
    pub(crate) fn running(&self) -> Vec<Arc<Boxed>> {
        let all = self.all();
        all.into_iter()
            .filter(|one| one.state.lock().running.is_some())
            .collect()
    }

    /// Returns a box.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<Boxed>> {
        self.table.lock().get(name).cloned().ok_or_else(|| {
            Failure::new(FailureKind::NotFound, format!("there is no box '{name}'"))
                .hint("`branchpoint box list` shows the boxes")
        })
    }

    /// Returns the box that runs on a branch.
    pub(crate) fn on_branch(&self, branch: &str) -> Option<Arc<Boxed>> {
        self.running()
            .into_iter()
            .find(|one| one.state.lock().branch == branch)
    }

    /// Lets boxes follow a branch to its new name.
    pub(crate) fn branch_renamed(&self, old: &str, new: &str) {
        for one in self.all() {
            let mut state = one.state.lock();
            if state.branch == old {
                new.clone_into(&mut state.branch);
            }
        }
        self.save();
    }

    /// Returns what instances are started by.
    fn launcher(&self) -> Result<Arc<Launcher>> {
        let mut launcher = self.launcher.lock();
        if let Some(launcher) = launcher.as_ref() {
            return Ok(Arc::clone(launcher));
        }
        let made = Launcher::new(Path::new("/proc/self/exe"), &["branchpoint", BOX_INIT])?;
        Ok(Arc::clone(launcher.insert(Arc::new(made))))
    }

    /// Returns the path of cgroups that no instance has had.
    fn next_cgroup(&self) -> PathBuf {
        let number = self.next_instance.fetch_add(1, Ordering::Relaxed);
        self.cgroup.join(format!("box-{number}"))
    }

    /// Writes the record. Without it boxes work and are forgotten at the end of the daemon.
    pub(crate) fn save(&self) {
        let _writing = self.writing.lock();
        let known: Vec<record::Known> = self.all().iter().map(|one| one.as_ref().into()).collect();
        if let Err(reason) = record::write(&self.dir, &known) {
            log::error!("the record of boxes is not written: {reason}");
        }
    }
}
