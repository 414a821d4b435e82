//! After a switch in place the kernel shows the new view, and nothing of the old one.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use branchpoint_fs::fuse::MountOptions;

use crate::fixture::{Fixture, on_mount};
use crate::sys::Mapping;

fn names(f: &Fixture, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(f.path(dir)).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn content_size_and_time_of_closed_files() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "old and long").unwrap();
        let before = fs::metadata(f.path("a")).unwrap();
        let checkpoint = f.checkpoint();
        fs::write(f.path("a"), "new").unwrap();
        assert_eq!(fs::read_to_string(f.path("a")).unwrap(), "new");
        f.rollback(&checkpoint);
        let after = fs::metadata(f.path("a")).unwrap();
        assert_eq!(fs::read_to_string(f.path("a")).unwrap(), "old and long");
        assert_eq!(after.ino(), before.ino());
        assert_eq!(
            (after.mtime(), after.mtime_nsec()),
            (before.mtime(), before.mtime_nsec())
        );
    });
}

#[test]
fn content_size_and_time_through_a_descriptor() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "old and long").unwrap();
        let before = fs::metadata(f.path("a")).unwrap();
        let checkpoint = f.checkpoint();
        let mut open = OpenOptions::new()
            .read(true)
            .write(true)
            .open(f.path("a"))
            .unwrap();
        open.set_len(0).unwrap();
        open.write_all_at(b"new", 0).unwrap();
        f.rollback(&checkpoint);
        let mut text = String::new();
        open.seek(SeekFrom::Start(0)).unwrap();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "old and long");
        let after = open.metadata().unwrap();
        assert_eq!(after.len(), 12);
        assert_eq!(
            (after.mtime(), after.mtime_nsec()),
            (before.mtime(), before.mtime_nsec())
        );
        // And writing goes on, in the new view.
        open.write_all_at(b"OLD", 0).unwrap();
        f.mount.flush().unwrap();
        assert_eq!(f.stored("a"), b"OLD and long");
    });
}

#[test]
fn a_file_that_shrinks_under_a_descriptor() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "short").unwrap();
        let checkpoint = f.checkpoint();
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .open(f.path("a"))
            .unwrap();
        open.write_all_at(&[b'x'; 100_000], 0).unwrap();
        f.rollback(&checkpoint);
        assert_eq!(open.metadata().unwrap().len(), 5);
        let mut buffer = [0; 64];
        assert_eq!(open.read_at(&mut buffer, 0).unwrap(), 5);
        assert_eq!(&buffer[..5], b"short");
    });
}

#[test]
fn pages_of_a_mapping() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), vec![b'o'; 8192]).unwrap();
        let checkpoint = f.checkpoint();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(f.path("a"))
            .unwrap();
        let mapping = Mapping::new(&file, 8192);
        drop(file);
        mapping.set(0, b'n');
        mapping.set(8191, b'n');
        f.rollback(&checkpoint);
        assert_eq!((mapping.get(0), mapping.get(8191)), (b'o', b'o'));
        mapping.set(1, b'z');
        f.mount.flush().unwrap();
        let stored = f.stored("a");
        assert_eq!(&stored[..3], b"ozo");
        assert_eq!(fs::read(f.path("a")).unwrap(), stored);
    });
}

#[test]
fn names_that_came_and_went() {
    on_mount(MountOptions::default(), come_and_go);
}

/// As on a kernel before 6.16.
#[test]
fn names_that_came_and_went_are_expired_one_by_one() {
    let options = MountOptions {
        epochs: false,
        ..MountOptions::default()
    };
    on_mount(options, come_and_go);
}

fn come_and_go(f: &Fixture) {
    fs::create_dir(f.path("d")).unwrap();
    fs::write(f.path("d/stays"), "").unwrap();
    fs::write(f.path("d/goes"), "back").unwrap();
    fs::rename(f.path("d/stays"), f.path("d/kept")).unwrap();
    let checkpoint = f.checkpoint();
    fs::remove_file(f.path("d/goes")).unwrap();
    fs::write(f.path("d/comes"), "new").unwrap();
    fs::rename(f.path("d/kept"), f.path("d/moved")).unwrap();
    // What the kernel now knows: that `goes` does not exist, that `comes` and `moved` do.
    assert!(!f.path("d/goes").exists());
    assert_eq!(names(f, "d"), ["comes", "moved"]);
    assert_eq!(names(f, "d"), ["comes", "moved"]);
    f.rollback(&checkpoint);
    assert_eq!(fs::read_to_string(f.path("d/goes")).unwrap(), "back");
    assert!(!f.path("d/comes").exists());
    assert!(!f.path("d/moved").exists());
    assert!(f.path("d/kept").exists());
    assert_eq!(names(f, "d"), ["goes", "kept"]);
}

