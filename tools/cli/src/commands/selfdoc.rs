//! `completions` and `man`: what the parser knows about itself.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;
use clap_mangen::Man as Page;
use serde::Serialize;

use crate::cli::{Cli, Completions, Man};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::{Output, plural};

#[derive(Serialize)]
struct Script {
    shell: String,
    script: String,
}

#[derive(Serialize)]
struct Shown {
    page: String,
}

#[derive(Serialize)]
struct Written {
    id: String,
    pages: Vec<String>,
}

pub(super) fn completions(args: &Completions, output: Output) -> Result<Exit> {
    let mut script = Vec::new();
    let mut command = Cli::command();
    clap_complete::generate(args.shell, &mut command, "branchpoint", &mut script);
    let script = Script {
        shell: args.shell.to_string(),
        script: String::from_utf8_lossy(&script).into_owned(),
    };
    output.print(&script, |script| script.script.clone())?;
    Ok(Exit::Done)
}

pub(super) fn man(args: &Man, output: Output) -> Result<Exit> {
    let mut command = Cli::command();
    command.build();
    let Some(dir) = &args.dir else {
        let page = render(command, "branchpoint")?;
        let shown = Shown {
            page: String::from_utf8_lossy(&page).into_owned(),
        };
        output.print(&shown, |shown| shown.page.clone())?;
        return Ok(Exit::Done);
    };
    fs::create_dir_all(dir)
        .map_err(|reason| Failure::io(format!("make '{}'", dir.display()), &reason))?;
    let mut written = Written {
        id: dir.display().to_string(),
        pages: Vec::new(),
    };
    write_pages(dir, command, "branchpoint", &mut written.pages)?;
    output.print(&written, |written| {
        let count = u64::try_from(written.pages.len()).unwrap_or(u64::MAX);
        let pages = plural(count, "page", "pages");
        format!("wrote {pages} to '{}'\n", written.id)
    })?;
    Ok(Exit::Done)
}

fn write_pages(
    dir: &Path,
    command: clap::Command,
    name: &str,
    written: &mut Vec<String>,
) -> Result<()> {
    let below: Vec<clap::Command> = command
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
        .cloned()
        .collect();
    let page = format!("{name}.1");
    let file = dir.join(&page);
    fs::write(&file, render(command, name)?)
        .map_err(|reason| Failure::io(format!("write '{}'", file.display()), &reason))?;
    written.push(page);
    for command in below {
        let name = format!("{name}-{}", command.get_name());
        write_pages(dir, command, &name, written)?;
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
