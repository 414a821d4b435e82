//! Time stamps.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use branchpoint_tests::rig::Rig;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;

fn set(path: &Path, atime: TimeSpec, mtime: TimeSpec) {
    utimensat(
        AT_FDCWD,
        path,
        &atime,
        &mtime,
        UtimensatFlags::NoFollowSymlink,
    )
    .unwrap();
}

fn mtime(path: &Path) -> (i64, i64) {
    let meta = path.symlink_metadata().unwrap();
    (meta.mtime(), meta.mtime_nsec())
}

fn atime(path: &Path) -> (i64, i64) {
    let meta = path.symlink_metadata().unwrap();
    (meta.atime(), meta.atime_nsec())
}

fn ctime(path: &Path) -> (i64, i64) {
    let meta = path.symlink_metadata().unwrap();
    (meta.ctime(), meta.ctime_nsec())
}

#[test]
fn nanoseconds_and_far_years_are_kept() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    File::create(&path).unwrap();
    for secs in [0, 1, 2_000_000_000, 4_300_000_000, 15_000_000_000] {
        set(
            &path,
            TimeSpec::new(secs, 1),
            TimeSpec::new(secs, 123_456_789),
        );
        assert_eq!(mtime(&path), (secs, 123_456_789));
        assert_eq!(atime(&path), (secs, 1));
    }
    rig.checkpoint();
    assert_eq!(mtime(&path), (15_000_000_000, 123_456_789));
}

#[test]
fn whole_seconds_before_1970_are_kept() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    File::create(&path).unwrap();
    set(
        &path,
        TimeSpec::new(-2_000_000_000, 0),
        TimeSpec::new(-1, 0),
    );
    assert_eq!((atime(&path), mtime(&path)), ((-2_000_000_000, 0), (-1, 0)));
}

#[test]
fn omit_and_now() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    File::create(&path).unwrap();
    set(&path, TimeSpec::new(5, 5), TimeSpec::new(6, 6));
    set(&path, TimeSpec::UTIME_OMIT, TimeSpec::new(7, 7));
    assert_eq!((atime(&path), mtime(&path)), ((5, 5), (7, 7)));
    set(&path, TimeSpec::UTIME_NOW, TimeSpec::UTIME_OMIT);
    assert_eq!(mtime(&path), (7, 7));
    assert!(atime(&path).0 > 1_000_000_000);
}

#[test]
fn changes_move_the_right_stamps() {
    let Some(rig) = Rig::new() else { return };
    let (dir, path) = (rig.path("d"), rig.path("d/f"));
    fs::create_dir(&dir).unwrap();
    fs::write(&path, "x").unwrap();
    let pause = || sleep(Duration::from_millis(20));
    pause();
    let (before_dir, before) = (mtime(&dir), mtime(&path));
    fs::write(&path, "y").unwrap();
    assert!(mtime(&path) > before && mtime(&dir) == before_dir);
    pause();
    let (before, before_c) = (mtime(&path), ctime(&path));
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(mtime(&path) == before && ctime(&path) > before_c);
    pause();
    let before_c = ctime(&path);
    fs::hard_link(&path, rig.path("d/g")).unwrap();
    assert!(mtime(&dir) > before_dir && ctime(&path) > before_c && mtime(&path) == before);
    pause();
    let before_dir = mtime(&dir);
    fs::remove_file(rig.path("d/g")).unwrap();
    assert!(mtime(&dir) > before_dir);
}

#[test]
fn reading_moves_the_access_time_as_relatime_says() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    fs::write(&path, "x").unwrap();
    // Older than the last change: the next read moves it, or the mount does without (noatime).
    set(&path, TimeSpec::new(1_000_000_000, 0), TimeSpec::UTIME_OMIT);
    fs::read(&path).unwrap();
    let moved = atime(&path);
    assert!(moved.0 >= 1_000_000_000);
    fs::read(&path).unwrap();
    assert_eq!(atime(&path), moved, "a second read moved it again");
}

#[test]
fn explicit_stamp_survives_closing_after_a_write() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    let file = File::create(&path).unwrap();
    std::io::Write::write_all(&mut &file, b"dirty").unwrap();
    set(&path, TimeSpec::new(1, 1), TimeSpec::new(2, 2));
    drop(file);
    rig.checkpoint();
    assert_eq!(mtime(&path), (2, 2));
}
