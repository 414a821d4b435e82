//! What programs cost in requests to the daemon. A round trip costs more than anything that is done
//! for it, so each of these numbers is a promise.

use std::fs::{self, File};
use std::path::PathBuf;

use branchpoint_fs::fuse::MountOptions;

use crate::fixture::{Fixture, on_mount};

/// How many files each of these works on.
const FILES: u64 = 100;

/// Requests that may come on top of the ones that are counted, for directories and the like, or
/// because the kernel was short of memory.
const SLACK: u64 = 10;

/// Runs `work` and checks that it costs no more than so many requests of each kind for each file, and
/// none of other kinds. What the kernel merely lets go of does not count: nobody waits for that.
#[track_caller]
fn costs(f: &Fixture, expected: &[(&str, u64)], work: impl FnOnce()) {
    let before = f.mount.requests();
    work();
    for (kind, count) in f.mount.requests() {
        let earlier = before.iter().find(|(other, _)| *other == kind);
        let count = count - earlier.map_or(0, |(_, count)| *count);
        let allowed = expected.iter().find(|(other, _)| *other == kind);
        let most = allowed.map_or(0, |(_, each)| each * FILES) + SLACK;
        let counts = !matches!(kind, "FORGET" | "BATCH_FORGET");
        assert!(!counts || count <= most, "{kind}: {count}, not {most}");
    }
}

fn paths(f: &Fixture) -> Vec<PathBuf> {
    (0..FILES).map(|n| f.path(&format!("d/f{n}"))).collect()
}

#[test]
fn what_programs_do_costs_so_many_requests() {
    on_mount(MountOptions::default(), |f| {
        fs::create_dir(f.path("d")).unwrap();
        let paths = paths(f);
        // The kernel forgets a directory's attributes with each new name, and checks permissions by
        // them.
        let made = [("GETATTR", 1), ("LOOKUP", 1), ("MKNOD", 1)];
        costs(f, &made, || {
            for path in &paths {
                File::create(path).unwrap();
            }
        });
        let written = [("GETXATTR", 1), ("WRITE", 1), ("SETATTR", 1)];
        costs(f, &written, || {
            for path in &paths {
                let mut file = File::options().write(true).open(path).unwrap();
                std::io::Write::write_all(&mut file, &[1; 5000]).unwrap();
            }
        });
        // With each close the kernel forgets how much space the file takes, and asks when it is asked.
        costs(f, &[("GETATTR", 1)], || {
            for path in &paths {
                assert_eq!(fs::metadata(path).unwrap().len(), 5000);
            }
        });
        costs(f, &[("GETATTR", 1)], || {
            for path in &paths {
                assert_eq!(fs::read(path).unwrap().len(), 5000);
            }
        });
        let missing: Vec<PathBuf> = paths.iter().map(|p| p.with_extension("none")).collect();
        for path in &missing {
            assert!(!path.exists());
        }
        costs(f, &[], || {
            for path in &missing {
                assert!(!path.exists());
            }
        });
        // The new change times of files follow in messages that nobody waits for.
        let renamed = [("RENAME", 1), ("LOOKUP", 1), ("GETATTR", 2), ("SETATTR", 1)];
        costs(f, &renamed, || {
            for path in &paths {
                fs::rename(path, path.with_extension("new")).unwrap();
            }
        });
        let removed = [("UNLINK", 1), ("GETATTR", 2), ("SETATTR", 2)];
        costs(f, &removed, || {
            for path in &paths {
                fs::remove_file(path.with_extension("new")).unwrap();
            }
        });
    });
}

#[test]
fn a_listing_brings_the_attributes_along() {
    on_mount(MountOptions::default(), |f| {
        fs::create_dir(f.path("d")).unwrap();
        for path in paths(f) {
            File::create(path).unwrap();
        }
        let checkpoint = f.checkpoint();
        // After a switch the kernel knows no name any more.
        f.rollback(&checkpoint);
        costs(f, &[], || {
            let mut listed = 0;
            for entry in fs::read_dir(f.path("d")).unwrap() {
                assert!(entry.unwrap().metadata().unwrap().is_file());
                listed += 1;
            }
            assert_eq!(listed, FILES);
        });
    });
}
