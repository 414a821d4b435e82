//! Holes: fallocate and seek.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use branchpoint_fs::id::Ino;
use branchpoint_tests::act::pattern;
use branchpoint_tests::rig::Rig;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek};

fn open(rig: &Rig) -> File {
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(rig.path("f"))
        .unwrap()
}

#[test]
fn reserving_grows_unless_told_not_to() {
    let Some(rig) = Rig::new() else { return };
    let file = open(&rig);
    fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, 10_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    fallocate(&file, FallocateFlags::empty(), 5_000, 10_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 15_000);
    assert!(
        fs::read(rig.path("f"))
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
}

#[test]
fn punched_holes_read_as_zeros_and_take_no_space() {
    let Some(rig) = Rig::new() else { return };
    let file = open(&rig);
    let mut data = pattern(1, 400_000);
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    let blocks = || {
        let view = rig.view();
        view.getattr(view.lookup(Ino::ROOT, b"f").unwrap().ino)
            .unwrap()
            .blocks
    };
    let before = blocks();
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, flags, 5_000, 300_000).unwrap();
    data[5_000..305_000].fill(0);
    assert!(fs::read(rig.path("f")).unwrap() == data);
    assert!(blocks() < before);
    rig.checkpoint();
    assert!(fs::read(rig.path("f")).unwrap() == data);
}

#[test]
fn zero_range_grows_unless_told_not_to() {
    let Some(rig) = Rig::new() else { return };
    let file = open(&rig);
    file.write_all_at(&pattern(1, 10_000), 0).unwrap();
    let zero = FallocateFlags::FALLOC_FL_ZERO_RANGE;
    fallocate(
        &file,
        zero | FallocateFlags::FALLOC_FL_KEEP_SIZE,
        9_000,
        5_000,
    )
    .unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10_000);
    fallocate(&file, zero, 9_500, 5_000).unwrap();
    let bytes = fs::read(rig.path("f")).unwrap();
    assert_eq!(bytes.len(), 14_500);
    assert!(bytes[..9_000] == pattern(1, 10_000)[..9_000]);
    assert!(bytes[9_000..].iter().all(|byte| *byte == 0));
}

#[test]
fn collapse_and_insert_are_refused() {
    let Some(rig) = Rig::new() else { return };
    let file = open(&rig);
    file.write_all_at(&pattern(1, 16_384), 0).unwrap();
    for flags in [
        FallocateFlags::FALLOC_FL_COLLAPSE_RANGE,
        FallocateFlags::FALLOC_FL_INSERT_RANGE,
    ] {
        assert_eq!(fallocate(&file, flags, 4096, 4096), Err(Errno::EOPNOTSUPP));
    }
    assert!(fs::read(rig.path("f")).unwrap() == pattern(1, 16_384));
}

#[test]
fn seek_finds_data_and_holes_also_when_dirty() {
    let Some(rig) = Rig::new() else { return };
    let file = open(&rig);
    file.write_all_at(&pattern(1, 4096), 1 << 20).unwrap();
    file.set_len(2 << 20).unwrap();
    for _ in 0..2 {
        let data = lseek(&file, 0, Whence::SeekData).unwrap();
        assert!((0..=1 << 20).contains(&data), "{data}");
        let hole = lseek(&file, 1 << 20, Whence::SeekHole).unwrap();
        assert!(((1 << 20) + 4096..=2 << 20).contains(&hole), "{hole}");
        assert_eq!(lseek(&file, 2 << 20, Whence::SeekData), Err(Errno::ENXIO));
        assert_eq!(lseek(&file, 3 << 20, Whence::SeekHole), Err(Errno::ENXIO));
        file.sync_all().unwrap();
    }
    // What is on the disk is known exactly enough to be worth it.
    assert!(
        lseek(&file, 0, Whence::SeekData).unwrap() > 0,
        "the hole at the start is not seen"
    );
}

#[test]
fn space_of_a_written_file_is_shown() {
    let Some(rig) = Rig::new() else { return };
    let file = open(&rig);
    file.write_all_at(&pattern(1, 400_000), 0).unwrap();
    file.sync_all().unwrap();
    let blocks = file.metadata().unwrap().blocks();
    assert!(
        (782..1000).contains(&blocks),
        "{blocks} blocks of 512 bytes for 400,000 bytes"
    );
}

#[test]
fn sparse_files_take_little_space() {
    let Some(rig) = Rig::new() else { return };
    let file = open(&rig);
    file.set_len(1 << 30).unwrap();
    file.write_all_at(b"x", 500 << 20).unwrap();
    file.sync_all().unwrap();
    assert!(file.metadata().unwrap().blocks() < 1024);
}
