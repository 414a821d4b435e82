//! What `--json` prints, held against `docs/json.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::harness::{Bench, can_mount};

/// A field as the document has it.
#[derive(Debug)]
struct Field {
    kind: String,
    optional: bool,
}

/// The objects that the document describes.
#[derive(Debug)]
pub(crate) struct Document {
    objects: BTreeMap<String, BTreeMap<String, Field>>,
    used: BTreeSet<String>,
}

/// Stands in the document for numbers that it does not name one by one.
const OTHERS: &str = "…";

impl Document {
    pub(crate) fn read() -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
        let mut objects: BTreeMap<String, BTreeMap<String, Field>> = BTreeMap::new();
        let mut name = String::new();
        for line in fs::read_to_string(file).unwrap().lines() {
            if line.starts_with('#') {
                name = line.strip_prefix("### ").unwrap_or_default().to_owned();
            }
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, field, kind, _, _] = cells[..] else {
                continue;
            };
            if name.is_empty() || field == "field" || field.starts_with('-') {
                continue;
            }
            let optional = kind.ends_with('?');
            objects.entry(name.clone()).or_default().insert(
                field.trim_matches('`').to_owned(),
                Field {
                    kind: kind.trim_end_matches('?').to_owned(),
                    optional,
                },
            );
        }
        Self {
            objects,
            used: BTreeSet::new(),
        }
    }

    /// Asserts that `value` is as the document says of `name`.
    #[track_caller]
    pub(crate) fn check(&mut self, name: &str, value: &Value) {
        self.used.insert(name.to_owned());
        let fields = &self.objects[name];
        let object = value
            .as_object()
            .unwrap_or_else(|| panic!("{name}: {value}"));
        let mut lists = Vec::new();
        for (key, value) in object {
            if key == "version" {
                continue;
            }
            let Some(field) = fields.get(key) else {
                let plain = value.is_u64() || value.is_boolean();
                let other = plain && fields.contains_key(OTHERS);
                assert!(other, "{name}: `{key}` is not in docs/json.md: {object:?}");
                continue;
            };
            let fits = match field.kind.as_str() {
                "string" => value.is_string(),
                "integer" => value.is_u64(),
                "boolean" => value.is_boolean(),
                "object" => value.is_object(),
                "list of string" => value
                    .as_array()
                    .is_some_and(|list| list.iter().all(Value::is_string)),
                list => {
                    let of = list.strip_prefix("list of ").unwrap();
                    let list = value.as_array().unwrap().clone();
                    lists.extend(list.into_iter().map(|item| (of.to_owned(), item)));
                    true
                }
            };
            assert!(fits, "{name}: `{key}` is not {}: {value}", field.kind);
        }
        for (key, field) in fields {
            let there = field.optional || key == OTHERS || object.contains_key(key);
            assert!(there, "{name}: `{key}` is missing in {object:?}");
        }
        for (name, item) in lists {
            self.check(&name, &item);
        }
    }
}

/// Of each line printed: that it is an object of the version that the document describes.
fn objects(out: &str) -> Vec<Value> {
    let parse = |line: &str| -> Value { serde_json::from_str(line).unwrap() };
    let all: Vec<Value> = out.lines().map(parse).collect();
    for object in &all {
        assert_eq!(object["version"], 1, "{object}");
    }
    all
}

