//! Damaged bytes in the files of a closed store: found, and never served as data.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use branchpoint_fs::attr::{Caller, FileKind};
use branchpoint_fs::check::check;
use branchpoint_fs::id::Ino;
use branchpoint_fs::store::Store;
use branchpoint_tests::act::pattern;
use branchpoint_tests::guard::Watchdog;
use branchpoint_tests::rig::{Scratch, new_store};

const FILES: u8 = 24;
const BYTES: usize = 300_000;

fn name(n: u8) -> Vec<u8> {
    format!("file {n}").into_bytes()
}

/// Makes a store with files in it whose content is known, in files of the database.
fn fill(dir: &Path) {
    let store = new_store(dir, None);
    let view = store.view("main").unwrap();
    for n in 0..FILES {
        let kind = FileKind::Regular;
        let attr = view
            .mknod(Caller::ROOT, Ino::ROOT, &name(n), kind, 0o644, 0, 0)
            .unwrap();
        view.write(attr.ino, 0, &pattern(n, BYTES), false).unwrap();
    }
    store.checkpoint("main", Some("all"), true).unwrap();
}

fn data_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            let kind = entry
                .extension()
                .and_then(|ext| ext.to_str())
                .unwrap_or_default();
            if entry.is_dir() {
                dirs.push(entry);
            } else if matches!(kind, "sst" | "blob" | "log") && entry.metadata().unwrap().len() > 0
            {
                found.push(entry);
            }
        }
    }
    found.sort();
    found
}

fn flip(file: &Path, at: u64) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
}

/// Reads everything. Returns whether something failed; wrong data ends the test.
fn reads_fail(dir: &Path, place: &str) -> Option<bool> {
    let store = Store::open(dir).ok()?;
    let view = store.view("main").ok()?;
    let mut failed = false;
    for n in 0..FILES {
        let mut bytes = Vec::new();
        let read = view
            .lookup(Ino::ROOT, &name(n))
            .and_then(|attr| view.read(attr.ino, 0, u32::try_from(BYTES).unwrap(), &mut bytes));
        match read {
            Ok(()) => assert!(
                bytes == pattern(n, BYTES),
                "{place}: file {n} has wrong data"
            ),
            Err(_) => failed = true,
        }
    }
    Some(failed)
}

fn check_finds(dir: &Path) -> bool {
    let Ok(store) = Store::open(dir) else {
        return true;
    };
    !check(&store, &mut |_| Ok(())).is_ok_and(|report| report.problems.is_empty())
}

#[test]
fn damaged_bytes_are_found_and_never_served() {
    let _watchdog = Watchdog::new(600);
    let scratch = Scratch::new();
    let whole = scratch.path().join("whole");
    fill(&whole);
    // Opening moves the log into files; so there are both kinds.
    drop(Store::open(&whole).unwrap());
    let (mut flips, mut found, mut failing) = (0, 0, 0);
    for file in data_files(&whole) {
        let len = file.metadata().unwrap().len();
        for part in 0..8 {
            let at = (len * part / 8 + 37).min(len - 1);
            let copy = scratch.path().join("copy");
            drop(fs::remove_dir_all(&copy));
            let copied = std::process::Command::new("cp")
                .arg("-a")
                .arg(&whole)
                .arg(&copy)
                .status();
            assert!(copied.unwrap().success());
            let below = file.strip_prefix(&whole).unwrap();
            let place = format!("{} at byte {at} of {len}", below.display());
            flip(&copy.join(below), at);
            flips += 1;
            let failed = reads_fail(&copy, &place).unwrap_or(true);
            let checked = check_finds(&copy);
            assert!(
                !failed || checked,
                "{place}: reads fail, but check finds nothing"
            );
            found += u32::from(checked);
            failing += u32::from(failed);
        }
    }
    println!("{flips} flips: check found {found}, reads failed for {failing}");
    assert!(flips >= 8, "only {flips} bytes were damaged");
    assert!(found * 2 > flips, "check found only {found} of {flips}");
}
