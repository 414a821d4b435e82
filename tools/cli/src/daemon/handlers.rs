//! What the daemon does for each request. Each handler turns names into things of the library,
//! calls it, and describes the result.

mod boxes;
mod branches;
mod checkpoints;
mod compare;
mod maintain;
mod mounting;
mod transfer;

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::Request;

use super::Daemon;
use super::responder::{Responder, unserialisable};

pub(super) use super::boxes::end_all as end_boxes;
pub(super) use mounting::unmount_all;

/// Carries out `request` and returns the last line of the answer.
pub(super) fn handle(
    daemon: &Arc<Daemon>,
    request: Request,
    out: &mut Responder<'_>,
) -> Result<Value> {
    daemon.mounts.prune();
    match request {
        Request::Stop { force } => value(&maintain::stop(daemon, force)?),
        Request::Stats {} => value(&maintain::stats(daemon)?),
        Request::Mount {
            revision,
            dir,
            read_only,
            namespace,
            over,
            options,
        } => {
            let how = mounting::How {
                read_only,
                namespace,
                over,
                options,
            };
            value(&mounting::mount(daemon, &revision, &dir.0, &how)?)
        }
        Request::Unmount { target, force } => value(&mounting::unmount(daemon, &target, force)?),
        Request::Switch { branch, target } => value(&mounting::switch(daemon, &branch, &target)?),
        Request::BranchCreate { name, from } => value(&branches::create(daemon, &name, &from)?),
        Request::BranchList {} => branches::list(daemon, out),
        Request::BranchShow { branch } => value(&branches::show(daemon, &branch)?),
        Request::BranchRename { old, new } => value(&branches::rename(daemon, &old, &new)?),
        Request::BranchDelete { name } => value(&branches::delete(daemon, &name)?),
        Request::CheckpointCreate {
            branch,
            label,
            durable,
        } => value(&checkpoints::create(
            daemon,
            &branch,
            label.as_deref(),
            durable,
        )?),
        Request::CheckpointList {} => checkpoints::list(daemon, out),
        Request::CheckpointShow { revision } => value(&checkpoints::show(daemon, &revision)?),
        Request::CheckpointDelete { revision } => value(&checkpoints::delete(daemon, &revision)?),
        Request::Rollback { branch, to, keep } => value(&checkpoints::rollback(
            daemon,
            &branch,
            &to,
            keep.as_deref(),
        )?),
        Request::Boxes(request) => boxes::handle(daemon, request, out),
        Request::Log {} => maintain::log(daemon, out),
        Request::Diff { a, b, patch, stat } => compare::diff(daemon, &a, &b, patch, stat, out),
        Request::Merge { source, into } => value(&compare::merge(daemon, &source, &into, out)?),
        Request::Apply {
            source,
            to,
            dry_run,
        } => value(&transfer::apply(
            daemon,
            &source,
            to.as_ref(),
            dry_run,
            out,
        )?),
        Request::Collect { dry_run } => value(&maintain::collect(daemon, dry_run, out)?),
        Request::Check {} => value(&maintain::check(daemon, out)?),
        Request::Export { source } => value(&transfer::export(daemon, &source, out)?),
        Request::Import { branch } => value(&transfer::import(daemon, &branch, out)?),
    }
}

fn value<T: Serialize>(result: &T) -> Result<Value> {
    serde_json::to_value(result).map_err(unserialisable)
}

/// Returns the fields of `numbers`, a struct of the library.
fn fields<T: Serialize>(numbers: &T) -> Result<Map<String, Value>> {
    match value(numbers)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(Failure::new(
            FailureKind::Internal,
            "a result is not an object",
        )),
    }
}

/// Returns the empty object that ends a list.
fn end_of_list() -> Value {
    Value::Object(Map::new())
}
