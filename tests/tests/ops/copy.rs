//! Copying inside of the filesystem.

use std::fs::{self, File};
use std::os::fd::AsFd;

use branchpoint_tests::act::pattern;
use branchpoint_tests::rig::{Rig, Scratch, make_base};
use branchpoint_tests::sys::copy_file_range;

fn copy_all(from: &File, to: &File, len: usize) {
    let mut done = 0;
    while done < len {
        let at = i64::try_from(done).unwrap();
        match copy_file_range(from.as_fd(), at, to.as_fd(), at, len - done).unwrap() {
            0 => break,
            count => done += count,
        }
    }
    assert_eq!(done, len);
}

#[test]
fn copy_is_equal_and_independent() {
    let Some(rig) = Rig::new() else { return };
    let data = pattern(1, 1_000_003);
    fs::write(rig.path("a"), &data).unwrap();
    let from = File::open(rig.path("a")).unwrap();
    let to = File::create(rig.path("b")).unwrap();
    copy_all(&from, &to, data.len());
    assert!(fs::read(rig.path("b")).unwrap() == data);
    fs::write(rig.path("a"), "changed").unwrap();
    assert!(fs::read(rig.path("b")).unwrap() == data);
    assert_eq!(
        copy_file_range(from.as_fd(), 5_000_000, to.as_fd(), 0, 10),
        Ok(0)
    );
}

#[test]
fn copies_of_base_files_are_whole() {
    let scratch = Scratch::new();
    let base = scratch.dir("base");
    make_base(&base);
    let Some(rig) = Rig::with_base(&base) else {
        return;
    };
    for name in ["a/b/a", "c/a", "d", "b"] {
        fs::copy(rig.path(name), rig.path("copy")).unwrap();
        assert!(
            fs::read(rig.path("copy")).unwrap() == fs::read(base.join(name)).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn unaligned_copies_within_one_file() {
    let Some(rig) = Rig::new() else { return };
    let mut data = pattern(1, 50_000);
    fs::write(rig.path("f"), &data).unwrap();
    let file = File::options()
        .read(true)
        .write(true)
        .open(rig.path("f"))
        .unwrap();
    let count = copy_file_range(file.as_fd(), 100, file.as_fd(), 30_001, 10_007).unwrap();
    let copied = data[100..100 + count].to_vec();
    data[30_001..30_001 + count].copy_from_slice(&copied);
    assert!(count > 0 && fs::read(rig.path("f")).unwrap() == data);
    let overlap = copy_file_range(file.as_fd(), 0, file.as_fd(), 10, 100);
    assert_eq!(overlap, Err(nix::errno::Errno::EINVAL));
}
