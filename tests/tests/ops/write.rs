//! Writing: append, truncate on open, direct, large, sparse.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use branchpoint_tests::act::pattern;
use branchpoint_tests::rig::Rig;
use branchpoint_tests::sys::SharedMapping;

#[test]
fn appends_of_two_writers_do_not_overwrite() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("log");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut options = OpenOptions::new();
                let mut file = options.append(true).create(true).open(path).unwrap();
                for n in 0..200 {
                    // One call: formatting into a file writes piece by piece.
                    file.write_all(format!("{writer} {n:04}\n").as_bytes())
                        .unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 800);
    assert!(lines.iter().all(|line| line.len() == 6));
}

#[test]
fn append_goes_to_the_end_after_a_truncation() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    fs::write(&path, "0123456789").unwrap();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"a").unwrap();
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(3)
        .unwrap();
    file.write_all(b"b").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "012b");
}

#[test]
fn opening_with_truncate_empties() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    fs::write(&path, pattern(1, 100_000)).unwrap();
    let reader = File::open(&path).unwrap();
    let file = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    assert_eq!(reader.read_at(&mut [0; 10], 0).unwrap(), 0);
    file.write_all_at(b"end", 50_000).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert!(
        bytes[..50_000].iter().all(|byte| *byte == 0),
        "old content came back"
    );
}

#[test]
fn large_and_odd_writes_read_back() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    let data = pattern(7, 5_000_001);
    fs::write(&path, &data).unwrap();
    assert!(fs::read(&path).unwrap() == data);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(&pattern(8, 4097), 4095).unwrap();
    file.sync_all().unwrap();
    let mut expected = data;
    expected[4095..4095 + 4097].copy_from_slice(&pattern(8, 4097));
    assert!(fs::read(&path).unwrap() == expected);
}

#[test]
fn content_is_the_same_after_mounting_again() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("f"), pattern(3, 300_000)).unwrap();
    let checkpoint = rig.checkpoint();
    let layer = rig.store.resolve(&checkpoint).unwrap().layer();
    let view = rig.store.view_at(layer).unwrap();
    let ino = view
        .lookup(branchpoint_fs::id::Ino::ROOT, b"f")
        .unwrap()
        .ino;
    let mut bytes = Vec::new();
    view.read(ino, 0, 400_000, &mut bytes).unwrap();
    assert!(bytes == pattern(3, 300_000));
}

#[test]
fn direct_reads_have_an_odd_tail() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    fs::write(&path, pattern(4, 10_001)).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let mut options = OpenOptions::new();
    let direct = options.read(true).custom_flags(libc::O_DIRECT).open(&path);
    let direct = match direct {
        Ok(file) => file,
        Err(error) => return assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}"),
    };
    // A mapping of a file elsewhere: aligned to pages.
    let room = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(rig.scratch.path().join("room"));
    let room = room.unwrap();
    room.set_len(16_384).unwrap();
    let mapping = SharedMapping::new(std::os::fd::AsFd::as_fd(&room), 16_384).unwrap();
    let count = mapping.fill_from(&direct, 0).unwrap();
    assert_eq!(count, 10_001);
    assert!((0..count).all(|at| mapping.get(at) == pattern(4, 10_001)[at]));
}

#[test]
fn file_beyond_four_gibibytes() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("huge");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    let far = (5_u64 << 30) + 12_345;
    file.write_all_at(b"far away", far).unwrap();
    file.write_all_at(b"start", 0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), far + 8);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
    assert!(blocks < 2048, "{blocks} blocks for a few bytes");
    file.sync_all().unwrap();
    let mut text = [0; 8];
    file.seek(SeekFrom::Start(far)).unwrap();
    file.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"far away");
    file.read_exact_at(&mut text, 1 << 32).unwrap();
    assert_eq!(text, [0; 8]);
    file.set_len(3).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"sta");
}

#[test]
fn many_writers_of_different_blocks() {
    let Some(rig) = Rig::new() else { return };
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(rig.path("f"));
    let file = file.unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8_u8 {
            let file = &file;
            scope.spawn(move || {
                for round in 0..50_u64 {
                    let at = (round * 8 + u64::from(writer)) * 1000;
                    file.write_all_at(&[writer + 1; 1000], at).unwrap();
                }
            });
        }
    });
    let bytes = fs::read(rig.path("f")).unwrap();
    assert_eq!(bytes.len(), 400_000);
    for (index, byte) in bytes.iter().enumerate() {
        assert_eq!(usize::from(*byte), index / 1000 % 8 + 1, "byte {index}");
    }
}
