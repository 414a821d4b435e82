//! One module for each command: sends a request, prints the answer.

mod apply;
mod archive;
mod boxes;
mod branch;
mod check;
mod checkpoint;
mod diff;
mod doctor;
mod gc;
mod init;
mod log;
mod merge;
mod mount;
mod rollback;
mod selfdoc;
mod serve;
mod stats;
mod stop;
mod tree;

use serde_json::{Map, Value};

use crate::cli::{Cli, Command};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{Output, duration, size};

/// Carries out a command line.
pub(crate) fn run(cli: Cli) -> Result<Exit> {
    // These need no store, and must work where there is not even a home directory.
    let output = Output::of(&cli.global);
    match &cli.command {
        Command::Doctor(_) => return doctor::run(output),
        Command::Completions(args) => return selfdoc::completions(args, output),
        Command::Man(args) => return selfdoc::man(args, output),
        _ => {}
    }
    let context = Context::new(&cli.global)?;
    match cli.command {
        Command::Init(args) => init::run(&context, &args),
        Command::Mount(args) => mount::mount(&context, args),
        Command::Unmount(args) => mount::unmount(&context, &args),
        Command::Switch(args) => mount::switch(&context, args),
        Command::Branch(command) => branch::run(&context, command),
        Command::Checkpoint(args) => checkpoint::run(&context, args),
        Command::Rollback(args) => rollback::run(&context, args),
        Command::Boxes(command) => boxes::run(&context, command),
        Command::Log(_) => log::run(&context),
        Command::Diff(args) => diff::run(&context, args),
        Command::Merge(args) => merge::run(&context, args),
        Command::Apply(args) => apply::run(&context, args),
        Command::Export(args) => archive::export(&context, args),
        Command::Import(args) => archive::import(&context, args),
        Command::Gc(args) => gc::run(&context, &args),
        Command::Check(_) => check::run(&context),
        Command::Stats(_) => stats::run(&context),
        Command::Serve(args) => serve::run(&context, &args),
        Command::Stop(args) => stop::run(&context, &args),
        Command::Doctor(_) | Command::Completions(_) | Command::Man(_) => Ok(Exit::Done),
    }
}

/// Returns the library's numbers as lines, in the unit that their names end with.
fn number_lines(counts: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, value) in counts {
        let shown = match value {
            Value::Number(number) if name.ends_with("_bytes") => {
                number.as_u64().map_or_else(|| number.to_string(), size)
            }
            Value::Number(number) if name.ends_with("_us") => {
                number.as_u64().map_or_else(|| number.to_string(), duration)
            }
            Value::Null | Value::Array(_) | Value::Object(_) => continue,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let name = name
            .trim_end_matches("_bytes")
            .trim_end_matches("_us")
            .replace('_', " ");
        text.push_str(&format!("  {name}: {shown}\n"));
    }
    text
}
