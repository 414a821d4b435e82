//! Looking up and making files.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

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
fn an_unnamed_file_works_like_any_other_and_is_gone_with_its_descriptor() {
    let Some(rig) = Rig::new() else { return };
    let file = unnamed(&rig, 0).unwrap();
    std::io::Write::write_all(&mut &file, b"content").unwrap();
    let seen = file.metadata().unwrap();
    assert_eq!((seen.nlink(), seen.len()), (0, 7));
    assert_eq!(seen.mode() & 0o7777, 0o640);
    let mut content = [0; 7];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut content, 0).unwrap();
    assert_eq!(&content, b"content");
    assert_eq!(fs::read_dir(&rig.dir).unwrap().count(), 0);
    drop(file);
    // The store must be clean after this: nothing is left of the file.
}

#[test]
fn an_unnamed_file_gets_its_name_later() {
    let Some(rig) = Rig::new() else { return };
    let file = unnamed(&rig, 0).unwrap();
    std::io::Write::write_all(&mut &file, b"done").unwrap();
    let ino = file.metadata().unwrap().ino();
    name(&file, &rig.path("named")).unwrap();
    let seen = fs::metadata(rig.path("named")).unwrap();
    assert_eq!((seen.ino(), seen.nlink()), (ino, 1));
    assert_eq!(fs::read(rig.path("named")).unwrap(), b"done");
    drop(file);
    assert_eq!(fs::read(rig.path("named")).unwrap(), b"done");
    fails(
        name(&unnamed(&rig, 0).unwrap(), &rig.path("named")),
        libc::EEXIST,
    );
}

#[test]
fn an_unnamed_file_that_is_exclusive_gets_no_name() {
    let Some(rig) = Rig::new() else { return };
    let file = unnamed(&rig, libc::O_EXCL).unwrap();
    fails(name(&file, &rig.path("named")), libc::ENOENT);
}

/// Opens a file without a name.
fn unnamed(rig: &Rig, flags: i32) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = libc::O_TMPFILE | flags;
    options
        .read(true)
        .write(true)
        .mode(0o640)
        .custom_flags(flags)
        .open(&rig.dir)
}

/// Gives an open file a name, the way that needs no privileges.
fn name(file: &File, path: &Path) -> std::io::Result<()> {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    let here = nix::fcntl::AT_FDCWD;
    let follow = nix::fcntl::AtFlags::AT_SYMLINK_FOLLOW;
    Ok(nix::unistd::linkat(
        here,
        open.as_str(),
        here,
        path,
        follow,
    )?)
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
