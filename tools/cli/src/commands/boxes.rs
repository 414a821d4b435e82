//! `box` and what follows it.

mod past;
mod run;
mod show;
mod terminal;

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use branchpoint_fs::store::{Store, StoreOptions};

pub(super) use past::report;

use crate::cli::boxes::{
    BoxCommand, BoxExec, BoxHow, BoxKill, BoxLogs, BoxPort, BoxRemove, BoxShell, BoxStart, BoxStop,
};
use crate::context::{Context, absolute};
use crate::exit::Exit;
use crate::failure::{Failure, FailureKind, Result};
use crate::output::{Output, duration, json_line, note, table, write_out};
use crate::protocol::boxes::{
    BoxInfo, BoxLeft, BoxLog, BoxPort as Forwarded, BoxRequest, Origin, Run,
};
use crate::protocol::path::{WireBytes, WirePath};
use crate::protocol::reply::Deleted;
use crate::protocol::{Request, base64};

/// What a shell is started by: the better one that is there.
const SHELL: &str = "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi";

/// The size of a terminal that nobody looks at yet.
const UNSEEN: (u16, u16) = (24, 80);

pub(super) fn run(context: &Context, command: BoxCommand) -> Result<Exit> {
    match command {
        BoxCommand::Start(args) => start(context, args),
        BoxCommand::Exec(args) => exec(context, args),
        BoxCommand::Shell(args) => shell(context, args),
        BoxCommand::Attach(args) => {
            let request = BoxRequest::Attach {
                session: args.session,
            };
            run::attached(context, &request, run::Kind::OfSession)
        }
        BoxCommand::List(_) => show::list(context),
        BoxCommand::Show(args) => show::one(context, args.name),
        BoxCommand::Logs(args) => logs(context, args),
        BoxCommand::Port(args) => port(context, args),
        BoxCommand::Checkpoint(args) => past::checkpoint(context, args),
        BoxCommand::Rollback(args) => past::rollback(context, args),
        BoxCommand::Fork(args) => past::fork(context, args),
        BoxCommand::Merge(args) => past::merge(context, args),
        BoxCommand::Stop(BoxStop { name, timeout }) => end(context, name, Some(timeout)),
        BoxCommand::Kill(BoxKill { name }) => end(context, name, None),
        BoxCommand::Remove(args) => remove(context, args),
    }
}

fn start(context: &Context, args: BoxStart) -> Result<Exit> {
    let base = args.base.as_deref().map(absolute).transpose()?;
    if let Some(base) = &base {
        // Whatever is there already is the daemon's to judge.
        let missing = match std::fs::read_dir(&context.store) {
            Ok(mut entries) => entries.next().is_none(),
            Err(reason) => reason.kind() == std::io::ErrorKind::NotFound,
        };
        if missing {
            if let Some(above) = context.store.parent() {
                std::fs::create_dir_all(above).map_err(|reason| {
                    Failure::io(format!("make '{}'", above.display()), &reason)
                })?;
            }
            let base = Some(base.clone());
            Store::create(&context.store, &StoreOptions { base })?;
            note(&format!("made store '{}'", context.store.display()));
        }
    }
    let run = if args.command.is_empty() {
        None
    } else {
        let mut run = wanted(&args.how, &args.command);
        run.terminal = args.terminal.then(|| terminal::size().unwrap_or(UNSEEN));
        Some(run)
    };
    let origin = match args.from {
        Some(from) => Origin::From(from),
        None => Origin::Branch(context.place(args.branch)),
    };
    let request = BoxRequest::Start {
        name: args.name,
        origin,
        base: base.as_deref().map(WirePath::from),
        memory_bytes: args.memory,
        pids: args.pids,
        cpu_millis: args.cpu,
        run,
    };
    let info: BoxInfo = context.client()?.call(&Request::Boxes(request))?;
    context.output.print(&info, |info| {
        let took = info.elapsed_us.map(duration).unwrap_or_default();
        let mut text = format!(
            "box {} runs on branch {} ({took})\n",
            info.name, info.branch
        );
        for session in &info.sessions {
            text.push_str(&format!("session {}: {}\n", session.id, session.command));
        }
        text
    })?;
    Ok(Exit::Done)
}

