//! `rollback`.

use crate::cli::Rollback;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::duration;
use crate::protocol::Request;
use crate::protocol::reply::RolledBack;

use super::tree::short;

pub(super) fn run(context: &Context, args: Rollback) -> Result<Exit> {
    let request = Request::Rollback {
        branch: context.place(args.branch),
        to: args.to,
        keep: args.keep,
    };
    let done: RolledBack = context.client()?.call(&request)?;
    context.output.print(&done, |done| {
        let kept = match &done.kept {
            Some(name) => format!("; what was there is branch {name}"),
            None => String::new(),
        };
        format!(
            "branch {} is back at {} in {}{kept}\n",
            done.branch,
            short(&done.id),
            duration(done.took.elapsed_us)
        )
    })?;
    Ok(Exit::Done)
}
