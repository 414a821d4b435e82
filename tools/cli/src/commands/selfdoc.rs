//! `completions` and `man`: what the parser knows about itself.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;
use clap_mangen::Man as Page;

use crate::cli::{Cli, Completions, Man};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::write_out;

pub(super) fn completions(args: &Completions) -> Result<Exit> {
    let mut script = Vec::new();
    let mut command = Cli::command();
    clap_complete::generate(args.shell, &mut command, "branchpoint", &mut script);
    write_out(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

pub(super) fn man(args: &Man) -> Result<Exit> {
    let mut command = Cli::command();
    command.build();
    match &args.dir {
        None => write_out(&String::from_utf8_lossy(&render(command, "branchpoint")?))?,
        Some(dir) => {
            fs::create_dir_all(dir)
                .map_err(|reason| Failure::io(format!("make '{}'", dir.display()), &reason))?;
            write_pages(dir, command, "branchpoint")?;
        }
    }
    Ok(Exit::Done)
}

fn write_pages(dir: &Path, command: clap::Command, name: &str) -> Result<()> {
    let below: Vec<clap::Command> = command
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
        .cloned()
        .collect();
    let file = dir.join(format!("{name}.1"));
    fs::write(&file, render(command, name)?)
        .map_err(|reason| Failure::io(format!("write '{}'", file.display()), &reason))?;
    for command in below {
        let name = format!("{name}-{}", command.get_name());
        write_pages(dir, command, &name)?;
    }
    Ok(())
}

fn render(command: clap::Command, name: &str) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    let shown = command.get_bin_name().unwrap_or(name).to_owned();
    Page::new(command.display_name(shown))
        .title(name)
        .render(&mut page)
        .map_err(|reason| Failure::io("write a manual page", &reason))?;
    Ok(page)
}
