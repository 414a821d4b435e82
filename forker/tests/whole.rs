//! Whole trees: each guest is checkpointed; the original goes on and verifies, and what is restored from the
//! image verifies as well. Guests are run by `unshare`, so the tests want root.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod place;
mod support;

use std::sync::Arc;

use branchpoint_forker::fault::Faults;
use branchpoint_forker::memory::fill::Twins;
use branchpoint_forker::memory::store::InMemory;
use branchpoint_forker::snapshot::Snapshot;
use branchpoint_forker::{Error, checkpoint, restore};
use place::Box;
use support::{Scene, guests, wait_until};

/// A box in which a guest has set everything up.
fn start(guest: &str) -> (Scene, Box) {
    let scene = Scene::new();
    let mut place = Box::new();
    let directory = scene.path().display();
    place.run(&format!(
        "cd {directory} && exec {} {guest} >err.txt 2>&1",
        guests().display()
    ));
    wait_until(guest, || scene.has("ready") || scene.verdict().is_some());
    (scene, place)
}

fn verify(scene: &Scene, place: &Box, who: &str) {
    scene.go();
    wait_until(who, || {
        scene.verdict().is_some() || place.processes().is_empty()
    });
    assert_eq!(scene.verdict().as_deref(), Some("ok"), "{who}");
}

fn contract(guest: &str) {
    let (scene, place) = start(guest);
    let store = InMemory::new();
    place.checkpoint(&store, Faults::none()).unwrap();
    verify(&scene, &place, &format!("{guest}: the original"));
    drop(place);

    let (scene, place) = start(guest);
    let store = Arc::new(InMemory::new());
    let taken = place.checkpoint(&store, Faults::none()).unwrap();
    drop(place);
    let image = taken.snapshot.encode().unwrap();
    let snapshot = Arc::new(Snapshot::decode(&image).unwrap());
    let mut place = Box::new();
    let parked = place
        .restore(&snapshot, &store, Twins::None, Faults::none())
        .unwrap();
    parked.wake().unwrap();
    verify(&scene, &place, &format!("{guest}: the restored one"));
}

macro_rules! guests {
    ($($guest:ident),* $(,)?) => { $(
        #[test]
        fn $guest() {
            contract(stringify!($guest));
        }
    )* };
}

guests! {
    counting,
    fifty_threads,
    signal_state,
    timers_running,
    family,
    settings,
    stopped_child,
    in_read,
    in_poll,
    in_poll_with_limit,
    in_select,
    in_epoll_wait,
    in_futex,
    in_futex_with_limit,
    in_wait4,
    in_nanosleep,
    in_clock_nanosleep_absolute,
    in_pause,
    in_sigsuspend,
    in_accept,
}

/// What cannot be kept is refused, and the tree goes on as if nobody had asked.
#[test]
fn a_tree_that_is_refused_goes_on() {
    let (scene, place) = start("threads_without_leader");
    let error = place
        .checkpoint(&InMemory::new(), Faults::none())
        .unwrap_err();
    let Error::Refused(report) = error else {
        panic!("{error}");
    };
    assert!(report.refusal().unwrap().what.contains("first thread"));
    nobody_is_traced(&place, "refused");
    verify(&scene, &place, "the refused one");
}

/// Restores several trees from one image, side by side.
#[test]
fn two_trees_from_one_image() {
    let (scene, place) = start("family");
    let store = Arc::new(InMemory::new());
    let taken = place.checkpoint(&store, Faults::none()).unwrap();
    drop(place);
    let snapshot = Arc::new(taken.snapshot);
    let mut places = [Box::new(), Box::new()];
    let parked = places.each_mut().map(|place| {
        place
            .restore(&snapshot, &store, Twins::Siblings, Faults::none())
            .unwrap()
    });
    assert_eq!(
        parked[0]
            .pids()
            .iter()
            .map(|(inside, _)| inside)
            .collect::<Vec<_>>(),
        parked[1]
            .pids()
            .iter()
            .map(|(inside, _)| inside)
            .collect::<Vec<_>>()
    );
    for parked in parked {
        parked.wake().unwrap();
    }
    scene.go();
    for place in &places {
        wait_until("a sibling", || place.processes().is_empty());
    }
    assert_eq!(scene.verdict().as_deref(), Some("ok"));
}

/// A tree that nobody wakes leaves nothing behind.
#[test]
fn a_parked_tree_is_killed() {
    let (scene, place) = start("fifty_threads");
    let store = Arc::new(InMemory::new());
    let taken = place.checkpoint(&store, Faults::none()).unwrap();
    verify(&scene, &place, "the original");
    let mut place = Box::new();
    let snapshot = Arc::new(taken.snapshot);
    let parked = place
        .restore(&snapshot, &store, Twins::None, Faults::none())
        .unwrap();
    assert_eq!(parked.pids().len(), place.processes().len());
    parked.kill();
    wait_until("a parked tree to be gone", || place.processes().is_empty());
}

/// Whatever step of a checkpoint fails, the tree goes on; whatever step of a restore does, nothing is left.
#[test]
fn every_step_fails_once() {
    let (scene, place) = start("family");
    let store = Arc::new(InMemory::new());
    for step in checkpoint::STEPS {
        let error = place.checkpoint(&store, Faults::at(step)).unwrap_err();
        assert!(
            matches!(error, Error::Fault(failed) if failed == step),
            "{step}: {error}"
        );
        nobody_is_traced(&place, step);
    }
    let taken = place.checkpoint(&store, Faults::none()).unwrap();
    verify(&scene, &place, "the original");
    drop(place);
    let snapshot = Arc::new(taken.snapshot);
    for step in restore::STEPS {
        let mut place = Box::new();
        let result = place.restore(&snapshot, &store, Twins::None, Faults::at(step));
        let error = result.map(drop).unwrap_err();
        assert!(
            matches!(error, Error::Fault(failed) if failed == step),
            "{step}: {error}"
        );
        wait_until(step, || place.processes().is_empty());
    }
}

fn nobody_is_traced(place: &Box, when: &str) {
    for pid in place.processes() {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        assert!(!status.contains("\nState:\tt"), "{when}: {status}");
        assert!(
            !status.contains("\nTracerPid:\t") || status.contains("\nTracerPid:\t0\n"),
            "{when}: {status}"
        );
    }
}

/// Trees that fork and exit while they are being frozen. `BRANCHPOINT_STORM_ROUNDS` sets how often.
#[test]
fn storm() {
    let rounds = std::env::var("BRANCHPOINT_STORM_ROUNDS");
    let rounds: usize = rounds.ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let (scene, place) = start("storm");
    for round in 0..rounds {
        let store = Arc::new(InMemory::new());
        let taken = place.checkpoint(&store, Faults::none());
        let taken = taken.unwrap_or_else(|error| panic!("round {round}: {error}"));
        nobody_is_traced(&place, "storm");
        // To restore each would take long; every tenth must be whole.
        if round % 10 == 0 {
            let mut other = Box::new();
            let snapshot = Arc::new(taken.snapshot);
            let parked = other.restore(&snapshot, &store, Twins::None, Faults::none());
            parked
                .unwrap_or_else(|error| panic!("round {round}: {error}"))
                .kill();
        }
    }
    verify(&scene, &place, "the storm");
}
