//! `apply`.

use crate::cli::Apply;
use crate::context::{Context, absolute};
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{Output, confirm, duration};
use crate::protocol::Request;
use crate::protocol::path::{WirePath, printable_path};
use crate::protocol::reply::Outcome;

use super::number_lines;

pub(super) fn run(context: &Context, args: Apply) -> Result<Exit> {
    let to = args.to.as_deref().map(absolute).transpose()?;
    let shown = to.as_deref().map_or_else(
        || "the base".to_owned(),
        |to| format!("'{}'", printable_path(to)),
    );
    if !args.dry_run && !args.yes && context.output == Output::Human {
        confirm(&format!(
            "change the files in {shown} to those of {}?",
            args.source
        ))?;
    }
    let request = Request::Apply {
        source: args.source.clone(),
        to: to.map(WirePath),
        dry_run: args.dry_run,
    };
    let outcome: Outcome = context.client()?.call(&request)?;
    context.output.print(&outcome, |outcome| {
        let done = if args.dry_run {
            "would apply"
        } else {
            "applied"
        };
        let took = duration(outcome.elapsed_us);
        format!(
            "{done} {} to {shown} in {took}\n{}",
            args.source,
            number_lines(&outcome.counts)
        )
    })?;
    Ok(Exit::Done)
}
