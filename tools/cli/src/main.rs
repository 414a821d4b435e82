//! The `branchpoint` command and its daemon, in one binary.
//!
//! Here the command line is parsed and handed to one of [`commands`]; nearly all of them send one
//! request ([`protocol`]) to the store's daemon ([`daemon`]) and print the answer. What they do is
//! done by the library; nothing here decides more than which branch, which mount and which words.

mod cli;
mod client;
mod commands;
mod context;
mod daemon;
mod doctor;
mod endpoint;
mod exit;
mod failure;
mod logger;
mod mountinfo;
mod output;
mod pager;
mod progress;
mod protocol;
mod sys;

use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use cli::Cli;
use exit::Exit;
use failure::{Failure, FailureKind};
use output::Output;

fn main() -> ExitCode {
    // How the daemon starts the first process of a box, in namespaces without most of what follows.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == daemon::BOX_INIT)
    {
        let status = branchpoint_boxes::init::main();
        return ExitCode::from(u8::try_from(status).unwrap_or(1));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misused(&error).into(),
    };
    let output = Output::of(&cli.global);
    let result = panic::catch_unwind(AssertUnwindSafe(|| commands::run(cli)));
    let failure = match result {
        Ok(Ok(exit)) => return exit.into(),
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(FailureKind::Internal, "this is a bug in branchpoint")
            .hint("please report it with the lines above"),
    };
    if failure.kind != FailureKind::BrokenPipe {
        output.fail(&failure);
    }
    Exit::from(failure.kind).into()
}

/// Shows what is wrong with the command line, or the help or version that it asked for.
fn misused(error: &clap::Error) -> Exit {
    // Nobody is left to tell if this cannot be shown.
    drop(error.print());
    if !error.use_stderr() {
        return Exit::Done;
    }
    // What could not be parsed may still say in which form its failure is wanted.
    let words = std::env::args_os().skip(1);
    if words
        .take_while(|word| word != "--")
        .any(|word| word == "--json")
    {
        let failure = match error.kind() {
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
                Failure::new(FailureKind::Usage, "a command is missing")
                    .hint("`branchpoint --help` lists them all")
            }
            _ => Failure::usage(&error.to_string()),
        };
        output::print_failure(&failure);
    }
    Exit::Usage
}
