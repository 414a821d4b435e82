//! What checkpoints and rollbacks need of a box: standing still, seeds, adoption, other ends.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::time::Duration;

use branchpoint_boxes::SEED_FD;
use branchpoint_boxes::cgroup::Limits;
use branchpoint_boxes::instance::{Standard, host_pid};
use branchpoint_boxes::session::{Ends, Kind};

use crate::support::{Bench, Line, build, can_box, command, until};

#[test]
fn a_frozen_box_stands_still_even_while_it_forks() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let session =
        bench.shell("i=0; while true; do i=$((i+1)); echo $i > /tmp/count; /bin/true; done");
    let count = bench.root.path().join("tmp/count");
    until("it counts", || count.exists());
    for _ in 0..20 {
        bench.instance.freeze().unwrap();
        let before = (
            bench.instance.processes().unwrap(),
            std::fs::read(&count).unwrap(),
        );
        std::thread::sleep(Duration::from_millis(5));
        let after = (
            bench.instance.processes().unwrap(),
            std::fs::read(&count).unwrap(),
        );
        assert_eq!(before.1, after.1);
        assert_eq!(before.0.len(), after.0.len());
        bench.instance.thaw().unwrap();
        until("it goes on", || std::fs::read(&count).unwrap() != after.1);
    }
    assert_eq!(session.snapshot().status, None);
    // A frozen box can be ended.
    bench.instance.freeze().unwrap();
    drop(bench);
}

#[test]
fn a_seed_waits_with_what_it_was_given() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let given = File::open("/proc/self/status").unwrap();
    let seed = bench.instance.seed(given.as_fd()).unwrap();
    let pid = host_pid(&seed.pidfd).unwrap();
    let open: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(open, [SEED_FD.to_string()]);
    let status = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    until("it waits", || status().contains("State:\tS"));
    let status = status();
    assert!(status.contains("Seccomp:\t0"), "{status}");
    let found = bench.instance.processes().unwrap();
    assert_eq!(
        (found.len(), found[0].pid, found[0].parent),
        (1, seed.pid, 1)
    );
    bench.instance.signal_all(libc::SIGKILL).unwrap();
    until("it is gone", || {
        bench.instance.processes().unwrap().is_empty()
    });
}

#[test]
fn an_adopted_process_is_the_sessions() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    // An orphan that init did not start.
    bench.sh("(sleep 1000 &)");
    until("it is init's", || {
        bench.instance.processes().unwrap().len() == 1
    });
    let pid = bench.instance.processes().unwrap()[0].pid;
    let session = bench.open(&["cat"], Kind::Pipes { input: true }).unwrap();
    let adopted = bench.instance.adopt(session.number(), pid).unwrap();
    assert_eq!(adopted.pid, pid);
    session.connect(adopted, Ends::default()).unwrap();
    session.signal(libc::SIGKILL).ok();
    bench.instance.signal_all(libc::SIGTERM).unwrap();
    until("its end is told", || session.snapshot().status.is_some());
    assert!(bench.instance.adopt(9, 12345).is_err());
}

#[test]
fn a_session_goes_on_in_another_instance() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let terminal = Kind::Terminal {
        rows: 30,
        columns: 90,
    };
    let session = bench.open(&["cat"], terminal).unwrap();
    let mut line = Line::attach(&session, true);
    line.type_in("one\n");
    line.expect("one\r\none\r\n");
    // What a rollback does, with a new command in place of the old one's image.
    let next = build(&bench.root, &bench.sessions, Limits::default()).unwrap();
    let standard = Standard::Terminal {
        rows: 1,
        columns: 1,
    };
    let (process, master) = next
        .run(
            session.number(),
            &command(&["sh", "-c", "stty size; exec cat"]),
            &standard,
        )
        .unwrap();
    let ends = Ends {
        input: master,
        ..Ends::default()
    };
    session.connect(process, ends).unwrap();
    line.type_in("two\n");
    line.expect("two\r\n");
    line.type_in("\x04");
    assert_eq!(line.exit(), 0);
    drop(next);
    line.close();
}

#[test]
fn terminals_can_be_made_by_number() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let fifth = bench.instance.terminal(5).unwrap();
    assert_eq!(bench.sh("ls /dev/pts").1, "5\nptmx\n");
    assert!(bench.instance.terminal(5).is_err());
    let first = bench.instance.terminal(0).unwrap();
    drop((first, fifth));
    assert_eq!(bench.sh("ls /dev/pts").1, "ptmx\n");
}

#[test]
fn events_of_the_end_reach_the_sessions() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let session = bench.shell("sleep 1000");
    bench.instance.kill().unwrap();
    assert_eq!(session.wait(crate::support::LIMIT), Some(128 + 9));
    let failure = bench
        .open(&["true"], Kind::Pipes { input: false })
        .unwrap_err();
    assert!(failure.to_string().contains("ended"), "{failure}");
}
