//! Limits, and what is said where one cannot be held.

use branchpoint_boxes::cgroup::Limits;
use branchpoint_boxes::error::Error;

use crate::support::{Bench, can_box};

/// Returns a box with `limits`, or nothing, loudly, if this machine cannot enforce them.
fn limited(limits: Limits) -> Option<Bench> {
    match Bench::with(limits) {
        Ok(bench) => Some(bench),
        Err(failure @ Error::NoController { .. }) => {
            assert!(failure.way_out().is_some());
            println!("SKIP limits: {failure}");
            None
        }
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn memory_is_limited() {
    if !can_box() {
        return;
    }
    let limits = Limits {
        memory_bytes: Some(64 << 20),
        ..Limits::default()
    };
    let Some(bench) = limited(limits) else { return };
    let (status, text) = bench.sh("python3 -c 'b = bytearray(300 << 20); print(len(b))'");
    assert_ne!(status, 0, "{text}");
    assert_eq!(bench.sh("echo alive").1, "alive\n");
}

#[test]
fn processes_are_limited() {
    if !can_box() {
        return;
    }
    let limits = Limits {
        pids: Some(8),
        ..Limits::default()
    };
    let Some(bench) = limited(limits) else { return };
    let script = "import subprocess, time\n\
        got = []\n\
        try:\n    [got.append(subprocess.Popen(['sleep', '100'])) for _ in range(50)]\n\
        except BlockingIOError: print('refused after', len(got))\n\
        [p.kill() for p in got]\n";
    let session = bench
        .open(
            &["python3", "-c", script],
            branchpoint_boxes::session::Kind::Pipes { input: false },
        )
        .unwrap();
    let (status, text) = crate::support::finish(&session);
    assert_eq!(status, 0, "{text}");
    assert!(text.starts_with("refused after "), "{text}");
}

#[test]
fn processor_time_is_limited() {
    if !can_box() {
        return;
    }
    let limits = Limits {
        cpu_millis: Some(100),
        ..Limits::default()
    };
    let Some(bench) = limited(limits) else { return };
    // A second of work, counted in the processor's time, takes ten by the clock; two are proof enough
    // whatever else the machine does.
    let script = "import time\n\
        a = time.monotonic(); c = time.process_time()\n\
        while time.process_time() - c < 0.5: pass\n\
        print('slow' if time.monotonic() - a > 2 else 'fast')\n";
    let session = bench
        .open(
            &["python3", "-c", script],
            branchpoint_boxes::session::Kind::Pipes { input: false },
        )
        .unwrap();
    assert_eq!(crate::support::finish(&session), (0, "slow\n".to_owned()));
}
