//! The manual and the completions know every command, because they come from the parser.

use std::collections::BTreeSet;
use std::fs;

use crate::harness::Bench;

/// Returns the commands in the committed help, as words after the program's name.
fn commands() -> BTreeSet<Vec<String>> {
    let help = include_str!("../help.txt");
    let headings = help
        .lines()
        .filter_map(|line| line.strip_prefix("==== branchpoint"));
    let commands: BTreeSet<Vec<String>> = headings
        .map(|words| words.split_whitespace().map(str::to_owned).collect())
        .filter(|words: &Vec<String>| words.iter().all(|word| word != "help"))
        .collect();
    assert!(commands.len() > 20, "{commands:?}");
    commands
}

#[test]
fn every_command_has_a_page_that_describes_its_options() {
    let bench = Bench::without_store();
    bench.run(["man", "--dir", "pages"]).ok();
    let mut pages = BTreeSet::new();
    for command in commands() {
        let page = [vec!["branchpoint".to_owned()], command.clone()].concat();
        let page = format!("{}.1", page.join("-"));
        let text = fs::read_to_string(bench.path("pages").join(&page)).unwrap();
        assert!(text.contains("\\-\\-json"), "{page} does not know --json");
        for below in commands()
            .iter()
            .filter(|longer| longer.len() == command.len() + 1 && longer.starts_with(&command))
        {
            let name = below.last().unwrap();
            assert!(text.contains(name.as_str()), "{page} does not name {name}");
        }
        pages.insert(page);
    }
    let written: BTreeSet<String> = fs::read_dir(bench.path("pages"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(written, pages);
}

#[test]
fn every_command_is_completed_in_every_shell() {
    let bench = Bench::without_store();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = bench.run(["completions", shell]).ok().out;
        for name in commands().iter().flatten() {
            assert!(script.contains(name.as_str()), "{shell}: {name}");
        }
        assert!(
            script.contains("--dry-run") || script.contains("dry-run"),
            "{shell}"
        );
    }
}
