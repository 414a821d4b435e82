//! `diff --patch`, judged by `git apply`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Bench, can_mount, finish};

/// What git knows of a tree: of each path its mode and content.
type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

fn tree(root: &Path) -> Tree {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_dir() {
                todo.push(path);
                continue;
            } else if meta.is_symlink() {
                use std::os::unix::ffi::OsStrExt as _;
                fs::read_link(&path)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec()
            } else {
                fs::read(&path).unwrap()
            };
            let mode = if meta.is_symlink() {
                0o120_000
            } else {
                meta.mode() & 0o100_100
            };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), (mode, content));
        }
    }
    found
}

#[track_caller]
fn same(is: &Tree, wanted: &Tree) {
    assert_eq!(
        is.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    for (path, content) in wanted {
        assert!(
            is[path] == *content,
            "{path:?} differs: mode {:o}, wanted {:o}",
            is[path].0,
            content.0
        );
    }
}

fn git_apply(dir: &Path, patch: &str, more: &[&str]) {
    let file = dir.parent().unwrap().join("patch");
    fs::write(&file, patch).unwrap();
    let mut git = Command::new("git");
    git.args(["apply", "--whitespace=nowarn"])
        .args(more)
        .arg(&file)
        .current_dir(dir)
        .env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap())
        .stdin(Stdio::null());
    finish(git).ok();
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let byte = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..length).map(byte).collect()
}

fn before(root: &Path) {
    let text: String = (0..200).map(|line| format!("line {line}\n")).collect();
    for dir in ["deep/er", "moved/sub", "moved/old", "gone"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for (name, content) in [
        ("text", text.as_bytes()),
        ("no newline", b"one\ntwo"),
        ("crlf", b"a\r\nb\r\nc\rd\n"),
        ("binary", &noise(100_000)),
        ("to-binary", b"text\n"),
        ("from-binary", b"\0\xff"),
        ("mode", b"#!/bin/sh\n"),
        ("renamed", text.as_bytes()),
        ("renamed-binary", &noise(3_000)),
        ("deep/er/file", b"x\n"),
        ("moved/plain", b"plain\n"),
        ("moved/changed", text.as_bytes()),
        ("moved/sub/inner", b"inner\n"),
        ("moved/old/leaves", b"leaves\n"),
        ("gone/file", b"gone\n"),
        ("gone-empty", b""),
        ("becomes-link", b"file\n"),
        ("tab\tand\nnewline", b"odd\n"),
        ("swap-a", b"a\n"),
        ("swap-b", b"b\n"),
    ] {
        fs::write(root.join(name), content).unwrap();
    }
    symlink("text", root.join("link")).unwrap();
    symlink("text", root.join("becomes-file")).unwrap();
}

fn change(root: &Path) {
    let at = |name: &str| root.join(name);
    let edit = |name: &str, from: &str, to: &str| {
        let text = fs::read_to_string(at(name)).unwrap();
        fs::write(at(name), text.replace(from, to)).unwrap();
    };
    edit("text", "line 10\n", "LINE 10\nand more\n");
    edit("text", "line 150\n", "");
    edit("no newline", "two", "two\nthree");
    edit("crlf", "b\r\n", "B\r\n");
    edit("crlf", "c\rd", "c\rD");
    let mut bytes = noise(100_000);
    bytes[50_000] ^= 1;
    fs::write(at("binary"), bytes).unwrap();
    fs::write(at("to-binary"), b"\0").unwrap();
    fs::write(at("from-binary"), "text\n").unwrap();
    fs::set_permissions(at("mode"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(at("renamed"), at("deep/renamed")).unwrap();
    edit("deep/renamed", "line 7\n", "line seven\n");
    fs::rename(at("renamed-binary"), at("deep/binary moved")).unwrap();
    fs::write(at("deep/binary moved"), noise(3_001)).unwrap();
    fs::rename(at("moved"), at("deep/moved here")).unwrap();
    edit("deep/moved here/changed", "line 100\n", "line hundred\n");
    fs::write(at("deep/moved here/new"), "new\n").unwrap();
    fs::rename(at("deep/moved here/old/leaves"), at("left")).unwrap();
    fs::remove_dir_all(at("gone")).unwrap();
    fs::remove_file(at("gone-empty")).unwrap();
    fs::write(at("new-empty"), "").unwrap();
    fs::write(at("grün \"quoted\" \\back"), "q\n").unwrap();
    fs::remove_file(at("becomes-link")).unwrap();
    symlink("deep", at("becomes-link")).unwrap();
    fs::remove_file(at("becomes-file")).unwrap();
    fs::write(at("becomes-file"), "now a file\n").unwrap();
    fs::remove_file(at("link")).unwrap();
    symlink("elsewhere", at("link")).unwrap();
    edit("tab\tand\nnewline", "odd", "odder");
    fs::rename(at("swap-a"), at("swap-c")).unwrap();
    fs::rename(at("swap-b"), at("swap-a")).unwrap();
    fs::rename(at("swap-c"), at("swap-b")).unwrap();
}

#[test]
fn a_patch_is_applied_by_git() {
    if !can_mount() {
        return;
    }
    if Command::new("git").arg("--version").output().is_err() {
        println!("SKIP git apply: there is no git");
        return;
    }
    let bench = Bench::new();
    let (mnt, copy) = (bench.dir("mnt"), bench.dir("copy"));
    bench.run(["mount", "main", "mnt"]).ok();
    before(&mnt);
    before(&copy);
    bench.run(["checkpoint", "-m", "before"]).ok();
    change(&mnt);
    let old = tree(&copy);
    let patch = bench.run(["diff", "before", "main", "--patch"]).ok().out;
    git_apply(&copy, &patch, &[]);
    let (is, wanted) = (tree(&copy), tree(&mnt));
    same(&is, &wanted);
    git_apply(&copy, &patch, &["--reverse"]);
    // Git cannot take back that a link became a file or the other way round, not even of its own.
    let without_kinds = |mut tree: Tree| {
        tree.retain(|path, _| !path.to_string_lossy().starts_with("becomes-"));
        tree
    };
    same(&without_kinds(tree(&copy)), &without_kinds(old));
    // The pieces that programs get are the same patch.
    let pieces: String = bench
        .run(["diff", "before", "main", "--patch", "--json"])
        .ok()
        .lines()
        .iter()
        .filter_map(|change| change["patch"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(pieces, patch);
}

#[test]
fn what_a_patch_cannot_carry_is_said() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mnt = bench.dir("mnt");
    bench.run(["mount", "main", "mnt"]).ok();
    fs::write(mnt.join("file"), "x").unwrap();
    bench.run(["checkpoint", "-m", "before"]).ok();
    nix::unistd::mkfifo(&mnt.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::set_permissions(mnt.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    let large = fs::File::create(mnt.join("large")).unwrap();
    large.set_len(5 << 20).unwrap();
    let patch = bench.run(["diff", "before", "main", "--patch"]).ok().out;
    assert_eq!(
        patch,
        "# file: only attributes changed that cannot be in a patch\n\
         diff --git a/large b/large\nnew file mode 100644\n\
         Binary files a/large and b/large differ\n\
         # pipe: special files cannot be in a patch\n"
    );
}
