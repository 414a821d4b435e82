//! Locks of all three kinds, against another process.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use branchpoint_tests::rig::Rig;
use branchpoint_tests::sys::try_lock;

fn probe(kind: &str, path: &Path) -> String {
    let program = env!("CARGO_BIN_EXE_lockprobe");
    let output = Command::new(program).arg(kind).arg(path).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn open(rig: &Rig) -> File {
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(rig.path("f"))
        .unwrap()
}

#[test]
fn flock_is_seen_by_another_process() {
    let Some(rig) = Rig::new() else { return };
    let file = open(&rig);
    file.lock().unwrap();
    assert_eq!(probe("flock", &rig.path("f")), "held");
    file.unlock().unwrap();
    assert_eq!(probe("flock", &rig.path("f")), "free");
    file.lock().unwrap();
    drop(file);
    assert_eq!(probe("flock", &rig.path("f")), "free");
}

#[test]
fn posix_lock_goes_with_the_first_close() {
    let Some(rig) = Rig::new() else { return };
    let file = open(&rig);
    assert!(try_lock(file.as_fd(), libc::F_SETLK).unwrap());
    assert_eq!(probe("posix", &rig.path("f")), "held");
    assert_eq!(probe("ofd", &rig.path("f")), "held");
    drop(open(&rig));
    assert_eq!(probe("posix", &rig.path("f")), "free");
}

#[test]
fn ofd_lock_belongs_to_the_descriptor() {
    let Some(rig) = Rig::new() else { return };
    let (file, other) = (open(&rig), open(&rig));
    assert!(try_lock(file.as_fd(), libc::F_OFD_SETLK).unwrap());
    assert!(!try_lock(other.as_fd(), libc::F_OFD_SETLK).unwrap());
    drop(other);
    assert_eq!(probe("ofd", &rig.path("f")), "held");
    drop(file);
    assert_eq!(probe("ofd", &rig.path("f")), "free");
}
