//! `checkpoint` and `checkpoint list|show|delete`.

use crate::cli::{Checkpoint, CheckpointCommand, CheckpointCreate};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{Output, age, duration, harmless, json_line, table, write_out};
use crate::protocol::Request;
use crate::protocol::reply;

use super::tree::short;

pub(super) fn run(context: &Context, args: Checkpoint) -> Result<Exit> {
    match args.command {
        None => create(context, args.create)?,
        Some(CheckpointCommand::List(_)) => list(context)?,
        Some(CheckpointCommand::Show(args)) => {
            let request = Request::CheckpointShow {
                revision: args.revision,
            };
            let checkpoint: reply::Checkpoint = context.client()?.call(&request)?;
            context.output.print(&checkpoint, describe)?;
        }
        Some(CheckpointCommand::Delete(args)) => {
            let request = Request::CheckpointDelete {
                revision: args.revision,
            };
            let deleted: reply::Deleted = context.client()?.call(&request)?;
            context.output.print(&deleted, |deleted| {
                format!("removed checkpoint {}\n", deleted.id)
            })?;
        }
    }
    Ok(Exit::Done)
}

fn create(context: &Context, args: CheckpointCreate) -> Result<()> {
    let request = Request::CheckpointCreate {
        branch: context.place(args.branch),
        label: args.label,
        durable: args.durable,
    };
    let checkpoint: reply::Checkpoint = context.client()?.call(&request)?;
    context.output.print(&checkpoint, |checkpoint| {
        let label = checkpoint
            .label
            .as_deref()
            .map(|label| format!(" '{}'", harmless(label)));
        let took = checkpoint.took.map(|took| {
            let flush = if took.flush_us > 0 {
                format!(", after flushing for {}", duration(took.flush_us))
            } else {
                String::new()
            };
            format!(" in {}{flush}", duration(took.pause_us))
        });
        let what = if checkpoint.unchanged {
            "nothing changed since checkpoint"
        } else {
            "checkpoint"
        };
        format!(
            "{what} {}{} of {}{}\n",
            checkpoint.id,
            label.unwrap_or_default(),
            checkpoint.branch,
            took.unwrap_or_default()
        )
    })
}

fn list(context: &Context) -> Result<()> {
    let mut rows = Vec::new();
    let mut client = context.client()?;
    let _end: serde_json::Value = client.call_each(
        &Request::CheckpointList {},
        None,
        |checkpoint: reply::Checkpoint| {
            if context.output == Output::Json {
                return write_out(&json_line(&checkpoint)?);
            }
            rows.push(vec![
                checkpoint.id,
                checkpoint.branch,
                age(checkpoint.created_us),
                harmless(&checkpoint.label.unwrap_or_default()).into_owned(),
            ]);
            Ok(())
        },
    )?;
    if context.output == Output::Human {
        write_out(&table(&["CHECKPOINT", "BRANCH", "MADE", "LABEL"], &rows))?;
    }
    Ok(())
}

fn describe(checkpoint: &reply::Checkpoint) -> String {
    let mut text = format!("checkpoint:  {}\n", checkpoint.id);
    if let Some(label) = &checkpoint.label {
        text.push_str(&format!("label:       {}\n", harmless(label)));
    }
    text.push_str(&format!("branch:      {}\n", checkpoint.branch));
    if let Some(parent) = &checkpoint.parent {
        text.push_str(&format!("parent:      {}\n", short(parent)));
    }
    text.push_str(&format!("made:        {}\n", age(checkpoint.created_us)));
    text.push_str(&format!("layer:       {}\n", checkpoint.layer));
    if let Some(lines) = &checkpoint.report {
        text.push_str("processes:   ");
        if lines.is_empty() {
            text.push_str("everything is exact\n");
        } else {
            text.push_str("all is exact but what follows\n");
            text.push_str(&super::boxes::report(lines));
        }
    }
    text
}
