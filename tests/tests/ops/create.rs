//! Looking up and making files.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use branchpoint_tests::rig::Rig;

use crate::{fails, mode};

#[test]
fn new_file_is_empty_and_there() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    fails(fs::metadata(&path), libc::ENOENT);
    File::create(&path).unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert!(meta.is_file());
    assert_eq!(meta.len(), 0);
}

#[test]
fn exclusive_creation_fails_on_what_exists() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    options.open(&path).unwrap();
    fails(options.open(&path), libc::EEXIST);
    std::os::unix::fs::symlink("nowhere", rig.path("dangling")).unwrap();
    fails(options.open(rig.path("dangling")), libc::EEXIST);
}

#[test]
fn creation_follows_a_dangling_link() {
    let Some(rig) = Rig::new() else { return };
    std::os::unix::fs::symlink("target", rig.path("link")).unwrap();
    fs::write(rig.path("link"), "x").unwrap();
    assert_eq!(fs::read_to_string(rig.path("target")).unwrap(), "x");
}

#[test]
fn file_made_without_write_permission_can_be_written_by_its_maker() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o444)
        .open(&path)
        .unwrap();
    std::io::Write::write_all(&mut &file, b"x").unwrap();
    assert_eq!(mode(&path), 0o444);
    assert_eq!(fs::read(&path).unwrap(), b"x");
}

#[test]
fn a_file_is_no_directory() {
    let Some(rig) = Rig::new() else { return };
    File::create(rig.path("f")).unwrap();
    fails(fs::metadata(rig.path("f/below")), libc::ENOTDIR);
    fails(File::create(rig.path("f/below")), libc::ENOTDIR);
    fails(File::create(rig.path("missing/below")), libc::ENOENT);
}

#[test]
fn unnamed_file_is_refused_cleanly_or_works() {
    let Some(rig) = Rig::new() else { return };
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_TMPFILE);
    match options.open(&rig.dir) {
        // The transport cannot pass it on yet.
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP)),
        Ok(file) => std::io::Write::write_all(&mut &file, b"x").unwrap(),
    }
}

#[test]
fn negative_answers_end_when_the_file_is_made() {
    let Some(rig) = Rig::new() else { return };
    for n in 0..50 {
        let path = rig.path(&format!("f{n}"));
        assert!(!path.exists());
        assert!(!path.exists());
        File::create(&path).unwrap();
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        assert!(path.is_dir());
    }
}
