//! Files of the base: seen at once, changed in the layer only.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use branchpoint_tests::act::pattern;
use branchpoint_tests::dump;
use branchpoint_tests::rig::{Rig, Scratch, make_base};

use crate::{ino, nlink};

fn base() -> (Scratch, std::path::PathBuf) {
    let scratch = Scratch::new();
    let base = scratch.dir("base");
    make_base(&base);
    (scratch, base)
}

#[test]
fn mount_shows_the_base_as_it_is() {
    let (_scratch, base) = base();
    let Some(rig) = Rig::with_base(&base) else {
        return;
    };
    let (expected, got) = (dump::read(&base), dump::read(&rig.dir));
    assert!(expected.keys().eq(got.keys()));
    for (path, entry) in &expected {
        let other = &got[path];
        assert_eq!(entry.difference(other), None, "{}", path.escape_ascii());
        assert_eq!(entry.mtime, other.mtime, "{}", path.escape_ascii());
    }
}

#[test]
fn hard_links_stay_one_file_through_copy_up() {
    let (_scratch, base) = base();
    let Some(rig) = Rig::with_base(&base) else {
        return;
    };
    let paths = ["d", "a/d", "c/d"].map(|name| rig.path(name));
    let before = ino(&paths[0]);
    assert!(
        paths
            .iter()
            .all(|path| ino(path) == before && nlink(path) == 3)
    );
    File::options()
        .write(true)
        .open(&paths[1])
        .unwrap()
        .write_all_at(b"BIG", 0)
        .unwrap();
    assert!(
        paths
            .iter()
            .all(|path| ino(path) == before && nlink(path) == 3)
    );
    assert!(paths.iter().all(|path| fs::read(path).unwrap() == b"BIGll"));
    fs::remove_file(&paths[0]).unwrap();
    assert!(paths[1..].iter().all(|path| nlink(path) == 2));
    fs::hard_link(&paths[2], rig.path("new")).unwrap();
    assert_eq!(nlink(&paths[1]), 3);
    assert_eq!(fs::read(base.join("d")).unwrap(), b"small");
    assert_eq!(nlink(&base.join("d")), 3);
}

#[test]
fn one_block_is_copied_and_not_the_file() {
    let scratch = Scratch::new();
    let base = scratch.dir("base");
    let data = pattern(1, 64 << 20);
    fs::write(base.join("large"), &data).unwrap();
    let Some(rig) = Rig::with_base(&base) else {
        return;
    };
    let size = || {
        let output = std::process::Command::new("du")
            .arg("-sk")
            .arg(rig.store.dir())
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.split('\t').next().unwrap().parse::<u64>().unwrap()
    };
    let before = size();
    let file = File::options()
        .read(true)
        .write(true)
        .open(rig.path("large"))
        .unwrap();
    file.write_all_at(b"changed", 30 << 20).unwrap();
    file.sync_all().unwrap();
    assert!(
        size() - before < 8 << 10,
        "{} KiB were written for seven bytes",
        size() - before
    );
    let mut expected = data;
    expected[30 << 20..(30 << 20) + 7].copy_from_slice(b"changed");
    assert!(fs::read(rig.path("large")).unwrap() == expected);
}

#[test]
fn removed_and_replaced_entries_of_the_base_stay_so() {
    let (_scratch, base) = base();
    let Some(rig) = Rig::with_base(&base) else {
        return;
    };
    fs::remove_file(rig.path("b")).unwrap();
    fs::remove_dir_all(rig.path("a")).unwrap();
    fs::create_dir(rig.path("a")).unwrap();
    fs::rename(rig.path("c"), rig.path("moved")).unwrap();
    let check = || {
        assert_eq!(crate::names(&rig.dir), ["a", "d", "e", "moved"]);
        assert!(
            crate::names(&rig.path("a")).is_empty(),
            "the base shines through"
        );
        assert_eq!(crate::names(&rig.path("moved")), ["a", "d"]);
    };
    check();
    rig.checkpoint();
    check();
    assert!(base.join("b").exists() && base.join("a/b/a").exists());
}

#[test]
fn change_of_attributes_alone_leaves_the_content_in_the_base() {
    let (_scratch, base) = base();
    let Some(rig) = Rig::with_base(&base) else {
        return;
    };
    let path = rig.path("a/b/a");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(fs::read(&path).unwrap() == pattern(2, 200_000));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(
        fs::metadata(base.join("a/b/a")).unwrap().mode() & 0o777,
        0o644
    );
}

#[test]
fn base_that_contains_its_own_mount_point_and_store() {
    let scratch = Scratch::new();
    make_base(scratch.path());
    let Some(rig) = Rig::inside(&scratch) else {
        return;
    };
    assert!(rig.path("a/b/a").exists());
    // Going down the mount point inside of the mount must not hang or go round for ever.
    let seen = walk(&rig.dir, 0);
    assert!(seen < 10_000, "{seen} entries");
    fs::write(rig.path("new"), "x").unwrap();
    assert_eq!(fs::read_to_string(rig.path("new")).unwrap(), "x");
    assert!(!scratch.path().join("new").exists());
}

fn walk(dir: &std::path::Path, depth: usize) -> usize {
    assert!(depth < 40, "the base goes round: {}", dir.display());
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    let mut count = 0;
    for entry in entries.flatten() {
        count += 1;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            count += walk(&entry.path(), depth + 1);
        }
    }
    count
}

#[test]
fn file_that_changes_in_the_base_is_reported_and_not_mixed() {
    let (_scratch, base) = base();
    let Some(rig) = Rig::with_base(&base) else {
        return;
    };
    let old = pattern(2, 200_000);
    let file = File::options()
        .read(true)
        .write(true)
        .open(rig.path("a/b/a"))
        .unwrap();
    file.write_all_at(b"ours", 100_000).unwrap();
    file.sync_all().unwrap();
    fs::write(base.join("a/b/a"), pattern(9, 150_000)).unwrap();
    rig.drop_caches();
    match fs::read(rig.path("a/b/a")) {
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}"),
        Ok(bytes) => {
            let whole = bytes[..100_000] == old[..100_000] && bytes[100_004..] == old[100_004..];
            assert!(whole, "content of two times was mixed");
        }
    }
}
