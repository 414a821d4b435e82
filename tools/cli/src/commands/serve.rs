//! `serve`: this process becomes the daemon.

use crate::cli::Serve;
use crate::context::Context;
use crate::daemon;
use crate::exit::Exit;
use crate::failure::Result;

pub(super) fn run(context: &Context, args: &Serve) -> Result<Exit> {
    daemon::serve(&context.store, args.background, context.output)?;
    Ok(Exit::Done)
}
