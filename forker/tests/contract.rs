//! The contract of every guest: what it sets up is still so afterwards.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::process::{Child, Command, Stdio};

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
