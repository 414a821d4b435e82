//! Starting boxes and what runs in them.

use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Weak};

use branchpoint_boxes::Command;
use branchpoint_boxes::cgroup::Limits;
use branchpoint_boxes::instance::{Blueprint, Event, Instance, InstanceId};
use branchpoint_boxes::port::Forward;
use branchpoint_boxes::session::{Kind, Session};
use branchpoint_fs::branch::Revision;

use super::record::Known;
use super::root::Root;
use super::{Boxed, Running, end};
use crate::daemon::Daemon;
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::boxes::{Origin, Run};

/// The longest name of a box: it is a host name.
const NAME_BYTES_MAX: usize = 63;

/// What a command has in its environment unless it is told otherwise.
const ENVIRONMENT: [&str; 3] = [
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
];

/// What a new box is to be.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) name: Option<String>,
    pub(crate) origin: Origin,
    pub(crate) limits: Limits,
    pub(crate) run: Option<Run>,
}

/// Starts a box, or one that was stopped.
pub(crate) fn start(daemon: &Arc<Daemon>, beginning: &Beginning) -> Result<Arc<Boxed>> {
    let known = beginning
        .name
        .as_deref()
        .and_then(|name| daemon.boxes.get(name).ok());
    let (name, branch, made) = place(daemon, beginning, known.as_deref())?;
    let started = begin(daemon, &name, &branch, beginning);
    if started.is_err()
        && made
        && let Err(error) = daemon.store.branch_delete(&branch)
    {
        log::warn!("branch '{branch}' stays: {error}");
    }
    started
}

/// Returns the name of the box, its branch, and whether the branch was made for it.
fn place(
    daemon: &Daemon,
    beginning: &Beginning,
    known: Option<&Boxed>,
) -> Result<(String, String, bool)> {
    match &beginning.origin {
        Origin::From(from) => {
            let Some(name) = &beginning.name else {
                return Err(Failure::new(
                    FailureKind::Usage,
                    "a box on a branch of its own needs a name",
                ));
            };
            check_name(name)?;
            if known.is_some() {
                return Err(exists(name));
            }
            let source = daemon.flushed(from)?;
            make_branch(daemon, name, &source)?;
            Ok((name.clone(), name.clone(), true))
        }
        Origin::Branch(place) => {
            let branch = match (&place.named, known) {
                (None, Some(known)) => known.branch(),
                _ => daemon.branch_at(place)?,
            };
            // Says that there is none, before anything happens.
            daemon.store.branch(&branch)?;
            let name = beginning.name.clone().unwrap_or_else(|| branch.clone());
            check_name(&name)?;
            Ok((name, branch, false))
        }
    }
}

pub(super) fn make_branch(daemon: &Daemon, name: &str, source: &Revision) -> Result<()> {
    daemon
        .locks
        .with(&[name], || daemon.store.branch_create(name, source))?;
    Ok(())
}

fn begin(
    daemon: &Arc<Daemon>,
    name: &str,
    branch: &str,
    beginning: &Beginning,
) -> Result<Arc<Boxed>> {
    let (one, is_new) = {
        let mut table = daemon.boxes.table.lock();
        match table.get(name) {
            Some(one) => (Arc::clone(one), false),
            None => {
                let one: Arc<Boxed> = Known::new(name, branch, beginning.limits).into();
                table.insert(name.to_owned(), Arc::clone(&one));
                (one, true)
            }
        }
    };
    let work = one.work.lock();
    let result = run(daemon, &one, branch, beginning);
    if let Err(failure) = result {
        if is_new {
            daemon.boxes.table.lock().remove(name);
        }
        return Err(failure);
    }
    drop(work);
    daemon.boxes.save();
    log::info!("box '{name}' runs on branch '{branch}'");
    Ok(one)
}

fn run(daemon: &Arc<Daemon>, one: &Arc<Boxed>, branch: &str, beginning: &Beginning) -> Result<()> {
    let ports = {
        let mut state = one.state.lock();
        if state.running.is_some() {
            return Err(exists(&one.name));
        }
        branch.clone_into(&mut state.branch);
        if beginning.limits != Limits::default() {
            state.limits = beginning.limits;
        }
        state.ports.clone()
    };
    one.sessions.clear();
    let root = daemon
        .locks
        .with(&[branch], || Root::of_branch(daemon, branch))?;
    let running = Running {
        instance: Arc::new(build(daemon, one, &root)?),
        forwards: Vec::new(),
        root: Arc::new(root),
    };
    one.state.lock().running = Some(running);
    let begun = forward_all(one, &ports).and_then(|()| match &beginning.run {
        Some(run) => open(one, run).map(drop),
        None => Ok(()),
    });
    if begun.is_err() {
        end::take_down(one);
    }
    begun
}

