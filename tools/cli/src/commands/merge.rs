//! `merge`.

use crate::cli::Merge;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::duration;
use crate::protocol::Request;
use crate::protocol::reply::Outcome;

use super::number_lines;

pub(super) fn run(context: &Context, args: Merge) -> Result<Exit> {
    let request = Request::Merge {
        source: args.source.clone(),
        into: context.place(args.into),
    };
    let outcome: Outcome = context.client()?.call(&request)?;
    context.output.print(&outcome, |outcome| {
        let into = outcome.id.as_deref().unwrap_or_default();
        let took = duration(outcome.elapsed_us);
        format!(
            "merged {} into {into} in {took}\n{}",
            args.source,
            number_lines(&outcome.counts)
        )
    })?;
    Ok(Exit::Done)
}
