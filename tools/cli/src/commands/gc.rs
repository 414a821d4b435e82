//! `gc`.

use crate::cli::Gc;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::duration;
use crate::protocol::Request;
use crate::protocol::reply::Outcome;

use super::number_lines;

pub(super) fn run(context: &Context, args: &Gc) -> Result<Exit> {
    let outcome: Outcome = context.client()?.call(&Request::Collect {
        dry_run: args.dry_run,
    })?;
    context.output.print(&outcome, |outcome| {
        let done = if args.dry_run { "would free" } else { "freed" };
        format!(
            "{done} in {}:\n{}",
            duration(outcome.elapsed_us),
            number_lines(&outcome.counts)
        )
    })?;
    Ok(Exit::Done)
}
