//! Making and removing directories.

use std::fs::{self, File};

use branchpoint_tests::rig::Rig;

use crate::{fails, nlink};

#[test]
fn link_count_follows_subdirectories() {
    let Some(rig) = Rig::new() else { return };
    let dir = rig.path("d");
    fs::create_dir(&dir).unwrap();
    assert_eq!(nlink(&dir), 2);
    fs::create_dir(dir.join("a")).unwrap();
    fs::create_dir(dir.join("b")).unwrap();
    File::create(dir.join("f")).unwrap();
    assert_eq!(nlink(&dir), 4);
    fs::remove_dir(dir.join("a")).unwrap();
    assert_eq!(nlink(&dir), 3);
    fs::rename(dir.join("b"), rig.path("b")).unwrap();
    assert_eq!(nlink(&dir), 2);
}

#[test]
fn only_empty_directories_are_removed() {
    let Some(rig) = Rig::new() else { return };
    let dir = rig.path("d");
    fs::create_dir(&dir).unwrap();
    File::create(dir.join("f")).unwrap();
    fails(fs::remove_dir(&dir), libc::ENOTEMPTY);
    fails(fs::remove_dir(dir.join("f")), libc::ENOTDIR);
    fails(fs::remove_file(&dir), libc::EISDIR);
    fs::remove_file(dir.join("f")).unwrap();
    fs::remove_dir(&dir).unwrap();
    fails(fs::metadata(&dir), libc::ENOENT);
    fails(fs::remove_dir(&dir), libc::ENOENT);
}

#[test]
fn nothing_is_made_in_a_removed_directory() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("d");
    fs::create_dir(&path).unwrap();
    let open = File::open(&path).unwrap();
    fs::remove_dir(&path).unwrap();
    let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&open));
    fails(File::create(format!("{through}/f")), libc::ENOENT);
    fails(fs::create_dir(format!("{through}/d")), libc::ENOENT);
    assert_eq!(
        std::os::unix::fs::MetadataExt::nlink(&open.metadata().unwrap()),
        0
    );
}

#[test]
fn deep_trees_can_be_made_and_removed() {
    let Some(rig) = Rig::new() else { return };
    let mut path = rig.path("top");
    for _ in 0..200 {
        path.push("deeper");
    }
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("f"), "at the bottom").unwrap();
    assert_eq!(fs::read_to_string(path.join("f")).unwrap(), "at the bottom");
    fs::remove_dir_all(rig.path("top")).unwrap();
    assert!(!rig.path("top").exists());
}
