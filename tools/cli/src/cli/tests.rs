use std::fmt::Write as _;
use std::path::Path;

use clap::CommandFactory as _;

use super::*;

/// Appends the help of `command` and of everything below it.
fn append_help(command: &mut clap::Command, path: &str, tree: &mut String) {
    let path = if path.is_empty() {
        command.get_name().to_owned()
    } else {
        format!("{path} {}", command.get_name())
    };
    let help = command.clone().term_width(100).render_long_help();
    writeln!(tree, "==== {path}\n").unwrap();
    for line in help.to_string().lines() {
        writeln!(tree, "{}", line.trim_end()).unwrap();
    }
    writeln!(tree).unwrap();
    for below in command.get_subcommands_mut() {
        append_help(below, &path, tree);
    }
}

/// A changed flag must be seen by whoever reviews the change: the whole help tree is committed.
#[test]
fn help_is_as_committed() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help.txt");
    let mut command = Cli::command();
    command.build();
    let mut tree = String::new();
    append_help(&mut command, "", &mut tree);
    if std::env::var_os("UPDATE_HELP").is_some() {
        std::fs::write(&file, &tree).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap();
    assert!(
        committed == tree,
        "the help differs from tests/help.txt; look at the change, then run this test with \
         UPDATE_HELP=1\n{}",
        similar::TextDiff::from_lines(&committed, &tree).unified_diff()
    );
}

#[test]
fn the_parser_is_consistent() {
    Cli::command().debug_assert();
}

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split(' '))
}

#[test]
fn a_checkpoint_is_made_or_listed_by_the_same_word() {
    let made = |line: &str| match parse(line).unwrap().command {
        Command::Checkpoint(Checkpoint {
            command: None,
            create,
        }) => create,
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(made("branchpoint checkpoint").branch, None);
    assert_eq!(
        made("branchpoint checkpoint -m before").label.as_deref(),
        Some("before")
    );
    assert_eq!(
        made("branchpoint checkpoint main -m x").branch.as_deref(),
        Some("main")
    );
    assert!(made("branchpoint --json checkpoint main --durable").durable);
    assert!(made("branchpoint checkpoint main --durable --json").durable);
    assert_eq!(
        made("branchpoint checkpoint -- list").branch.as_deref(),
        Some("list")
    );
    for line in [
        "branchpoint checkpoint list",
        "branchpoint checkpoint list --json",
        "branchpoint --json checkpoint list",
        "branchpoint --store x checkpoint list",
        "branchpoint checkpoint show abcd",
        "branchpoint checkpoint delete abcd",
    ] {
        let command = parse(line).unwrap().command;
        assert!(matches!(
            command,
            Command::Checkpoint(Checkpoint {
                command: Some(_),
                ..
            })
        ));
    }
    // After a flag of the making, the word is the name of a branch.
    assert_eq!(
        made("branchpoint checkpoint -m x list").branch.as_deref(),
        Some("list")
    );
}

#[test]
fn wrong_usage_is_told_apart() {
    for line in [
        "branchpoint",
        "branchpoint mount main",
        "branchpoint unmount /x --all",
        "branchpoint branch",
        "branchpoint rollback",
        "branchpoint merge",
        "branchpoint frobnicate",
    ] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn a_name_that_is_not_unicode_is_named() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    let name = OsString::from_vec(b"a\xffb".to_vec());
    let arguments = ["branchpoint", "branch", "create"].map(OsString::from);
    let error = Cli::try_parse_from(arguments.into_iter().chain([name])).unwrap_err();
    assert!(error.to_string().contains("UTF-8"), "{error}");
}
