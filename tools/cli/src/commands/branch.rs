//! `branch create|list|show|rename|delete`.

use crate::cli::Branch;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{Output, age, duration, json_line, table, write_out};
use crate::protocol::Request;
use crate::protocol::path::printable;
use crate::protocol::reply;

use super::tree::short;

pub(super) fn run(context: &Context, command: Branch) -> Result<Exit> {
    match command {
        Branch::Create(args) => {
            let request = Request::BranchCreate {
                name: args.name,
                from: context.place(args.from),
            };
            let branch: reply::Branch = context.client()?.call(&request)?;
            context.output.print(&branch, |branch| {
                let from = branch.from.as_deref().unwrap_or("nothing");
                let took = branch
                    .took
                    .map(|took| duration(took.elapsed_us))
                    .unwrap_or_default();
                format!("made branch {} from {from} in {took}\n", branch.name)
            })?;
        }
        Branch::List(_) => list(context)?,
        Branch::Show(args) => {
            let request = Request::BranchShow {
                branch: context.place(args.name),
            };
            let branch: reply::Branch = context.client()?.call(&request)?;
            context.output.print(&branch, describe)?;
        }
        Branch::Rename(args) => {
            let request = Request::BranchRename {
                old: args.old.clone(),
                new: args.new,
            };
            let branch: reply::Branch = context.client()?.call(&request)?;
            context.output.print(&branch, |branch| {
                format!("branch {} is now called {}\n", args.old, branch.name)
            })?;
        }
        Branch::Delete(args) => {
            let request = Request::BranchDelete { name: args.name };
            let deleted: reply::Deleted = context.client()?.call(&request)?;
            context
                .output
                .print(&deleted, |deleted| match &deleted.parent {
                    Some(parent) => format!(
                        "removed branch {}; its youngest checkpoint is {}\n",
                        deleted.id,
                        short(parent)
                    ),
                    None => format!("removed branch {}\n", deleted.id),
                })?;
        }
    }
    Ok(Exit::Done)
}

fn list(context: &Context) -> Result<()> {
    let mut rows = Vec::new();
    let mut client = context.client()?;
    let _end: serde_json::Value =
        client.call_each(&Request::BranchList {}, None, |branch: reply::Branch| {
            if context.output == Output::Json {
                return write_out(&json_line(&branch)?);
            }
            rows.push(vec![
                branch.name.clone(),
                branch.parent.as_deref().map(short).unwrap_or_default(),
                age(branch.created_us),
                mounted(&branch),
            ]);
            Ok(())
        })?;
    if context.output == Output::Human {
        write_out(&table(
            &["BRANCH", "CHECKPOINT", "MADE", "MOUNTED AT"],
            &rows,
        ))?;
    }
    Ok(())
}

fn mounted(branch: &reply::Branch) -> String {
    let dir = branch.mounted.as_deref();
    dir.map(|dir| printable(dir, branch.mounted_base64.as_deref()))
        .unwrap_or_default()
}

fn describe(branch: &reply::Branch) -> String {
    let mut text = format!("branch:      {}\n", branch.name);
    if let Some(parent) = &branch.parent {
        text.push_str(&format!("checkpoint:  {parent}\n"));
    }
    text.push_str(&format!("made:        {}\n", age(branch.created_us)));
    text.push_str(&format!("head layer:  {}\n", branch.head));
    if branch.mounted.is_some() {
        text.push_str(&format!("mounted at:  {}\n", mounted(branch)));
    }
    text
}
