//! The daemon is killed in the middle of a build: what was synced and what was checkpointed is there.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use branchpoint_fs::Error;
use branchpoint_fs::store::Store;
use branchpoint_tests::cli::{Daemon, program};
use branchpoint_tests::guard::{Guard, Leftover, Watchdog};
use branchpoint_tests::rig::{Scratch, assert_clean, can_mount};

/// Compiles small programs over and over.
const BUILD: &str = "i=0; while :; do i=$((i+1)); mkdir -p out/$i; \
    printf 'int f%d(void) { return %d; }\\n' $i $i > out/$i/f.c; \
    cc -c -o out/$i/f.o out/$i/f.c; ar rcs out/all.a out/$i/f.o; done";

#[test]
fn killed_daemon_loses_nothing_that_was_synced() {
    let Some(program) = program() else { return };
    if !can_mount("killed_daemon_loses_nothing_that_was_synced") {
        return;
    }
    let _watchdog = Watchdog::new(300);
    let scratch = Scratch::new();
    let mut daemon = Daemon::start(&program, &scratch.path().join("store"));
    let dir = scratch.dir("mnt");
    let mut synced: Vec<PathBuf> = Vec::new();
    for round in 0..5 {
        daemon.run(&["mount", "main", dir.to_str().unwrap()]);
        let mount = Guard::new(Leftover::Mount(dir.clone()));
        check_synced(&dir, &synced);
        let mut build = Command::new("sh")
            .args(["-c", BUILD])
            .current_dir(&dir)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let _build = Guard::new(Leftover::Process(i32::try_from(build.id()).unwrap()));
        thread::sleep(Duration::from_millis(300 + 173 * round));
        for n in 0..20 {
            let name = PathBuf::from(format!("synced-{round}-{n}"));
            let mut file = fs::File::create(dir.join(&name)).unwrap();
            file.write_all(content(&name).as_bytes()).unwrap();
            file.sync_all().unwrap();
            synced.push(name);
        }
        let checkpoint = daemon.run(&["checkpoint", "-m", &format!("round {round}")]);
        assert!(!checkpoint.is_empty());
        daemon.kill();
        drop(build.kill());
        build.wait().unwrap();
        drop(mount);
        assert_clean(&open_when_free(&scratch.path().join("store")));
        daemon.serve();
    }
    daemon.run(&["mount", "main", dir.to_str().unwrap()]);
    let _mount = Guard::new(Leftover::Mount(dir.clone()));
    check_synced(&dir, &synced);
    daemon.run(&["unmount", dir.to_str().unwrap()]);
}

/// Opens a store whose daemon was just killed: the kernel takes a moment to take it apart, and the
/// lock goes with its last descriptor.
fn open_when_free(path: &Path) -> Arc<Store> {
    for _ in 0..200 {
        match Store::open(path) {
            Err(Error::StoreBusy { .. }) => thread::sleep(Duration::from_millis(50)),
            result => return result.unwrap(),
        }
    }
    panic!("the store is still busy ten seconds after its daemon was killed");
}

fn content(name: &Path) -> String {
    format!("{} ", name.display()).repeat(700)
}

fn check_synced(dir: &Path, synced: &[PathBuf]) {
    for name in synced {
        assert_eq!(
            fs::read_to_string(dir.join(name)).unwrap(),
            content(name),
            "{name:?}"
        );
    }
}
