//! Files that are removed while they are open.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use branchpoint_tests::rig::Rig;
use nix::fcntl::{AT_FDCWD, AtFlags};

use crate::fails;

#[test]
fn open_file_lives_on_without_a_name() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    fs::write(&path, "before").unwrap();
    let mut file = File::options().read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fails(fs::metadata(&path), libc::ENOENT);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.write_all_at(b"AFTER", 1).unwrap();
    file.set_len(4).unwrap();
    file.set_len(8).unwrap();
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"bAFT\0\0\0\0");
    // The name can be used again meanwhile, for another file.
    fs::write(&path, "other").unwrap();
    assert_ne!(
        file.metadata().unwrap().ino(),
        fs::metadata(&path).unwrap().ino()
    );
    file.sync_all().unwrap();
}

#[test]
fn file_without_a_name_gets_none_back() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    let file = File::create(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let through = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = AtFlags::AT_SYMLINK_FOLLOW;
    let result = nix::unistd::linkat(AT_FDCWD, through.as_str(), AT_FDCWD, &path, flags);
    assert_eq!(result, Err(nix::errno::Errno::ENOENT));
}

#[test]
fn removed_open_file_survives_a_checkpoint() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
    let file = file.as_mut().unwrap();
    file.write_all(b"first ").unwrap();
    fs::remove_file(&path).unwrap();
    rig.checkpoint();
    file.write_all(b"second").unwrap();
    rig.checkpoint();
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "first second");
}

#[test]
fn one_name_less_is_not_the_end() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("a"), "x").unwrap();
    fs::hard_link(rig.path("a"), rig.path("b")).unwrap();
    let file = File::open(rig.path("a")).unwrap();
    fs::remove_file(rig.path("a")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    fs::remove_file(rig.path("b")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
}

#[test]
fn many_files_are_removed_at_once() {
    let Some(rig) = Rig::new() else { return };
    let dir = rig.path("d");
    for sub in 0..20 {
        let sub = dir.join(sub.to_string());
        fs::create_dir_all(&sub).unwrap();
        for n in 0..250 {
            fs::write(sub.join(n.to_string()), b"x").unwrap();
        }
    }
    fs::remove_dir_all(&dir).unwrap();
    assert!(!dir.exists());
}