#[test]
fn attributes_and_extended_attributes() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "").unwrap();
        fs::set_permissions(f.path("a"), fs::Permissions::from_mode(0o640)).unwrap();
        let checkpoint = f.checkpoint();
        let held = File::open(f.path("a")).unwrap();
        fs::set_permissions(f.path("a"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(held.metadata().unwrap().mode() & 0o7777, 0o777);
        f.rollback(&checkpoint);
        assert_eq!(held.metadata().unwrap().mode() & 0o7777, 0o640);
        assert_eq!(fs::metadata(f.path("a")).unwrap().mode() & 0o7777, 0o640);
    });
}

#[test]
fn a_descriptor_of_a_file_that_is_no_more_is_stale() {
    on_mount(MountOptions::default(), |f| {
        let checkpoint = f.checkpoint();
        fs::write(f.path("a"), "new").unwrap();
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .open(f.path("a"))
            .unwrap();
        let mut buffer = [0; 3];
        open.read_exact_at(&mut buffer, 0).unwrap();
        f.rollback(&checkpoint);
        assert_eq!(
            open.metadata().unwrap_err().raw_os_error(),
            Some(libc_estale())
        );
        assert!(open.read_at(&mut buffer, 0).is_err());
        assert_eq!(
            File::open(f.path("a")).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    });
}

fn libc_estale() -> i32 {
    nix::errno::Errno::ESTALE as i32
}

#[test]
fn a_hard_linked_file_shows_the_new_content_under_both_names() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "old and long").unwrap();
        fs::hard_link(f.path("a"), f.path("b")).unwrap();
        let checkpoint = f.checkpoint();
        fs::write(f.path("a"), "new").unwrap();
        assert_eq!(fs::read_to_string(f.path("b")).unwrap(), "new");
        f.rollback(&checkpoint);
        assert_eq!(fs::read_to_string(f.path("b")).unwrap(), "old and long");
        assert_eq!(fs::read_to_string(f.path("a")).unwrap(), "old and long");
        assert_eq!(fs::metadata(f.path("b")).unwrap().nlink(), 2);
    });
}

#[test]
fn an_untouched_file_keeps_its_pages() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("same"), vec![7; 1 << 20]).unwrap();
        fs::write(f.path("other"), "old").unwrap();
        let checkpoint = f.checkpoint();
        let same = File::open(f.path("same")).unwrap();
        let mapping_len = resident(&f.path("same"));
        fs::write(f.path("other"), "new").unwrap();
        f.rollback(&checkpoint);
        assert_eq!(resident(&f.path("same")), mapping_len);
        drop(same);
    });
}

/// Returns how many pages of the file the kernel holds, as `fincore` says; 0 if there is none.
fn resident(path: &std::path::Path) -> u64 {
    let output = std::process::Command::new("fincore")
        .args(["-n", "-o", "PAGES"])
        .arg(path)
        .output();
    let Ok(output) = output else { return 0 };
    String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap_or(0)
}

#[test]
fn a_rollback_under_load_leaves_kernel_and_view_in_agreement() {
    on_mount(MountOptions::default(), |f| {
        for i in 0..8 {
            fs::write(f.path(&format!("f{i}")), vec![b'0'; 20_000]).unwrap();
        }
        let checkpoint = f.checkpoint();
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..8)
            .map(|i| {
                let open = OpenOptions::new().read(true).write(true).to_owned();
                let file = open.open(f.path(&format!("f{i}"))).unwrap();
                let stop = stop.clone();
                std::thread::spawn(move || {
                    let mapping = Mapping::new(&file, 20_000);
                    let mut step = 0usize;
                    while !stop.load(Ordering::Relaxed) {
                        let value = b'a' + u8::try_from(step % 26).unwrap();
                        if i % 2 == 0 {
                            file.write_all_at(&[value; 100], (step % 190 * 100) as u64)
                                .unwrap();
                        } else {
                            mapping.set(step * 37 % 20_000, value);
                        }
                        step += 1;
                    }
                })
            })
            .collect();
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            f.rollback(&checkpoint);
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().unwrap();
        }
        f.mount.flush().unwrap();
        for i in 0..8 {
            let name = format!("f{i}");
            assert!(
                fs::read(f.path(&name)).unwrap() == f.stored(&name),
                "{name} differs"
            );
        }
    });
}

#[test]
fn a_next_view_that_fails_changes_nothing() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "content").unwrap();
        let failed = f.mount.switch(|| Err(nix::errno::Errno::EIO.into()));
        assert!(failed.is_err());
        fs::write(f.path("b"), "more").unwrap();
        assert_eq!(fs::read_to_string(f.path("a")).unwrap(), "content");
    });
}
