//! What the tests of this crate share: the guest programs, and places for them to run in.
#![allow(dead_code, reason = "not every test needs all of it")]

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

    /// What the guest said in the end.
    pub(crate) fn verdict(&self) -> Option<String> {
        fs::read_to_string(self.path().join("verdict")).ok()
    }
}
