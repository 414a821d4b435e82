//! Mounting, unmounting, switching.

use std::path::Path;
use std::sync::Arc;

use branchpoint_fs::branch::Revision;
use branchpoint_fs::fuse::{Mount, MountOptions};
use branchpoint_fs::view::View;
use serde_json::{Map, Value};

use crate::daemon::Daemon;
use crate::daemon::find::Clock;
use crate::daemon::mounts::{Entry, Shows};
use crate::daemon::{holders, mountpoint};
use crate::failure::{Failure, FailureKind, Result};
use crate::mountinfo;
use crate::protocol::Target;
use crate::protocol::path::WirePath;
use crate::protocol::reply::{Mounted, Unmounted};

/// How to mount.
#[derive(Debug)]
pub(super) struct How {
    pub(super) read_only: bool,
    pub(super) namespace: Option<WirePath>,
    pub(super) over: bool,
    pub(super) options: Map<String, Value>,
}

pub(super) fn mount(daemon: &Daemon, revision: &str, dir: &Path, how: &How) -> Result<Mounted> {
    let clock = Clock::start();
    let options = switches(&how.options)?;
    let own = mountinfo::namespace();
    if how
        .namespace
        .as_ref()
        .is_some_and(|theirs| Some(&theirs.0) != own.as_ref())
    {
        return Err(Failure::new(
            FailureKind::Unsupported,
            "the daemon lives in another mount namespace; a mount of its would not be seen here",
        )
        .hint("`branchpoint stop` ends it; the next command starts one in this namespace"));
    }
    let dir = mountpoint::accept(dir, daemon.store_dir(), daemon.store.base_dir(), how.over)?;
    let entry = match daemon.store.resolve(revision)? {
        Revision::Branch { name, .. } if how.read_only => {
            return Err(Failure::new(
                FailureKind::Invalid,
                format!("'{name}' is a branch, which changes; read-only mounts show a checkpoint"),
            )
            .hint(format!(
                "make one with `branchpoint checkpoint {name}`, or mount '{name}~0', its youngest"
            )));
        }
        Revision::Branch { name, .. } => daemon.locks.with(&[&name], || {
            let in_there = "look at it there: branchpoint box shell BOX";
            super::boxes::require_no_box(daemon, &name, in_there)?;
            if let Some(entry) = daemon.mounts.of_branch(&name) {
                let there = entry.dir().display();
                return Err(Failure::new(
                    FailureKind::Busy,
                    format!("branch '{name}' is mounted already, at '{there}'"),
                )
                .hint(format!(
                    "use it there, or make a branch of it: branchpoint branch create NAME --from \
                     '{name}'"
                )));
            }
            let mount = attach(daemon.store.view(&name)?, &dir, &options)?;
            Ok(daemon
                .mounts
                .add(dir.clone(), Shows::Branch(name.clone()), mount))
        })?,
        Revision::Checkpoint { id, .. } if !how.read_only => {
            return Err(Failure::new(
                FailureKind::Invalid,
                format!("'{revision}' is a checkpoint, which cannot be changed"),
            )
            .hint(format!(
                "mount it with --read-only, or make a branch of it: branchpoint branch create NAME \
                 --from {}",
                id.short()
            )));
        }
        Revision::Checkpoint { id, layer } => {
            let mount = attach(daemon.store.view_at(layer)?, &dir, &options)?;
            daemon.mounts.add(dir.clone(), Shows::Checkpoint(id), mount)
        }
    };
    log::info!("mounted '{revision}' at '{}'", dir.display());
    Ok(Mounted {
        elapsed_us: Some(clock.elapsed_us()),
        ..entry.describe()
    })
}

/// Mounts; if the machine does not let us, says where to look.
fn attach(view: Arc<View>, dir: &Path, options: &MountOptions) -> Result<Mount> {
    Mount::new(view, dir, options).map_err(|error| {
        let failure = Failure::from(error);
        match failure.kind {
            FailureKind::Denied | FailureKind::Io | FailureKind::NotFound
                if failure.hint.is_none() =>
            {
                failure.hint("`branchpoint doctor` says what mounting needs and lacks here")
            }
            _ => failure,
        }
    })
}

