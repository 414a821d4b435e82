//! A full disk below the store: ENOSPC to the program, no damage, and all is well after freeing.

use std::fs;
use std::io::Write;

use branchpoint_fs::attr::{Caller, FileKind};
use branchpoint_fs::error::ErrorKind;
use branchpoint_fs::fuse::{Mount, MountOptions};
use branchpoint_fs::id::Ino;
use branchpoint_fs::store::Store;
use branchpoint_tests::act::pattern;
use branchpoint_tests::disk::Disk;
use branchpoint_tests::guard::{Guard, Leftover, Watchdog};
use branchpoint_tests::rig::{Scratch, assert_clean, can_mount, new_store};

#[test]
fn view_on_a_full_disk_says_so_and_recovers() {
    let _watchdog = Watchdog::new(300);
    let Some(disk) = Disk::new(192) else { return };
    let dir = disk.dir().join("store");
    let store = new_store(&dir, None);
    let view = store.view("main").unwrap();
    let make = |name: &str| {
        let kind = FileKind::Regular;
        view.mknod(Caller::ROOT, Ino::ROOT, name.as_bytes(), kind, 0o644, 0, 0)
    };
    let kept = make("kept").unwrap().ino;
    view.write(kept, 0, &pattern(1, 500_000), false).unwrap();
    view.fsync(kept, false).unwrap();
    let ballast = disk.fill(8 << 10);
    let data = pattern(2, 1 << 20);
    let file = make("grows").unwrap().ino;
    let mut written = 0;
    let error = loop {
        match view.write(file, written, &data, false) {
            Ok(()) => written += 1 << 20,
            Err(error) => break error,
        }
        assert!(written < 1 << 30, "a gibibyte went on a full disk");
    };
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error:?}");
    let mut bytes = Vec::new();
    view.read(kept, 0, 500_000, &mut bytes).unwrap();
    assert!(
        bytes == pattern(1, 500_000),
        "a full disk changed what was written before"
    );
    drop((view, store));
    fs::remove_file(ballast).unwrap();
    let store = Store::open(&dir).unwrap();
    assert_clean(&store);
    let view = store.view("main").unwrap();
    let kept = view.lookup(Ino::ROOT, b"kept").unwrap().ino;
    let mut bytes = Vec::new();
    view.read(kept, 0, 500_000, &mut bytes).unwrap();
    assert!(bytes == pattern(1, 500_000));
    view.write(kept, 0, b"works again", false).unwrap();
    view.fsync(kept, false).unwrap();
    assert_clean(&store);
}

#[test]
fn program_on_a_full_disk_gets_enospc() {
    if !can_mount("program_on_a_full_disk_gets_enospc") {
        return;
    }
    let _watchdog = Watchdog::new(300);
    let Some(disk) = Disk::new(192) else { return };
    let scratch = Scratch::new();
    let store = new_store(&disk.dir().join("store"), None);
    let dir = scratch.dir("mnt");
    let mount = Mount::new(store.view("main").unwrap(), &dir, &MountOptions::default()).unwrap();
    let guard = Guard::new(Leftover::Mount(dir.clone()));
    fs::write(dir.join("kept"), "kept").unwrap();
    let ballast = disk.fill(8 << 10);
    let mut file = fs::File::create(dir.join("grows")).unwrap();
    let data = pattern(3, 1 << 20);
    let mut failed = None;
    // With writeback, the error of one write may come with a later one, or with the sync.
    for _ in 0..400 {
        if let Err(error) = file.write_all(&data).and_then(|()| file.sync_data()) {
            failed = Some(error);
            break;
        }
    }
    let error = failed.expect("400 MiB went on a disk of 192 MiB");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
    assert_eq!(fs::read_to_string(dir.join("kept")).unwrap(), "kept");
    drop(file);
    fs::remove_file(ballast).unwrap();
    mount.unmount(true).unwrap();
    guard.release();
    drop((mount, store));
    let store = Store::open(&disk.dir().join("store")).unwrap();
    assert_clean(&store);
    let mount = Mount::new(store.view("main").unwrap(), &dir, &MountOptions::default()).unwrap();
    let guard = Guard::new(Leftover::Mount(dir.clone()));
    fs::write(dir.join("after"), "after").unwrap();
    assert_eq!(fs::read_to_string(dir.join("kept")).unwrap(), "kept");
    mount.unmount(true).unwrap();
    guard.release();
    assert_clean(&store);
}
