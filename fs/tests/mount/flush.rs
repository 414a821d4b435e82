//! Everything that programs wrote is in the view after a flush.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use branchpoint_fs::fuse::MountOptions;

use crate::fixture::{Fixture, on_mount};
use crate::sys::Mapping;

/// Runs `test` with the kernel's lists and without.
fn both_ways(test: fn(&Fixture)) {
    for kernel_statistics in [true, false] {
        on_mount(
            MountOptions {
                kernel_statistics,
                ..MountOptions::default()
            },
            test,
        );
    }
}

fn sized(path: &std::path::Path, bytes: u64) -> File {
    let options = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .to_owned();
    let file = options.open(path).expect("create");
    file.set_len(bytes).expect("size");
    file
}

#[test]
fn a_page_dirtied_through_a_mapping_after_close_is_flushed() {
    both_ways(|f| {
        let file = sized(&f.path("a"), 8192);
        let mapping = Mapping::new(&file, 8192);
        drop(file);
        mapping.set(5000, b'x');
        f.mount.flush().unwrap();
        assert_eq!(f.stored("a")[5000], b'x');
        // And once more: the page was made read-only again by the first time.
        mapping.set(5000, b'y');
        f.mount.flush().unwrap();
        assert_eq!(f.stored("a")[5000], b'y');
    });
}

#[test]
fn what_an_open_descriptor_wrote_is_flushed() {
    both_ways(|f| {
        let mut file = sized(&f.path("a"), 0);
        for round in 0..200u32 {
            file.write_all(&round.to_le_bytes()).unwrap();
            f.mount.flush().unwrap();
            let stored = f.stored("a");
            assert_eq!(stored.len(), 4 * (round as usize + 1));
            assert_eq!(stored[stored.len() - 4..], round.to_le_bytes());
        }
    });
}

#[test]
fn many_files_at_once_are_flushed() {
    both_ways(|f| {
        let files: Vec<File> = (0..300)
            .map(|i| sized(&f.path(&format!("f{i}")), 0))
            .collect();
        for (i, file) in files.iter().enumerate() {
            file.write_all_at(&vec![u8::try_from(i % 251).unwrap(); 10_000], 0)
                .unwrap();
        }
        f.mount.flush().unwrap();
        for i in 0..files.len() {
            let expected = vec![u8::try_from(i % 251).unwrap(); 10_000];
            assert_eq!(f.stored(&format!("f{i}")), expected, "file {i}");
        }
    });
}

#[test]
fn an_unlinked_open_file_and_a_subdirectory_are_flushed() {
    both_ways(|f| {
        fs::create_dir(f.path("d")).unwrap();
        let inner = sized(&f.path("d/inner"), 4096);
        let gone = sized(&f.path("gone"), 4096);
        fs::remove_file(f.path("gone")).unwrap();
        inner.write_all_at(b"inner", 0).unwrap();
        gone.write_all_at(b"gone", 0).unwrap();
        f.mount.flush().unwrap();
        let view = f.mount.view();
        let dir = view.lookup(branchpoint_fs::id::Ino::ROOT, b"d").unwrap();
        let mut content = Vec::new();
        let inner_attr = view.lookup(dir.ino, b"inner").unwrap();
        view.read(inner_attr.ino, 0, 5, &mut content).unwrap();
        assert_eq!(content, b"inner");
    });
}

#[test]
fn a_flush_returns_while_programs_write_on_and_on() {
    both_ways(|f| {
        let stop = Arc::new(AtomicBool::new(false));
        let writer = {
            let (stop, file) = (stop.clone(), sized(&f.path("busy"), 0));
            std::thread::spawn(move || {
                let mut offset = 0;
                while !stop.load(Ordering::Relaxed) {
                    file.write_all_at(&[1; 4096], offset % (1 << 20)).unwrap();
                    offset += 4096;
                }
            })
        };
        let quiet = sized(&f.path("quiet"), 4096);
        let mapping = Mapping::new(&quiet, 4096);
        drop(quiet);
        for round in 0..10 {
            mapping.set(0, b'a' + round);
            f.mount.flush().unwrap();
            assert_eq!(f.stored("quiet")[0], b'a' + round);
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
}

#[test]
fn nothing_to_flush_is_cheap() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), b"hello").unwrap();
        f.mount.flush().unwrap();
        let rounds = 200;
        let start = Instant::now();
        for _ in 0..rounds {
            f.mount.flush().unwrap();
        }
        let each = start.elapsed() / rounds;
        println!("a flush of nothing takes {each:?}");
        // Ten times the aim, so that a busy machine does not fail the test.
        assert!(each < Duration::from_millis(1), "{each:?}");
    });
}

#[test]
fn a_flush_of_write_through_mounts_works_too() {
    on_mount(
        MountOptions {
            writeback_cache: false,
            ..MountOptions::default()
        },
        |f| {
            let file = sized(&f.path("a"), 4096);
            let mapping = Mapping::new(&file, 4096);
            drop(file);
            mapping.set(7, b'x');
            f.mount.flush().unwrap();
            assert_eq!(f.stored("a")[7], b'x');
        },
    );
}