pub(super) fn forward_all(one: &Boxed, ports: &[crate::protocol::boxes::BoxPort]) -> Result<()> {
    let instance = one.running()?;
    for port in ports {
        let forward = Forward::listen(port.host, port.inside, instance.network())?;
        if let Some(running) = &mut one.state.lock().running {
            running.forwards.push(forward);
        }
    }
    Ok(())
}

/// Builds an instance of a box on `root`.
pub(super) fn build(daemon: &Arc<Daemon>, one: &Arc<Boxed>, root: &Root) -> Result<Instance> {
    let dir = root.open()?;
    let blueprint = Blueprint {
        root: dir.as_fd(),
        hostname: &one.name,
        cgroup: &daemon.boxes.next_cgroup(),
        limits: one.limits(),
    };
    let (weak, sessions) = (Arc::downgrade(daemon), Arc::clone(&one.sessions));
    let name = one.name.clone();
    let noted = move |instance: InstanceId, event: Event| {
        sessions.note(instance, event);
        if event == Event::Ended {
            died(&weak, &name, instance);
        }
    };
    let launcher = daemon.boxes.launcher()?;
    Ok(Instance::build(&launcher, &blueprint, noted)?)
}

/// Takes down a box whose instance has ended without being told to.
fn died(daemon: &Weak<Daemon>, name: &str, instance: InstanceId) {
    let Some(daemon) = daemon.upgrade() else {
        return;
    };
    let name = name.to_owned();
    // The thread that brings the news is the instance's own and must end for the instance to go.
    let spawned = std::thread::Builder::new()
        .name("box-end".to_owned())
        .spawn(move || {
            let Ok(one) = daemon.boxes.get(&name) else {
                return;
            };
            let _work = one.work.lock();
            if one.instance().is_some_and(|now| now.id() == instance) {
                log::warn!("the first process of box '{name}' has ended");
                end::take_down(&one);
            }
        });
    if let Err(reason) = spawned {
        log::error!("a box that has ended is not taken down: {reason}");
    }
}

/// Starts a command in a box that runs.
pub(crate) fn open(one: &Boxed, run: &Run) -> Result<Arc<Session>> {
    let instance = one.running()?;
    let kind = match run.terminal {
        Some((rows, columns)) => Kind::Terminal { rows, columns },
        None => Kind::Pipes { input: run.input },
    };
    Ok(one.sessions.open(&instance, &command(run), kind)?)
}

/// Returns a command with all that a box adds.
fn command(run: &Run) -> Command {
    let name_of = |one: &[u8]| {
        let end = one.iter().position(|byte| *byte == b'=');
        one.get(..end.unwrap_or(one.len()))
            .unwrap_or_default()
            .to_vec()
    };
    let mut env: Vec<Vec<u8>> = ENVIRONMENT
        .iter()
        .map(|one| one.as_bytes().to_vec())
        .collect();
    for given in &run.env {
        env.retain(|one| name_of(one) != name_of(&given.0));
        env.push(given.0.clone());
    }
    let cwd = run.cwd.as_ref().map(|dir| dir.0.as_os_str().as_bytes());
    Command {
        argv: run.argv.iter().map(|arg| arg.0.clone()).collect(),
        env,
        cwd: cwd.unwrap_or(b"/").to_vec(),
        user: run.user.clone(),
    }
}

fn exists(name: &str) -> Failure {
    Failure::new(
        FailureKind::Exists,
        format!("there is a box '{name}' already"),
    )
    .hint(format!(
        "choose another name with --name, or end it first: branchpoint box remove --force {name}"
    ))
}

/// Refuses what cannot be a host name.
pub(super) fn check_name(name: &str) -> Result<()> {
    let letter = |letter: char| letter.is_ascii_alphanumeric();
    let ok = name.len() <= NAME_BYTES_MAX
        && name.starts_with(letter)
        && name
            .chars()
            .all(|one| letter(one) || matches!(one, '-' | '_' | '.'));
    if ok {
        return Ok(());
    }
    Err(Failure::new(
        FailureKind::Invalid,
        format!("'{name}' cannot be the name of a box, which is also its host name"),
    )
    .hint(format!(
        "use at most {NAME_BYTES_MAX} letters, digits, dots, dashes and underscores, the first a letter \
         or digit: --name NAME"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::path::WireBytes;

    #[test]
    fn names_are_host_names() {
        for name in ["web", "a.b-c_d", "0", &"x".repeat(63)] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "-a", "a/b", "a b", "ü", &"x".repeat(64)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn what_is_given_replaces_what_is_usual() {
        let run = Run {
            env: vec![
                WireBytes(b"HOME=/x".to_vec()),
                WireBytes(b"A=1".to_vec()),
                WireBytes(b"A=2".to_vec()),
            ],
            ..Run::default()
        };
        let env = command(&run).env;
        let count = |text: &str| {
            env.iter()
                .filter(|one| one.starts_with(text.as_bytes()))
                .count()
        };
        assert_eq!((count("HOME="), count("A="), count("PATH=")), (1, 1, 1));
        assert!(env.contains(&b"A=2".to_vec()));
    }
}
