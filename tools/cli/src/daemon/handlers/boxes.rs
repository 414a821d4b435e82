//! Boxes.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use branchpoint_boxes::cgroup::Limits;
use branchpoint_boxes::session::{Left, Session};
use serde_json::Value;

use crate::daemon::Daemon;
use crate::daemon::boxes::{self, Beginning, Boxed};
use crate::daemon::find::Clock;
use crate::daemon::responder::Responder;
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::base64;
use crate::protocol::boxes::{
    BoxInfo, BoxLeft, BoxLimits, BoxLog, BoxPort, BoxProcess, BoxRequest, BoxSession, BoxState, Run,
};
use crate::protocol::path::WirePath;
use crate::protocol::reply::Deleted;

use super::{end_of_list, value};

pub(super) fn handle(
    daemon: &Arc<Daemon>,
    request: BoxRequest,
    out: &mut Responder<'_>,
) -> Result<Value> {
    match request {
        BoxRequest::Start {
            name,
            origin,
            base,
            memory_bytes,
            pids,
            cpu_millis,
            run,
        } => {
            let clock = Clock::start();
            check_base(daemon, base.as_ref())?;
            let limits = Limits {
                memory_bytes,
                pids,
                cpu_millis,
            };
            let beginning = Beginning {
                name,
                origin,
                limits,
                run,
            };
            let one = boxes::start(daemon, &beginning)?;
            let mut info = describe(&one, false);
            info.elapsed_us = Some(clock.elapsed_us());
            value(&info)
        }
        BoxRequest::Exec { name, run, detach } => {
            let stream = if detach { None } else { Some(stream(out)?) };
            value(&exec(daemon, &name, &run, stream)?)
        }
        BoxRequest::Attach { session } => {
            let stream = stream(out)?;
            let youngest = |all: Vec<Arc<Session>>| {
                let runs = |one: &Arc<Session>| one.snapshot().status.is_none();
                all.iter().rev().find(|one| runs(one)).cloned()
            };
            let (one, session) = find(daemon, &session, youngest)?;
            let left = session.attach(stream, true)?;
            value(&describe_left(&one, &session, left))
        }
        BoxRequest::List {} => {
            for one in daemon.boxes.all() {
                out.item(&describe(&one, false))?;
            }
            Ok(end_of_list())
        }
        BoxRequest::Show { name } => value(&describe(&*daemon.boxes.get(&name)?, true)),
        BoxRequest::Logs { session } => {
            let first = |all: Vec<Arc<Session>>| all.first().cloned();
            let (one, session) = find(daemon, &session, first)?;
            let bytes = session.kept_output();
            let output = String::from_utf8_lossy(&bytes).into_owned();
            value(&BoxLog {
                id: id_of(&one, session.number()),
                output_base64: (output.as_bytes() != bytes).then(|| base64::encode(&bytes)),
                output,
                output_bytes: session.snapshot().output_bytes,
            })
        }
        BoxRequest::Port { name, add, remove } => {
            let one = daemon.boxes.get(&name)?;
            if let Some((host, inside)) = add {
                out.item(&one.add_port(&BoxPort { host, inside })?)?;
                daemon.boxes.save();
            } else if let Some(host) = remove {
                one.remove_port(host)?;
                daemon.boxes.save();
            } else {
                for port in one.ports() {
                    out.item(&port)?;
                }
            }
            Ok(end_of_list())
        }
        BoxRequest::Checkpoint {
            name,
            label,
            durable,
        } => value(&boxes::checkpoint(
            daemon,
            &name,
            label.as_deref(),
            durable,
        )?),
        BoxRequest::Rollback {
            name,
            checkpoint,
            keep,
        } => value(&boxes::rollback(
            daemon,
            &name,
            &checkpoint,
            keep.as_deref(),
        )?),
        BoxRequest::Fork { of, count } => {
            boxes::fork(daemon, &of, count, &mut |sibling| out.item(&sibling))?;
            Ok(end_of_list())
        }
        BoxRequest::Merge { child, into } => value(&boxes::merge(
            daemon,
            &child,
            into.as_deref(),
            &mut |step| out.progress(&step),
        )?),
        BoxRequest::Stop { name, timeout } => {
            let clock = Clock::start();
            let timeout = timeout.map(|seconds| Duration::from_secs(seconds.into()));
            let mut info = describe(&*boxes::stop(daemon, &name, timeout)?, false);
            info.elapsed_us = Some(clock.elapsed_us());
            value(&info)
        }
        BoxRequest::Remove { name, force } => {
            boxes::remove(daemon, &name, force)?;
            value(&Deleted {
                id: name,
                parent: None,
            })
        }
    }
}

/// Refuses while boxes run.
pub(super) fn require_none(daemon: &Daemon) -> Result<()> {
    let running = daemon.boxes.running();
    if running.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = running.iter().map(|one| one.name()).collect();
    Err(Failure::new(
        FailureKind::Busy,
        format!("boxes are running: {}", names.join(", ")),
    )
    .hint("end them with `branchpoint box stop`, or all at once: branchpoint stop --force"))
}

