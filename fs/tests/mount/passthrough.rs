//! Read-only mounts of a checkpoint, with and without the kernel's passthrough.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use branchpoint_fs::fuse::{Mount, MountOptions};

use crate::fixture::{Fixture, limited, mounted};

fn fill(base: &Path) {
    fs::write(base.join("plain"), "from the base").unwrap();
    fs::write(base.join("changed"), "from the base").unwrap();
    fs::copy("/bin/true", base.join("program")).unwrap();
}

/// Mounts a checkpoint in which `changed` differs from the base, read-only.
fn read_only(f: &Fixture, options: &MountOptions) -> Mount {
    fs::write(f.path("changed"), "from the layer").unwrap();
    let checkpoint = f.checkpoint();
    let dir = f.temp.path().join("ro");
    fs::create_dir_all(&dir).unwrap();
    Mount::new(f.store.view_at(checkpoint.layer).unwrap(), &dir, options).unwrap()
}

fn check(options: MountOptions) {
    limited(move || {
        let Some(f) = mounted(MountOptions::default(), Some(&fill)) else {
            return;
        };
        let mount = read_only(&f, &options);
        let path = |name: &str| mount.dir().join(name);
        for _ in 0..3 {
            assert_eq!(fs::read_to_string(path("plain")).unwrap(), "from the base");
            assert_eq!(
                fs::read_to_string(path("changed")).unwrap(),
                "from the layer"
            );
        }
        // Several at once, of both kinds.
        let open: Vec<File> = (0..4).map(|_| File::open(path("plain")).unwrap()).collect();
        let other: Vec<File> = (0..4)
            .map(|_| File::open(path("changed")).unwrap())
            .collect();
        let mut buffer = [0; 8];
        for file in open.iter().chain(&other) {
            file.read_exact_at(&mut buffer, 0).unwrap();
            assert_eq!(&buffer, b"from the");
        }
        drop(open);
        assert_eq!(fs::read_to_string(path("plain")).unwrap(), "from the base");
        assert!(
            std::process::Command::new(path("program"))
                .status()
                .unwrap()
                .success()
        );
        let refused = fs::write(path("plain"), "x").unwrap_err();
        assert_eq!(
            refused.raw_os_error(),
            Some(nix::errno::Errno::EROFS as i32)
        );
        assert!(fs::remove_file(path("plain")).is_err());
        drop(other);
        mount.unmount(false).unwrap();
    });
}

#[test]
fn a_checkpoint_is_read_through_the_kernel() {
    check(MountOptions::default());
}

#[test]
fn a_checkpoint_is_read_through_the_daemon() {
    check(MountOptions {
        passthrough: false,
        ..MountOptions::default()
    });
}

#[test]
fn later_changes_do_not_show() {
    limited(|| {
        let Some(f) = mounted(MountOptions::default(), Some(&fill)) else {
            return;
        };
        let mount = read_only(&f, &MountOptions::default());
        fs::write(f.path("changed"), "later").unwrap();
        fs::write(f.path("added"), "later").unwrap();
        let read = fs::read_to_string(mount.dir().join("changed")).unwrap();
        assert_eq!(read, "from the layer");
        assert!(!mount.dir().join("added").exists());
    });
}
