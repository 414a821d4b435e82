//! Rules of the source that no compiler checks. Each rule is a function over one file, so that a
//! canary can show that it fails on what it forbids.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Longest source file, in lines.
const LINES_MAX: usize = 900;

/// The layers of the library, top first: none may name a module of a line above its own.
const LAYERS: &[&[&str]] = &[
    &["fuse"],
    &[
        "view", "diff", "merge", "apply", "archive", "check", "collect",
    ],
    &["branch"],
    &["store", "base"],
    &["kv", "layout", "layer", "version"],
    &["attr", "error", "id"],
];

/// `use` lines that point upwards on purpose, with the reason.
const UPWARDS: &[(&str, &str, &str)] = &[
    (
        "fs/src/store.rs",
        "view",
        "the store holds its views weakly: an open layer has exactly one",
    ),
    (
        "fs/src/store.rs",
        "branch",
        "the store's public face names what its branch methods return",
    ),
    (
        "fs/src/branch/",
        "view",
        "freezing a head closes the gate of its open view, and a rollback retires it",
    ),
];

type Rule = fn(&str, &str) -> Vec<String>;

const RULES: &[(&str, Rule)] = &[
    ("rocksdb:: only in fs/src/kv/rocks*", rocksdb_in_one_place),
    ("/dev/fuse only in fs/src/fuse*", fuse_in_one_place),
    (
        "unsafe only in sys.rs, below sys in the forker, and *_unsafe.rs",
        unsafe_in_named_files,
    ),
    ("libraries do not print or exit", libraries_are_silent),
    ("libraries do not use clap or anyhow", libraries_have_types),
    ("modules depend downwards", arrow_of_dependence),
    ("files are short", files_are_short),
    ("no paths of one machine", no_machine_paths),
    ("no leftover markers", no_markers),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// All files of the repository with one of these extensions, by their path from its root.
fn files(extensions: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut dirs = vec![root()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
            if path.is_dir() && !path.is_symlink() {
                if name != "target" && (!name.starts_with('.') || name == ".ci") {
                    dirs.push(path);
                }
            } else if extensions
                .iter()
                .any(|ext| path.extension().is_some_and(|e| e == *ext))
            {
                let below = path
                    .strip_prefix(root())
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                found.push((below, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found
}

/// Lines of code with their numbers, without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let without_comment = |line| match str::find(line, "//") {
        Some(at) => &line[..at],
        None => line,
    };
    text.lines()
        .map(without_comment)
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

fn lines_with(path: &str, text: &str, words: &[&str]) -> Vec<String> {
    code(text)
        .filter(|(_, line)| words.iter().any(|word| line.contains(word)))
        .map(|(number, line)| format!("{path}:{number}: {}", line.trim()))
        .collect()
}

fn is_library(path: &str) -> bool {
    // Files of unit tests are compiled for tests only.
    let tests = path.ends_with("/tests.rs") || path.ends_with("/suite.rs");
    !tests && (path.starts_with("fs/src/") || path.starts_with("forker/src/"))
}

fn rocksdb_in_one_place(path: &str, text: &str) -> Vec<String> {
    if path.starts_with("fs/src/kv/rocks") || path == "tests/tests/tidy.rs" {
        return Vec::new();
    }
    lines_with(path, text, &["rocksdb::"])
}

fn fuse_in_one_place(path: &str, text: &str) -> Vec<String> {
    if path.starts_with("fs/src/fuse") || !path.starts_with("fs/src") {
        return Vec::new();
    }
    lines_with(path, text, &["/dev/fuse"])
}

fn unsafe_in_named_files(path: &str, text: &str) -> Vec<String> {
    let named = path.ends_with("/sys.rs")
        || (path.starts_with("forker/src/") && path.contains("/sys/"))
        || path.starts_with("tools/boxes/src/sys/")
        || path.ends_with("_unsafe.rs");
    if named || path == "tests/tests/tidy.rs" {
        return Vec::new();
    }
    lines_with(
        path,
        text,
        &["unsafe {", "unsafe fn", "unsafe impl", "allow(unsafe_code)"],
    )
}

fn libraries_are_silent(path: &str, text: &str) -> Vec<String> {
    if !is_library(path) {
        return Vec::new();
    }
    lines_with(
        path,
        text,
        &["println!", "eprintln!", "print!(", "process::exit", "dbg!"],
    )
}

fn libraries_have_types(path: &str, text: &str) -> Vec<String> {
    if !is_library(path) {
        return Vec::new();
    }
    lines_with(path, text, &["clap::", "anyhow::"])
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

fn arrow_of_dependence(path: &str, text: &str) -> Vec<String> {
    let Some(below) = path.strip_prefix("fs/src/") else {
        return Vec::new();
    };
    let module = below.split(['/', '.']).next().unwrap();
    let Some(own) = layer_of(module) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (number, line) in production(text) {
        for used in line.split("crate::").skip(1) {
            let used = used
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap();
            let allowed = UPWARDS
                .iter()
                .any(|(p, m, _)| path.starts_with(p) && *m == used);
            if layer_of(used).is_some_and(|layer| layer < own) && !allowed {
                found.push(format!(
                    "{path}:{number}: {module} uses {used}: {}",
                    line.trim()
                ));
            }
        }
    }
    found
}

/// Lines before the unit tests, which may use anything.
fn production(text: &str) -> impl Iterator<Item = (usize, &str)> {
    code(text).take_while(|(_, line)| !line.trim_start().starts_with("#[cfg(test)]"))
}

fn files_are_short(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().count();
    if lines > LINES_MAX {
        return vec![format!("{path}: {lines} lines, more than {LINES_MAX}")];
    }
    Vec::new()
}

fn no_machine_paths(path: &str, text: &str) -> Vec<String> {
    let words = [
        ["/wo", "rk/"].concat(),
        ["/ro", "ot/"].concat(),
        ["/ho", "me/"].concat(),
    ];
    let found = |line: &&str| words.iter().any(|word| line.contains(word.as_str()));
    text.lines()
        .filter(found)
        .map(|line| format!("{path}: {}", line.trim()))
        .collect()
}

fn no_markers(path: &str, text: &str) -> Vec<String> {
    let words = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["X", "XX"].concat(),
    ];
    let alone = |line: &str, word: &str| {
        line.split(|c: char| !c.is_alphanumeric())
            .any(|part| part == word)
    };
    text.lines()
        .filter(|line| words.iter().any(|word| alone(line, word)))
        .map(|line| format!("{path}: {}", line.trim()))
        .collect()
}

#[test]
fn sources_keep_the_rules() {
    let files = files(&["rs"]);
    assert!(files.len() > 20, "only {} files were found", files.len());
    let mut broken = Vec::new();
    for (name, rule) in RULES {
        for (path, text) in &files {
            broken.extend(
                rule(path, text)
                    .into_iter()
                    .map(|what| format!("{name}: {what}")),
            );
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn documents_and_scripts_keep_the_rules() {
    let mut broken = Vec::new();
    for (path, text) in files(&["md", "toml", "sh", "py"]) {
        broken.extend(no_machine_paths(&path, &text));
        broken.extend(no_markers(&path, &text));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// A rule that cannot fail proves nothing.
#[test]
fn every_rule_can_fail() {
    let long = "\n".repeat(LINES_MAX + 1);
    let home = ["let a = \"/ro", "ot/x\";"].concat();
    let marker = ["// TO", "DO: later"].concat();
    let canaries: &[(&str, &str)] = &[
        ("fs/src/store.rs", "let db = rocksdb::DB::open();"),
        ("fs/src/view.rs", "File::open(\"/dev/fuse\");"),
        ("fs/src/view.rs", "let x = unsafe { y() };"),
        ("fs/src/view.rs", "println!(\"x\");"),
        ("fs/src/view.rs", "use anyhow::Result;"),
        ("fs/src/layout/key.rs", "use crate::view::View;"),
        ("fs/src/view.rs", &long),
        ("fs/src/view.rs", &home),
        ("fs/src/view.rs", &marker),
    ];
    assert_eq!(canaries.len(), RULES.len());
    for ((name, rule), (path, text)) in RULES.iter().zip(canaries) {
        assert!(!rule(path, text).is_empty(), "'{name}' accepts {text:?}");
        assert!(
            rule("fs/src/ok.rs", "fn ok() {}").is_empty(),
            "'{name}' refuses everything"
        );
    }
}