/// Refuses if a box runs on the branch.
pub(super) fn require_no_box(daemon: &Daemon, branch: &str, way_out: &str) -> Result<()> {
    match daemon.boxes.on_branch(branch) {
        Some(one) => Err(Failure::new(
            FailureKind::Busy,
            format!("box '{}' runs on branch '{branch}'", one.name()),
        )
        .hint(way_out.replace("BOX", one.name()))),
        None => Ok(()),
    }
}

fn check_base(daemon: &Daemon, wanted: Option<&WirePath>) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let real = wanted.0.canonicalize().unwrap_or_else(|_| wanted.0.clone());
    if daemon.store.base_dir() == Some(real.as_path()) {
        return Ok(());
    }
    let has = match daemon.store.base_dir() {
        Some(base) => format!("its base is '{}'", base.display()),
        None => "it has no base".to_owned(),
    };
    Err(Failure::new(
        FailureKind::Invalid,
        format!("the store exists and {has}, not '{}'", real.display()),
    )
    .hint("leave --base out, or name another store with --store"))
}

fn exec(daemon: &Daemon, name: &str, run: &Run, stream: Option<UnixStream>) -> Result<BoxLeft> {
    let one = daemon.boxes.get(name)?;
    let session = boxes::open(&one, run)?;
    let Some(stream) = stream else {
        return Ok(BoxLeft {
            id: id_of(&one, session.number()),
            status: None,
            replaced: false,
        });
    };
    let left = session.attach(stream, true)?;
    match left {
        Left::Gone => {
            session.hang_up();
        }
        Left::Exited(_) => one.sessions.remove(session.number()),
        Left::Detached | Left::Replaced => {}
    }
    Ok(describe_left(&one, &session, left))
}

fn describe_left(one: &Boxed, session: &Session, left: Left) -> BoxLeft {
    BoxLeft {
        id: id_of(one, session.number()),
        status: match left {
            Left::Exited(status) => Some(status),
            _ => None,
        },
        replaced: left == Left::Replaced,
    }
}

/// Returns the session that `BOX/NUMBER` or `BOX` means.
fn find(
    daemon: &Daemon,
    id: &str,
    choose: impl FnOnce(Vec<Arc<Session>>) -> Option<Arc<Session>>,
) -> Result<(Arc<Boxed>, Arc<Session>)> {
    let (name, number) = match id.split_once('/') {
        Some((name, number)) => {
            let number = number.parse().map_err(|_| {
                Failure::new(
                    FailureKind::Usage,
                    format!("'{number}' is not the number of a session"),
                )
                .hint("`branchpoint box show BOX` lists the sessions of a box")
            })?;
            (name, Some(number))
        }
        None => (id, None),
    };
    let one = daemon.boxes.get(name)?;
    let session = one.session(number, choose)?;
    Ok((one, session))
}

fn stream(out: &mut Responder<'_>) -> Result<UnixStream> {
    let file: File = out.take_file()?;
    Ok(UnixStream::from(OwnedFd::from(file)))
}

fn id_of(one: &Boxed, number: u32) -> String {
    format!("{}/{number}", one.name())
}

fn describe(one: &Boxed, with_processes: bool) -> BoxInfo {
    let instance = one.instance();
    let mut processes = instance
        .as_ref()
        .and_then(|instance| instance.processes().ok())
        .unwrap_or_default();
    processes.sort_by_key(|process| process.pid);
    let sessions = one.sessions.all().into_iter().map(|session| {
        let snapshot = session.snapshot();
        BoxSession {
            id: id_of(one, snapshot.number),
            command: snapshot.title,
            terminal: snapshot.is_terminal,
            pid: snapshot.pid,
            attached: snapshot.attached,
            status: snapshot.status,
            output_bytes: snapshot.output_bytes,
        }
    });
    let limits = one.limits();
    BoxInfo {
        id: one.name().to_owned(),
        name: one.name().to_owned(),
        state: match instance {
            Some(_) => BoxState::Running,
            None => BoxState::Stopped,
        },
        branch: one.branch(),
        created_us: one.created_us(),
        limits: BoxLimits {
            memory_bytes: limits.memory_bytes,
            pids: limits.pids,
            cpu_millis: limits.cpu_millis,
        },
        ports: one.ports(),
        sessions: sessions.collect(),
        process_count: u64::try_from(processes.len()).unwrap_or(u64::MAX),
        processes: with_processes.then(|| {
            processes
                .into_iter()
                .map(|process| BoxProcess {
                    pid: process.pid,
                    parent_pid: process.parent,
                    host_pid: process.host_pid,
                    uid: process.uid,
                    state: process.state,
                    resident_bytes: process.resident_bytes,
                    threads: process.threads,
                    command: if process.command.is_empty() {
                        format!("[{}]", process.name)
                    } else {
                        process.command
                    },
                })
                .collect()
        }),
        init_pid: instance.map(|instance| instance.init_pid()),
        elapsed_us: None,
    }
}