/// Returns the adapter's default switches with `changed` in their place.
fn switches(changed: &Map<String, Value>) -> Result<MountOptions> {
    serde_json::from_value(Value::Object(changed.clone())).map_err(|reason| {
        Failure::new(FailureKind::Usage, "the kernel adapter has no such switch")
            .cause(reason.to_string())
    })
}

pub(super) fn unmount(daemon: &Daemon, target: &Target, force: bool) -> Result<Unmounted> {
    let mut mounts = Vec::new();
    for entry in daemon.mounts_at(target)? {
        mounts.push(entry.describe());
        unmount_one(daemon, &entry, force)?;
    }
    Ok(Unmounted { mounts })
}

/// Unmounts everything; what fails is logged. For the end of the daemon.
pub(in crate::daemon) fn unmount_all(daemon: &Daemon, force: bool) {
    for entry in daemon.mounts.all() {
        if let Err(failure) = unmount_one(daemon, &entry, force) {
            log::error!("{failure}");
        }
    }
}

/// Refuses, naming who uses what, unless every mount could be removed now.
pub(super) fn require_idle(daemon: &Daemon) -> Result<()> {
    for entry in daemon.mounts.all() {
        let users = holders::of(entry.dir());
        if !users.is_empty() {
            return Err(busy(&entry, &users, "branchpoint stop --force"));
        }
    }
    Ok(())
}

fn unmount_one(daemon: &Daemon, entry: &Arc<Entry>, force: bool) -> Result<()> {
    let work = || {
        let mut slot = entry.mount();
        let Some(mount) = slot.as_ref() else {
            return Ok(());
        };
        let dir = entry.dir().display();
        if let Err(error) = mount.unmount(force) {
            let users = holders::of(entry.dir());
            if users.is_empty() {
                return Err(error.into());
            }
            return Err(busy(
                entry,
                &users,
                &format!("branchpoint unmount --force '{dir}'"),
            ));
        }
        drop(slot.take());
        daemon.mounts.remove(entry);
        log::info!("unmounted '{dir}'");
        Ok(())
    };
    match entry.shows() {
        Shows::Branch(name) => daemon.locks.with(&[&name], work),
        Shows::Checkpoint(_) => work(),
    }
}

fn busy(entry: &Entry, users: &[String], force: &str) -> Failure {
    Failure::new(
        FailureKind::Busy,
        format!("'{}' is in use", entry.dir().display()),
    )
    .cause(holders::list(users))
    .hint(format!(
        "end what uses it, or detach it; what is written there afterwards is lost: {force}"
    ))
}

pub(super) fn switch(daemon: &Daemon, branch: &str, target: &Target) -> Result<Mounted> {
    let end_it = "end it first: branchpoint box stop BOX";
    super::boxes::require_no_box(daemon, branch, end_it)?;
    let clock = Clock::start();
    daemon.store.branch(branch)?;
    let entries = daemon.mounts_at(target)?;
    let [entry] = entries.as_slice() else {
        return Err(Failure::new(
            FailureKind::Usage,
            "one mount can be switched at a time",
        ));
    };
    let Shows::Branch(from) = entry.shows() else {
        return Err(Failure::new(
            FailureKind::Invalid,
            format!(
                "'{}' is a read-only mount of a checkpoint",
                entry.dir().display()
            ),
        )
        .hint("unmount it, then mount the branch there"));
    };
    if from != branch {
        daemon.locks.with(&[&from, branch], || {
            if let Some(other) = daemon.mounts.of_branch(branch) {
                let there = other.dir().display();
                return Err(Failure::new(
                    FailureKind::Busy,
                    format!("branch '{branch}' is mounted already, at '{there}'"),
                )
                .hint(format!("unmount it first: branchpoint unmount '{there}'")));
            }
            let mount = entry.mount();
            match mount
                .as_ref()
                .filter(|_| entry.shows() == Shows::Branch(from.clone()))
            {
                Some(mount) => mount.switch(|| daemon.store.view(branch))?,
                None => {
                    return Err(Failure::new(
                        FailureKind::Busy,
                        format!("'{}' has just changed", entry.dir().display()),
                    )
                    .hint("look at `branchpoint stats`, then try again"));
                }
            }
            entry.set_shows(Shows::Branch(branch.to_owned()));
            Ok(())
        })?;
    }
    Ok(Mounted {
        elapsed_us: Some(clock.elapsed_us()),
        ..entry.describe()
    })
}