fn exec(context: &Context, args: BoxExec) -> Result<Exit> {
    let mut run = wanted(&args.how, &args.command);
    run.input = args.interactive;
    if args.terminal {
        run.terminal = Some(terminal::size().unwrap_or(UNSEEN));
    }
    let request = BoxRequest::Exec {
        name: args.name,
        run,
        detach: args.detach,
    };
    if args.detach {
        let left: BoxLeft = context.client()?.call(&Request::Boxes(request))?;
        context
            .output
            .print(&left, |left| format!("session {}\n", left.id))?;
        return Ok(Exit::Done);
    }
    let kind = match (args.terminal, args.interactive) {
        (true, true) => run::Kind::Keyboard,
        (true, false) => run::Kind::Watched,
        (false, true) => run::Kind::Input,
        (false, false) => run::Kind::Output,
    };
    run::attached(context, &request, kind)
}

fn shell(context: &Context, args: BoxShell) -> Result<Exit> {
    let command = ["sh", "-c", SHELL].map(OsString::from);
    let mut run = wanted(&args.how, &command);
    run.input = true;
    run.terminal = Some(terminal::size().unwrap_or(UNSEEN));
    let request = BoxRequest::Exec {
        name: args.name,
        run,
        detach: false,
    };
    run::attached(context, &request, run::Kind::Keyboard)
}

/// Returns what is wanted of a command, without terminal and input.
fn wanted(how: &BoxHow, command: &[OsString]) -> Run {
    let bytes = |text: &OsStr| WireBytes(text.as_bytes().to_vec());
    let mut env: Vec<WireBytes> = std::env::var_os("TERM")
        .map(|term| WireBytes([b"TERM=", term.as_bytes()].concat()))
        .into_iter()
        .collect();
    for given in &how.env {
        if given.as_bytes().contains(&b'=') {
            env.push(bytes(given));
        } else if let Some(value) = std::env::var_os(given) {
            env.push(WireBytes(
                [given.as_bytes(), b"=", value.as_bytes()].concat(),
            ));
        }
    }
    Run {
        argv: command.iter().map(|word| bytes(word)).collect(),
        env,
        cwd: how.workdir.as_deref().map(WirePath::from),
        user: how.user.clone(),
        terminal: None,
        input: false,
    }
}

fn logs(context: &Context, args: BoxLogs) -> Result<Exit> {
    let request = BoxRequest::Logs {
        session: args.session,
    };
    let log: BoxLog = context.client()?.call(&Request::Boxes(request))?;
    if context.output == Output::Json {
        write_out(&json_line(&log)?)?;
        return Ok(Exit::Done);
    }
    let exact = log.output_base64.as_deref().and_then(base64::decode);
    let bytes = exact.unwrap_or_else(|| log.output.into_bytes());
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes)
        .and_then(|()| out.flush())
        .map_err(|reason| Failure::io("write to standard output", &reason))?;
    Ok(Exit::Done)
}

fn port(context: &Context, args: BoxPort) -> Result<Exit> {
    let request = BoxRequest::Port {
        name: args.name.clone(),
        add: args.ports,
        remove: args.remove,
    };
    let mut rows = Vec::new();
    let _end: serde_json::Value =
        context
            .client()?
            .call_each(&Request::Boxes(request), None, |port: Forwarded| {
                if context.output == Output::Json {
                    return write_out(&json_line(&port)?);
                }
                rows.push(vec![port.host.to_string(), port.inside.to_string()]);
                Ok(())
            })?;
    if context.output == Output::Human {
        match args.remove {
            Some(port) => write_out(&format!("port {port} is forwarded no more\n"))?,
            None => write_out(&table(&["HOST", "BOX"], &rows))?,
        }
    }
    Ok(Exit::Done)
}

fn end(context: &Context, name: String, timeout: Option<u32>) -> Result<Exit> {
    let request = BoxRequest::Stop { name, timeout };
    let info: BoxInfo = context.client()?.call(&Request::Boxes(request))?;
    context.output.print(&info, |info| {
        let took = info.elapsed_us.map(duration).unwrap_or_default();
        format!(
            "box {} has ended ({took}); branch {} stays\n",
            info.name, info.branch
        )
    })?;
    Ok(Exit::Done)
}

fn remove(context: &Context, args: BoxRemove) -> Result<Exit> {
    let request = BoxRequest::Remove {
        name: args.name,
        force: args.force,
    };
    let deleted: Deleted = context.client()?.call(&Request::Boxes(request))?;
    context
        .output
        .print(&deleted, |deleted| format!("removed box {}\n", deleted.id))?;
    Ok(Exit::Done)
}

/// Returns the exit for a failure of Branchpoint's own where the command's status is expected.
fn own_failure(context: &Context, failure: &Failure) -> Exit {
    context.output.fail(failure);
    match failure.kind {
        FailureKind::NoSuchCommand
        | FailureKind::NotExecutable
        | FailureKind::Usage
        | FailureKind::Internal => failure.kind.into(),
        _ => Exit::Status(125),
    }
}
