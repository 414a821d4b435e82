//! What the tests of this crate share: the guest programs, and places for them to run in.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// Nothing that is waited for takes this long, on a busy machine either.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The program that holds all guests, compiled once.
pub(crate) fn guests() -> &'static Path {
    static GUESTS: OnceLock<PathBuf> = OnceLock::new();
    GUESTS.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests");
        let mut files: Vec<PathBuf> = fs::read_dir(&sources)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
            .collect();
        files.sort();
        let mut hash = DefaultHasher::new();
        for file in fs::read_dir(&sources).unwrap() {
            fs::read(file.unwrap().path()).unwrap().hash(&mut hash);
        }
        let name = format!("guests-{:016x}", hash.finish());
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if !program.exists() {
            compile(&files, &program);
        }
        program
    })
}

/// The names of all guests.
pub(crate) fn names() -> Vec<String> {
    let listed = Command::new(guests()).arg("--list").output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Several test binaries may compile at the same time; the first one's program stays, because running
/// guests are that file.
fn compile(files: &[PathBuf], program: &Path) {
    let part = program.with_extension(std::process::id().to_string());
    let compiled = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-pthread",
            "-o",
        ])
        .arg(&part)
        .args(files)
        .arg("-lrt")
        .status()
        .unwrap();
    assert!(compiled.success(), "the guests do not compile");
    match fs::hard_link(&part, program) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => panic!("{error}"),
        _ => fs::remove_file(&part).unwrap(),
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "waited too long for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A directory in which a guest runs.
#[derive(Debug)]
pub(crate) struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Another one with the same files in the same state.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        let from = self.path().join(".");
        let copied = Command::new("cp")
            .arg("-a")
            .arg(from)
            .arg(copy.path())
            .status()
            .unwrap();
        assert!(copied.success());
        copy
    }

    /// Whether a file is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.path().join(name).exists()
    }

    /// Lets the guest go on.
    pub(crate) fn go(&self) {
        fs::write(self.path().join("go"), "").unwrap();
    }

    /// What the guest said in the end: `ok`, or the first thing that failed.
    pub(crate) fn verdict(&self) -> Option<String> {
        let text = fs::read_to_string(self.path().join("verdict")).ok()?;
        let failed = text.lines().find(|line| *line != "ok");
        // Created and not yet written, it says nothing; a line comes in one write.
        let said = failed.or_else(|| (!text.is_empty()).then_some("ok"));
        said.map(str::to_owned)
    }

    /// How many trees said `ok`.
    pub(crate) fn passed(&self) -> usize {
        let text = fs::read_to_string(self.path().join("verdict")).unwrap_or_default();
        text.lines().filter(|line| *line == "ok").count()
    }
}

/// The files of a scene as they were. A second name keeps each, so that it is the same file again when a
/// guest has removed it.
#[derive(Debug)]
pub(crate) struct Kept {
    names: tempfile::TempDir,
    files: BTreeMap<PathBuf, Vec<u8>>,
    others: BTreeSet<PathBuf>,
}

impl Scene {
    /// Keeps the files as they are.
    pub(crate) fn keep(&self) -> Kept {
        let names = tempfile::tempdir_in(self.path().parent().unwrap()).unwrap();
        let mut kept = Kept {
            names,
            files: BTreeMap::new(),
            others: BTreeSet::new(),
        };
        let mut paths = below(self.path());
        paths.sort();
        for path in paths {
            if path.symlink_metadata().unwrap().is_file() {
                fs::hard_link(&path, kept.names.path().join(kept.files.len().to_string())).unwrap();
                let content = fs::read(&path).unwrap();
                kept.files.insert(path, content);
            } else {
                kept.others.insert(path);
            }
        }
        kept
    }

    /// Puts the files back; what has come since is removed.
    pub(crate) fn reset(&self, kept: &Kept) {
        for path in below(self.path()).into_iter().rev() {
            if kept.files.contains_key(&path) || kept.others.contains(&path) {
                continue;
            }
            if path.symlink_metadata().unwrap().is_dir() {
                fs::remove_dir(path).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
        }
        for (index, (path, content)) in kept.files.iter().enumerate() {
            if !path.exists() {
                fs::hard_link(kept.names.path().join(index.to_string()), path).unwrap();
            }
            if fs::read(path).unwrap() != *content {
                fs::write(path, content).unwrap();
            }
        }
    }
}

/// Everything below a directory, each after its parent.
fn below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        found.push(entry.path());
        if entry.file_type().unwrap().is_dir() {
            found.extend(below(&entry.path()));
        }
    }
    found
}
