//! A full disk, met by every command that writes.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::Bench;

/// A small file system in memory, mounted in a directory.
struct SmallDisk {
    dir: PathBuf,
}

impl SmallDisk {
    fn mount(dir: PathBuf) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=192m,mode=700", "none"]);
        let done = mount.arg(&dir).status();
        done.is_ok_and(|status| status.success())
            .then_some(Self { dir })
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        let mut file = File::create(self.dir.join("filler")).unwrap();
        for size in [1 << 20, 4096, 1] {
            let chunk = vec![b'x'; size];
            while file.write_all(&chunk).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.dir.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
    }
}

fn archive(path: &Path) {
    let dir = path.with_extension("d");
    fs::create_dir(&dir).unwrap();
    // Random bytes, so that nothing becomes small on the way.
    let mut random = File::open("/dev/urandom").unwrap();
    let mut file = File::create(dir.join("file")).unwrap();
    std::io::copy(&mut std::io::Read::take(&mut random, 16 << 20), &mut file).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&dir).arg("-cf").arg(path).arg(".");
    assert!(tar.status().unwrap().success());
}

#[test]
fn a_full_disk_is_said_and_does_no_harm() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP full disk: only root can mount a small one");
        return;
    }
    let bench = Bench::named("disk/store");
    let Some(disk) = SmallDisk::mount(bench.dir("disk")) else {
        println!("SKIP full disk: tmpfs cannot be mounted here");
        return;
    };
    archive(&bench.path("a.tar"));

    disk.fill();
    let ran = bench.run(["init", "--json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(ran.json()["error"]["kind"], "no_space", "{ran:?}");
    assert!(!bench.store().exists(), "half a store is left");
    disk.free();

    bench.run(["init"]).ok();
    bench.run(["import", "main", "a.tar"]).ok();
    bench.run(["checkpoint", "-m", "good"]).ok();
    bench.run(["branch", "create", "other"]).ok();
    let before = bench.run(["export", "main"]).ok().out.len();
    fill(&bench, &disk);
    for args in [
        vec!["import", "other", "a.tar"],
        vec!["branch", "create", "next", "--from", "main"],
        vec!["checkpoint", "main", "-m", "more"],
        vec!["checkpoint", "main", "-m", "more still", "--durable"],
        vec!["rollback", "good", "--branch", "main"],
        vec!["merge", "other", "--into", "main"],
        vec!["branch", "rename", "other", "another"],
        vec!["checkpoint", "delete", "good"],
        vec!["gc"],
        vec!["branch", "list"],
        vec!["stats"],
        vec!["check"],
        vec!["log"],
    ] {
        let ran = bench.run(args.iter().copied().chain(["--json"]));
        // What is small may still find room in a block that is not full.
        if ran.code != 0 {
            let error = &ran.json()["error"];
            assert_eq!(error["kind"], "no_space", "{args:?}: {ran:?}");
            let hint = error["hint"].as_str().unwrap_or_default();
            assert!(hint.contains("free space"), "{args:?}: {ran:?}");
        }
    }
    disk.free();
    // The daemon notices by itself that there is room again.
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let ran = bench.run(["checkpoint", "main", "-m", "again", "--durable"]);
        if ran.code == 0 {
            break;
        }
        let log = fs::read_to_string(bench.store().join("daemon.log")).unwrap();
        assert!(Instant::now() < deadline, "{ran:?}\n{log}");
        thread::sleep(Duration::from_millis(200));
    }
    bench.run(["check"]).ok();
    assert_eq!(bench.run(["export", "main"]).ok().out.len(), before);
    bench.run(["import", "main", "a.tar"]).ok();
    bench.run(["checkpoint", "main", "--durable"]).ok();
    bench.run(["check"]).ok();
    // On a full disk, too, a daemon can be ended, and what was acknowledged is still there.
    fill(&bench, &disk);
    bench.run(["stop"]).ok();
    disk.free();
    bench.run(["check"]).ok();
    assert_eq!(bench.run(["export", "main"]).ok().out.len(), before);
    bench.run(["stop"]).ok();
}

/// Takes all the space that is left, and what the database's log has taken in advance.
fn fill(bench: &Bench, disk: &SmallDisk) {
    disk.fill();
    let mut imports = 0;
    while bench.run(["import", "other", "a.tar"]).code == 0 {
        imports += 1;
        assert!(imports < 20, "the disk does not get full");
    }
}