#[test]
fn every_object_is_as_documented() {
    let mut document = Document::read();
    let bench = Bench::without_store();
    let base = bench.dir("base");
    fs::write(base.join("file"), "base\n").unwrap();
    let mut run = |name: &str, args: &[&str]| {
        let ran = bench.run(args.iter().chain(&["--json"])).ok();
        let all = objects(&ran.out);
        assert!(!all.is_empty(), "{args:?} printed nothing");
        for object in &all {
            document.check(name, object);
        }
    };
    run("Init", &["init", "--base", "base"]);
    run("Checkpoint", &["checkpoint", "-m", "one"]);
    run("Branch", &["branch", "create", "next"]);
    run("Branch", &["branch", "list"]);
    run("Branch", &["branch", "show", "next"]);
    run("Branch", &["branch", "rename", "next", "other"]);
    if can_mount() {
        let mnt = bench.dir("mnt");
        run("Mount", &["mount", "other", "mnt"]);
        fs::write(mnt.join("file"), "changed\n").unwrap();
        fs::write(mnt.join("new"), b"\0").unwrap();
        run("Change", &["diff", "main", "other"]);
        run("Change", &["diff", "main", "other", "--patch"]);
        run("Checkpoint", &["checkpoint", "other", "-m", "two"]);
        fs::write(mnt.join("new"), "dropped").unwrap();
        run(
            "Rollback",
            &["rollback", "one", "--branch", "other", "--keep", "kept"],
        );
        run("Branch", &["branch", "list"]);
        run("Node", &["log"]);
        run("Stats", &["stats"]);
        run("Mount", &["switch", "kept"]);
        run("Unmounting", &["unmount", "mnt"]);
        run("Merge", &["merge", "two", "--into", "main"]);
        fs::write(base.join("drifted"), "").unwrap();
    }
    run("Checkpoint", &["checkpoint", "list"]);
    run("Checkpoint", &["checkpoint", "show", "one"]);
    run("Application", &["apply", "main", "--dry-run"]);
    run("Application", &["apply", "main"]);
    run("Collection", &["gc", "--dry-run"]);
    run("Collection", &["gc"]);
    run("Check", &["check"]);
    run("Deletion", &["branch", "delete", "other"]);
    run("Deletion", &["checkpoint", "delete", "one"]);
    run("Stats", &["stats"]);
    run("Completions", &["completions", "bash"]);
    run("Manual", &["man"]);
    run("Manual", &["man", "--dir", "pages"]);
    let exported = bench.run(["export", "main", "--json"]).ok();
    document.check("Transfer", &objects(&exported.err)[0]);
    fs::write(bench.path("a.tar"), [0; 1024]).unwrap();
    let imported = bench.run(["import", "main", "a.tar", "--json"]).ok();
    document.check("Transfer", &imported.json());
    document.check("Stop", &bench.run(["stop", "--json"]).ok().json());
    document.check("Stop", &bench.run(["stop", "--json"]).ok().json());
    document.check("Doctor", &bench.run(["doctor", "--json"]).json());
    let mut served = bench
        .command(["serve", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = served.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    document.check("Serving", &serde_json::from_str(&line).unwrap());
    bench.run(["stop"]).ok();
    served.wait().unwrap();
    let failed = bench.run(["branch", "show", "nobody", "--json"]);
    document.check("Failure", &failed.json()["error"]);
    // The first two are not to be had in a store that is sound; the others have a test with boxes.
    let rest: Vec<_> = document
        .objects
        .keys()
        .filter(|name| !document.used.contains(*name))
        .collect();
    let mounts: &[&str] = if can_mount() {
        &[
            "Drift",
            "Problem",
            "Box",
            "Port",
            "Session",
            "Process",
            "Leaving",
            "Output",
            "Instant",
            "Line",
            "Return",
            "Sibling",
            "Promotion",
        ]
    } else {
        return;
    };
    assert!(
        rest.iter().all(|name| mounts.contains(&name.as_str())),
        "{rest:?} were never printed"
    );
}

#[test]
fn wrong_usage_is_an_object_too() {
    let bench = Bench::without_store();
    for (args, message) in [
        (vec!["--json"], "a command is missing"),
        (
            vec!["mount", "main", "--json"],
            "the following required arguments were not provided: <DIR>",
        ),
        (
            vec!["frobnicate", "--json"],
            "unrecognized subcommand 'frobnicate'",
        ),
        (
            vec!["--json", "log", "--colour"],
            "unexpected argument '--colour' found",
        ),
    ] {
        let ran = bench.run(&args);
        assert_eq!(ran.code, 2, "{ran:?}");
        let error = &ran.json()["error"];
        assert_eq!(error["kind"], "usage", "{ran:?}");
        assert_eq!(error["message"], message);
        assert!(error["hint"].is_string(), "{ran:?}");
    }
    // A word after the two dashes is no option.
    let ran = bench.run(["frobnicate", "--", "--json"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
}

#[test]
fn every_exit_code_is_documented() {
    let text = include_str!("../../../../docs/json.md");
    let help = Bench::without_store().run(["--help"]).ok().out;
    let codes = help.split("Exit codes:").nth(1).unwrap();
    let mut count = 0;
    for line in codes.lines().filter(|line| !line.trim().is_empty()) {
        let (code, meaning) = line.trim().split_once(' ').unwrap();
        let row = format!("| {code} | {} |", meaning.trim());
        assert!(text.contains(&row), "{row}");
        count += 1;
    }
    assert_eq!(count, 9);
}
