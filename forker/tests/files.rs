//! Open files of every kind in whole trees: each guest is checkpointed, the original goes on and
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

/// A box in which a guest has set everything up.
fn start(guest: &str) -> (Scene, Box) {
    let scene = Scene::new();
    let mut place = connected();
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
    place.checkpoint(&InMemory::new(), Faults::none()).unwrap();
    verify(&scene, &place, &format!("{guest}: the original"));
    drop(place);

    let (scene, place) = start(guest);
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
    files_positions_and_flags,
    files_unlinked_and_renamed,
    files_directory_position,
    files_locks,
    pipes_with_content,
    pipes_named,
    pipes_between_processes,
    descriptors_event,
    descriptors_epoll,
    descriptors_signal,
    descriptors_inotify,
    descriptors_devices,
    descriptors_shared_description,
    sockets_unix_pair,
    sockets_unix_listening,
    sockets_unix_datagram,
    sockets_unix_passed_descriptor,
    sockets_tcp_listening,
    sockets_tcp_connection,
    sockets_udp,
    terminals_settings_and_bytes,
    terminals_foreground_group,
}
