//! Renaming, with all its flags.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use branchpoint_tests::rig::Rig;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::{fails, ino};

fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    renameat2(AT_FDCWD, from, AT_FDCWD, to, flags).map_err(io::Error::from)
}

#[test]
fn rename_over_open_file_keeps_handle() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("old"), "old").unwrap();
    fs::write(rig.path("new"), "new").unwrap();
    let mut open = File::options()
        .read(true)
        .write(true)
        .open(rig.path("old"))
        .unwrap();
    fs::rename(rig.path("new"), rig.path("old")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
    open.write_all(b" and more").unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    assert_eq!(open.metadata().unwrap().len(), 12);
    assert_eq!(fs::read_to_string(rig.path("old")).unwrap(), "new");
}

#[test]
fn directory_does_not_go_into_itself() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir_all(rig.path("a/b/c")).unwrap();
    fails(fs::rename(rig.path("a"), rig.path("a/x")), libc::EINVAL);
    fails(fs::rename(rig.path("a"), rig.path("a/b/c/x")), libc::EINVAL);
    fails(
        fs::rename(rig.path("a/b/c"), rig.path("a")),
        libc::ENOTEMPTY,
    );
    let swap = rename_with(
        &rig.path("a"),
        &rig.path("a/b"),
        RenameFlags::RENAME_EXCHANGE,
    );
    fails(swap, libc::EINVAL);
}

#[test]
fn racing_directory_renames_make_no_loop() {
    let Some(rig) = Rig::new() else { return };
    for name in ["a", "b", "c"] {
        fs::create_dir(rig.path(name)).unwrap();
    }
    std::thread::scope(|scope| {
        for (from, into) in [("a", "b"), ("b", "c"), ("c", "a")] {
            let (rig, back) = (&rig, rig.path(from));
            scope.spawn(move || {
                let there = rig.path(into).join(from);
                for _ in 0..200 {
                    if fs::rename(&back, &there).is_ok() {
                        // It may have been carried along by the others meanwhile.
                        drop(fs::rename(&there, &back));
                    }
                }
            });
        }
    });
    // Everything is reachable from the root: nothing hangs in a loop of its own.
    let mut dirs = vec![rig.dir.clone()];
    let mut found = 0;
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            found += 1;
            dirs.push(entry.unwrap().path());
        }
    }
    assert_eq!(found, 3);
}

#[test]
fn kinds_must_fit() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir_all(rig.path("full/x")).unwrap();
    fs::create_dir(rig.path("dir")).unwrap();
    fs::write(rig.path("file"), "").unwrap();
    fails(fs::rename(rig.path("dir"), rig.path("file")), libc::ENOTDIR);
    fails(fs::rename(rig.path("file"), rig.path("dir")), libc::EISDIR);
    fails(
        fs::rename(rig.path("dir"), rig.path("full")),
        libc::ENOTEMPTY,
    );
    fs::rename(rig.path("full"), rig.path("dir")).unwrap();
    assert!(rig.path("dir/x").is_dir());
    fails(
        fs::rename(rig.path("missing"), rig.path("dir")),
        libc::ENOENT,
    );
}

#[test]
fn names_of_one_file_are_both_kept() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("a"), "").unwrap();
    fs::hard_link(rig.path("a"), rig.path("b")).unwrap();
    fs::rename(rig.path("a"), rig.path("b")).unwrap();
    assert!(rig.path("a").exists() && rig.path("b").exists());
}

#[test]
fn noreplace_fails_on_what_exists() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("a"), "a").unwrap();
    fs::write(rig.path("b"), "b").unwrap();
    let flags = RenameFlags::RENAME_NOREPLACE;
    fails(
        rename_with(&rig.path("a"), &rig.path("b"), flags),
        libc::EEXIST,
    );
    rename_with(&rig.path("a"), &rig.path("c"), flags).unwrap();
    assert_eq!(fs::read_to_string(rig.path("c")).unwrap(), "a");
}

#[test]
fn exchange_swaps_a_file_and_a_directory() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir_all(rig.path("one/dir/x")).unwrap();
    fs::create_dir(rig.path("two")).unwrap();
    fs::write(rig.path("two/file"), "file").unwrap();
    let (dir, file) = (ino(&rig.path("one/dir")), ino(&rig.path("two/file")));
    let flags = RenameFlags::RENAME_EXCHANGE;
    rename_with(&rig.path("one/dir"), &rig.path("two/file"), flags).unwrap();
    assert_eq!(
        (ino(&rig.path("two/file")), ino(&rig.path("one/dir"))),
        (dir, file)
    );
    assert!(rig.path("two/file/x").is_dir());
    assert_eq!(ino(&rig.path("two/file/..")), ino(&rig.path("two")));
    assert_eq!(
        (
            crate::nlink(&rig.path("one")),
            crate::nlink(&rig.path("two"))
        ),
        (2, 3)
    );
    fails(
        rename_with(&rig.path("one"), &rig.path("none"), flags),
        libc::ENOENT,
    );
}

#[test]
fn whiteout_leaves_a_device() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("a"), "a").unwrap();
    rename_with(&rig.path("a"), &rig.path("b"), RenameFlags::RENAME_WHITEOUT).unwrap();
    let meta = rig.path("a").symlink_metadata().unwrap();
    assert!(meta.file_type().is_char_device());
    assert_eq!(meta.rdev(), 0);
    assert_eq!(fs::read_to_string(rig.path("b")).unwrap(), "a");
}
