//! The contract of every guest: what it sets up is still so afterwards.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod place;
mod support;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use branchpoint_forker::Error;
use branchpoint_forker::fault::Faults;
use branchpoint_forker::memory::fill::Twins;
use branchpoint_forker::memory::store::InMemory;
use branchpoint_forker::snapshot::Snapshot;
use place::Box;
use support::{Scene, guests, names, wait_until};

/// A guest in namespaces of its own. Dropping it ends everything in them.
struct Alone(Child);

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a guest in namespaces of its own, as the child of a shell that is pid 1 there.
fn start_alone(guest: &str, scene: &Scene) -> Alone {
    let program = guests().to_str().unwrap();
    let script = format!("{program} --loopback; {program} {guest}; exit $?");
    let child = Command::new("unshare")
        .args([
            "--pid",
            "--mount-proc",
            "--ipc",
            "--net",
            "--fork",
            "--kill-child",
            "--",
        ])
        .args(["sh", "-c", &script])
        .current_dir(scene.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    Alone(child)
}

/// Without a checkpoint, every guest must say "ok": what a guest says else means something.
#[test]
fn every_guest_verifies_itself() {
    let mut failed = Vec::new();
    // A few at a time: some of them compute all the while.
    for group in names().chunks(16) {
        let started: Vec<_> = group
            .iter()
            .map(|guest| {
                let scene = Scene::new();
                let child = start_alone(guest, &scene);
                (guest, scene, child)
            })
            .collect();
        for (guest, scene, mut child) in started {
            wait_until(guest, || scene.has("ready") || scene.verdict().is_some());
            scene.go();
            wait_until(guest, || child.0.try_wait().unwrap().is_some());
            match scene.verdict() {
                Some(verdict) if verdict == "ok" => {}
                other => failed.push((guest.clone(), other)),
            }
        }
    }
    assert_eq!(failed, []);
}

/// A box whose loopback is up.
fn new_box() -> Box {
    let mut place = Box::new();
    place.run(&format!("{} --loopback", guests().display()));
    wait_until("the loopback to be up", || place.processes().is_empty());
    place
}

/// Starts a guest and waits until it has set everything up and waits for something, if it ever does.
fn start(guest: &str, scene: &Scene) -> Box {
    let mut place = new_box();
    let (directory, program) = (scene.path().display(), guests().display());
    place.run(&format!(
        "cd {directory} && exec {program} {guest} 2>errors"
    ));
    wait_until(guest, || scene.has("ready") || scene.verdict().is_some());
    assert_eq!(scene.verdict(), None, "{guest}: before the checkpoint");
    let mut quiet = 0;
    for _ in 0..50 {
        quiet = if place.processes().into_iter().all(waits) {
            quiet + 1
        } else {
            0
        };
        if quiet == 3 {
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    place
}

fn waits(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_none_or(|state| "STZ".contains(state))
}

/// Lets the guests in the boxes go on, and waits until each has said "ok".
fn verify(scene: &Scene, places: &[&Box], who: &str) {
    scene.go();
    wait_until(who, || {
        let failed = scene.verdict().is_some_and(|said| said != "ok");
        failed || places.iter().all(|place| place.processes().is_empty())
    });
    let verdict = scene.verdict();
    for said in ["errors", "layout.before", "layout.after"] {
        let text = fs::read_to_string(scene.path().join(said)).unwrap_or_default();
        if !text.is_empty() {
            println!("{said}:\n{text}");
        }
    }
    assert_eq!(verdict.as_deref(), Some("ok"), "{who}");
    assert_eq!(scene.passed(), places.len(), "{who}");
}

/// How many trees are restored side by side from the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Siblings {
    /// Two: the guest changes no file.
    Two,
    /// One: the siblings of a test share their files, which those of a box do not.
    One,
    /// One, or none: it may be refused.
    None,
}

fn restore(snapshot: &Arc<Snapshot>, store: &Arc<InMemory>, from: &Box, twins: Twins) -> Box {
    let mut place = new_box();
    place.unlinked = from.unlinked.clone();
    let parked = place
        .restore(snapshot, store, twins, Faults::none())
        .unwrap();
    parked.wake().unwrap();
    place
}

/// Set up, captured, the original goes on; restored in its place; two restored side by side.
fn contract(guest: &str, siblings: Siblings) {
    let scene = Scene::new();
    let original = start(guest, &scene);
    let store = Arc::new(InMemory::new());
    let taken = match original.checkpoint(&store, Faults::none()) {
        // What cannot be kept is told, and goes on unharmed.
        Err(Error::Refused(report)) if siblings == Siblings::None => {
            assert!(report.refusal().is_some_and(|line| line.way_out.is_some()));
            return verify(&scene, &[&original], &format!("{guest}: refused"));
        }
        taken => taken.unwrap(),
    };
    let kept = scene.keep();
    verify(&scene, &[&original], &format!("{guest}: the original"));

    let image = taken.snapshot.encode().unwrap();
    let snapshot = Arc::new(Snapshot::decode(&image).unwrap());
    let reset = || {
        scene.reset(&kept);
        original.unlinked.reset();
    };
    reset();
    let restored = restore(&snapshot, &store, &original, Twins::None);
    verify(&scene, &[&restored], &format!("{guest}: restored"));
    drop(restored);
    if siblings == Siblings::Two {
        reset();
        let first = restore(&snapshot, &store, &original, Twins::None);
        let second = restore(&snapshot, &store, &original, Twins::None);
        verify(
            &scene,
            &[&first, &second],
            &format!("{guest}: two siblings"),
        );
    }
}

macro_rules! contracts {
    ($siblings:ident: $($guest:ident)*) => {
        $(#[test]
        fn $guest() {
            contract(stringify!($guest), Siblings::$siblings);
        })*
    };
}

contracts! {
    Two:
    memory_private
    memory_guards
    memory_sparse
    memory_advice
    memory_locked
    memory_droppable
    memory_layout
    memory_vdso
    memory_brk
    memory_description
    memory_shared_twice
    memory_shared_between_processes
    memory_memfd_mapped
    memory_memfd_sealed
    memory_sysv
    tree_deep
    tree_zombies
    tree_sessions_and_groups
    tree_adopted_by_subreaper
    tree_death_signal
    tree_stopped_child
    tree_credentials
    place_limits
    place_names_and_scheduling
    place_own_proc_files
    threads_fifty
    threads_waiting_on_each_other
    threads_robust_mutex
    threads_rseq
    registers_vectors
    registers_rounding
    signals_actions
    signals_alternate_stack
    signals_pending
    signals_handler_running
    signals_of_children
    timers_interval
    timers_alarm_comes
    timers_posix
    timers_descriptor
    pipes_with_content
    pipes_between_processes
    descriptors_event
    descriptors_epoll
    descriptors_signal
    descriptors_devices
    terminals_settings_and_bytes
    terminals_foreground_group
    blocked_in_sleep
    blocked_in_sleep_until
    blocked_in_poll
    blocked_in_poll_with_timeout
    blocked_in_select
    blocked_in_epoll_wait
    blocked_in_futex_with_timeout
    blocked_in_futex
    blocked_in_pipe_read
    blocked_in_pipe_write
    blocked_in_wait
    blocked_in_sigwait
    blocked_in_sigsuspend
    blocked_in_pause
    blocked_read_restarted_after_signal
}

contracts! {
    One:
    memory_file_private
    memory_file_shared
    place_working_directory
    files_positions_and_flags
    files_unlinked_and_renamed
    files_directory_position
    files_locks
    pipes_named
    descriptors_inotify
    descriptors_shared_description
    blocked_in_flock
}

contracts! {
    None:
    threads_without_leader
    sockets_unix_pair
    sockets_unix_passed_descriptor
    sockets_tcp_listening
    sockets_tcp_connection
    sockets_udp
    blocked_in_receive
    sockets_unix_listening
    sockets_unix_datagram
    blocked_in_accept
}
