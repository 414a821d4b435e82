//! Programs as people run them: each is checkpointed with state in it, the original goes on and
//! verifies, and what is restored from the image verifies as well.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod place;
mod support;

use std::sync::Arc;

use branchpoint_forker::fault::Faults;
use branchpoint_forker::memory::fill::Twins;
use branchpoint_forker::memory::store::InMemory;
use branchpoint_forker::snapshot::Snapshot;
use place::Box;
use support::{Scene, guests, wait_until};

/// A box with its loopback interface up.
fn connected() -> Box {
    let mut place = Box::new();
    place.run(&format!("{} --loopback", guests().display()));
    wait_until("the loopback interface", || place.processes().is_empty());
    place
}

/// A box in which a program has set everything up.
fn start(program: &str) -> (Scene, Box) {
    let scene = Scene::new();
    let mut place = connected();
    let directory = scene.path().display();
    place.run(&format!("cd {directory} && exec {program} >err.txt 2>&1"));
    wait_until(program, || scene.has("ready") || scene.verdict().is_some());
    (scene, place)
}

fn verify(scene: &Scene, place: &Box, who: &str) {
    scene.go();
    wait_until(who, || {
        scene.verdict().is_some() || place.processes().is_empty()
    });
    assert_eq!(scene.verdict().as_deref(), Some("ok"), "{who}");
}

fn contract(program: &str) {
    let (scene, place) = start(program);
    place.checkpoint(&InMemory::new(), Faults::none()).unwrap();
    verify(&scene, &place, &format!("{program}: the original"));
    drop(place);

    let (scene, place) = start(program);
    let store = Arc::new(InMemory::new());
    let taken = place.checkpoint(&store, Faults::none()).unwrap();
    let unlinked = place.unlinked.clone();
    drop(place);
    let image = taken.snapshot.encode().unwrap();
    let snapshot = Arc::new(Snapshot::decode(&image).unwrap());
    let mut place = connected();
    place.unlinked = unlinked;
    let parked = place
        .restore(&snapshot, &store, Twins::None, Faults::none())
        .unwrap();
    parked.wake().unwrap();
    verify(&scene, &place, &format!("{program}: the restored one"));
}

fn installed(program: &str, question: &str) -> bool {
    let asked = std::process::Command::new(program).arg(question).output();
    let installed = asked.is_ok_and(|asked| asked.status.success());
    if !installed {
        eprintln!("{program} is not installed: skipped");
    }
    installed
}

/// A program of the test's own, if what runs it is installed.
fn with(interpreter: &str, script: &str) {
    if !installed(interpreter, "--version") {
        return;
    }
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");
    contract(&format!("{interpreter} {directory}/{script}"));
}

/// An HTTP server in node, with a connection that is kept open, and timers.
#[test]
fn node_with_a_connection() {
    with("node", "server.js");
}

/// bash under a terminal with a stopped job, and Python with threads that holds the terminal.
#[test]
#[ignore = "slow on a busy machine; run it alone"]
fn shell_with_a_stopped_job() {
    with("python3", "shell.py");
}

/// tmux with two panes.
#[test]
#[ignore = "slow on a busy machine; run it alone"]
fn tmux_with_two_panes() {
    if installed("tmux", "-V") {
        with("python3", "panes.py");
    }
}

/// PostgreSQL with open transactions, through a unix socket and through TCP.
#[test]
#[ignore = "slow on a busy machine; run it alone"]
fn postgres_with_open_transactions() {
    if std::path::Path::new("/usr/lib/postgresql").exists() {
        with("python3", "database.py");
    }
}
