//! Nothing stays behind.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use branchpoint_boxes::cgroup::{self, Hierarchies};
use branchpoint_boxes::session::Kind;

use crate::support::{Bench, Root, build, can_box, cgroup_parent, held, until};

/// Set in the processes that these tests start of themselves.
const INSIDE: &str = "BRANCHPOINT_TEST_INSIDE";

/// Returns this program, to run the test `name` alone in a process of its own.
fn myself(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1");
    command
}

/// In a process of its own, because other tests start and stop boxes meanwhile.
#[test]
fn a_hundred_boxes_leave_nothing() {
    if !can_box() {
        return;
    }
    if std::env::var_os(INSIDE).is_none() {
        let status = myself("leftovers::a_hundred_boxes_leave_nothing")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    // The first one makes what all share.
    drop(Bench::new());
    let root = Root::new();
    let before = held();
    for number in 0..100 {
        let sessions = std::sync::Arc::default();
        let instance = build(&root, &sessions, Default::default()).unwrap();
        let script = "sleep 1000 & echo up; exec sleep 1000";
        let command = crate::support::command(&["sh", "-c", script]);
        let kind = Kind::Pipes { input: false };
        let session = sessions.open(&instance, &command, kind).unwrap();
        until("it is up", || !session.kept_output().is_empty());
        if number % 3 == 0 {
            instance.freeze().unwrap();
        }
        drop(instance);
        sessions.clear();
    }
    until("the threads of the last are gone", || held() == before);
}

#[test]
fn a_box_ends_when_its_maker_is_killed() {
    if !can_box() {
        return;
    }
    if std::env::var_os(INSIDE).is_some() {
        let bench = Bench::new();
        let _session = bench.shell("sleep 1000 & exec sleep 1000");
        until("both run", || {
            bench.instance.processes().unwrap().len() == 2
        });
        // The worst moment: nobody can move.
        bench.instance.freeze().unwrap();
        let root = bench.root.path();
        println!(
            "\nbox {} {} {}",
            bench.instance.init_pid(),
            cgroup_parent(),
            root.display()
        );
        loop {
            std::thread::park();
        }
    }
    let mut maker = myself("leftovers::a_box_ends_when_its_maker_is_killed")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(maker.stdout.take().unwrap());
    let line = out
        .lines()
        .map(|line| line.unwrap())
        .find(|line| line.starts_with("box "));
    maker.kill().unwrap();
    maker.wait().unwrap();
    let line = line.expect("the maker fails");
    let mut words = line.split(' ').skip(1);
    let init = PathBuf::from("/proc").join(words.next().unwrap());
    let cgroups = words.next().unwrap();
    until("init ends with its maker", || !init.exists());
    let hierarchies = Hierarchies::find().unwrap();
    let removed = cgroup::clean(&hierarchies, Path::new(cgroups)).unwrap();
    assert_eq!(removed, 3, "the parent, the box, its tree");
    assert_eq!(cgroup::clean(&hierarchies, Path::new(cgroups)).unwrap(), 0);
    let root = PathBuf::from(words.next().unwrap());
    for dir in [root.as_path(), root.parent().unwrap()] {
        drop(Command::new("umount").arg("-l").arg(dir).status());
    }
    std::fs::remove_dir_all(root.parent().unwrap()).unwrap();
}
