//! `export` and `import`. The daemon reads and writes the command's own files.

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use serde_json::Value;

use crate::cli::{Export, Import};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, FailureKind, Result};
use crate::output::{Output, duration, json_line, note};
use crate::protocol::Request;
use crate::protocol::path::printable_path;
use crate::protocol::reply::Outcome;

use super::number_lines;

pub(super) fn export(context: &Context, args: Export) -> Result<Exit> {
    let out = io::stdout();
    if out.is_terminal() {
        return Err(Failure::new(
            FailureKind::Usage,
            "an archive is not for a terminal to show",
        )
        .hint("send it to a file or a program: branchpoint export BRANCH > FILE.tar"));
    }
    let request = Request::Export {
        source: context.place(args.source),
    };
    let outcome = transfer(context, &request, out.as_fd())?;
    if context.output == Output::Json {
        // Standard output is the archive.
        note(json_line(&outcome)?.trim_end());
    }
    Ok(Exit::Done)
}

pub(super) fn import(context: &Context, args: Import) -> Result<Exit> {
    let request = Request::Import {
        branch: context.place(Some(args.branch)),
    };
    let outcome = match args.file.as_deref() {
        Some(path) if path.as_os_str() != "-" => {
            let file = File::open(path).map_err(|reason| {
                Failure::io(format!("read '{}'", printable_path(path)), &reason)
            })?;
            transfer(context, &request, file.as_fd())?
        }
        _ => {
            let input = io::stdin();
            if input.is_terminal() {
                return Err(
                    Failure::new(FailureKind::Usage, "an archive cannot be typed in")
                        .hint("name its file, or send it: branchpoint import BRANCH < FILE.tar"),
                );
            }
            transfer(context, &request, input.as_fd())?
        }
    };
    context.output.print(&outcome, |outcome| {
        let into = outcome.id.as_deref().unwrap_or_default();
        let took = duration(outcome.elapsed_us);
        format!(
            "imported into {into} in {took}\n{}",
            number_lines(&outcome.counts)
        )
    })?;
    Ok(Exit::Done)
}

fn transfer(context: &Context, request: &Request, fd: BorrowedFd<'_>) -> Result<Outcome> {
    context
        .client()?
        .call_each(request, Some(fd), |_: Value| Ok(()))
}
