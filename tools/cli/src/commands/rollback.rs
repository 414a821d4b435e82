//! `rollback`.

use crate::cli::Rollback;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{duration, harmless};
use crate::protocol::Request;
use crate::protocol::reply::{Checkpoint, RolledBack};

use super::tree::short;

pub(super) fn run(context: &Context, args: Rollback) -> Result<Exit> {
    let request = Request::Rollback {
        branch: context.place(args.branch),
        to: args.to,
        keep: args.keep,
    };
    let done: RolledBack = context.client()?.call(&request)?;
    context.output.print(&done, describe)?;
    Ok(Exit::Done)
}

fn describe(done: &RolledBack) -> String {
    let mut text = format!(
        "branch {} is back at {} in {}\n",
        done.branch,
        short(&done.id),
        duration(done.took.elapsed_us)
    );
    if let Some(name) = &done.kept {
        text.push_str(&format!("what was there is branch {name}\n"));
    }
    if done.dropped {
        text.push_str("what was written since its youngest checkpoint is gone\n");
    }
    if let Some(youngest) = done.newer.first() {
        let names: Vec<String> = done.newer.iter().map(name).collect();
        let more = if done.newer_left_off { " and more" } else { "" };
        text.push_str(&format!(
            "newer checkpoints stay: {}{more}; `branchpoint rollback {}` goes forward again\n",
            names.join(", "),
            short(&youngest.id)
        ));
    }
    text
}

fn name(checkpoint: &Checkpoint) -> String {
    match &checkpoint.label {
        Some(label) => format!("{} '{}'", short(&checkpoint.id), harmless(label)),
        None => short(&checkpoint.id),
    }
}
