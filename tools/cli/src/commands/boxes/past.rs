//! `box checkpoint|rollback|fork|merge`.

use crate::cli::boxes::{BoxCheckpoint, BoxFork, BoxMerge, BoxRollback};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, FailureKind, Result};
use crate::output::{Output, duration, harmless, json_line, plural, size, write_out};
use crate::protocol::Request;
use crate::protocol::boxes::{self as reply, BoxRequest, ReportLine};

use super::super::tree::short;

pub(super) fn checkpoint(context: &Context, args: BoxCheckpoint) -> Result<Exit> {
    let request = BoxRequest::Checkpoint {
        name: args.name,
        label: args.label,
        durable: args.durable,
    };
    let taken: reply::BoxCheckpoint = context.client()?.call(&Request::Boxes(request))?;
    context.output.print(&taken, |taken| {
        let mut text = format!(
            "checkpoint {} of box {}: stood still for {}, {} of memory, {} in all\n",
            short(&taken.id),
            taken.name,
            duration(taken.pause_us),
            size(taken.memory_bytes),
            duration(taken.total_us)
        );
        text.push_str(&report(&taken.report));
        text
    })?;
    Ok(Exit::Done)
}

/// Returns a report as lines for people.
pub(crate) fn report(lines: &[ReportLine]) -> String {
    let mut text = String::new();
    for line in lines {
        text.push_str(&format!(
            "  {}: process {}, {}: {}",
            line.verdict,
            line.pid,
            harmless(&line.what),
            harmless(&line.reason)
        ));
        if let Some(way) = &line.way_out {
            text.push_str(&format!(" ({way})"));
        }
        text.push('\n');
    }
    text
}

pub(super) fn rollback(context: &Context, args: BoxRollback) -> Result<Exit> {
    let request = BoxRequest::Rollback {
        name: args.name,
        checkpoint: args.checkpoint,
        keep: args.keep,
    };
    let done: reply::BoxRollback = context.client()?.call(&Request::Boxes(request))?;
    context.output.print(&done, |done| {
        let mut text = format!(
            "box {} goes on from checkpoint {} with {}, after {}\n",
            done.name,
            short(&done.id),
            plural(done.processes, "process", "processes"),
            duration(done.switch_us)
        );
        if let Some(kept) = &done.kept {
            text.push_str(&format!("its files until now are in branch {kept}\n"));
        }
        text
    })?;
    Ok(Exit::Done)
}

pub(super) fn fork(context: &Context, args: BoxFork) -> Result<Exit> {
    let request = BoxRequest::Fork {
        of: args.of,
        count: args.count,
    };
    let mut failed: u64 = 0;
    let as_json = context.output == Output::Json;
    let mut client = context.client()?;
    let _end: serde_json::Value =
        client.call_each(&Request::Boxes(request), None, |sibling: reply::BoxFork| {
            failed += u64::from(sibling.error.is_some());
            if as_json {
                return write_out(&json_line(&sibling)?);
            }
            let took = duration(sibling.elapsed_us);
            write_out(&match &sibling.error {
                None => format!(
                    "box {} runs from checkpoint {} ({took})\n",
                    sibling.name,
                    short(&sibling.checkpoint)
                ),
                Some(error) => format!("box {} does not run: {}\n", sibling.name, harmless(error)),
            })
        })?;
    if failed == 0 {
        return Ok(Exit::Done);
    }
    Err(Failure::new(
        FailureKind::Io,
        format!("{} of {} did not come to life", failed, args.count),
    )
    .hint("the results above say why"))
}

pub(super) fn merge(context: &Context, args: BoxMerge) -> Result<Exit> {
    let request = BoxRequest::Merge {
        child: args.child,
        into: args.into,
    };
    let done: reply::BoxMerge = context.client()?.call(&Request::Boxes(request))?;
    context.output.print(&done, |done| {
        format!(
            "box {} goes on as box {}, after {}; into branch {}: {} added, {} removed, {} modified\n",
            done.merged,
            done.id,
            duration(done.switch_us),
            done.branch,
            done.added,
            done.removed,
            done.modified
        )
    })?;
    Ok(Exit::Done)
}
