//! Commands, their status, their streams, their users.

use branchpoint_boxes::session::frame::Frame;
use branchpoint_boxes::session::{Kind, Left};

use crate::support::{Bench, Line, can_box, command, finish, until};

#[test]
fn status_and_output_come_back() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    assert_eq!(bench.sh("echo out; echo err >&2; exit 3").0, 3);
    assert_eq!(bench.sh("echo hello"), (0, "hello\n".to_owned()));
    assert_eq!(bench.sh("kill -9 $$").0, 128 + 9);
    assert_eq!(bench.sh("kill -TERM $$").0, 128 + 15);
    let large = bench.sh("head -c 200000 /dev/zero | tr '\\0' x");
    assert_eq!((large.0, large.1.len()), (0, 200_000));
}

#[test]
fn what_cannot_be_run_is_told_apart() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let run = |name: &str| {
        bench
            .open(&[name], Kind::Pipes { input: false })
            .unwrap_err()
    };
    let failure = run("no-such-command");
    assert_eq!(failure.shell_status(), Some(127));
    assert!(failure.to_string().contains("no-such-command"), "{failure}");
    assert_eq!(run("/etc/passwd").shell_status(), Some(126));
    assert_eq!(run("/etc").shell_status(), Some(126));
    assert_eq!(run("").shell_status(), Some(127));
    assert!(bench.sessions.all().is_empty());
    assert_eq!(bench.sh("echo still here").1, "still here\n");
}

#[test]
fn input_reaches_the_command_and_ends() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let session = bench.open(&["cat"], Kind::Pipes { input: true }).unwrap();
    let mut line = Line::attach(&session, true);
    for _ in 0..4 {
        line.say(&Frame::Input(vec![b'a'; 50_000]));
    }
    line.say(&Frame::InputEnd);
    assert_eq!(line.exit(), 0);
    assert_eq!(line.text.len(), 200_000);
    assert_eq!(line.close(), Left::Exited(0));
}

#[test]
fn a_signal_passes_a_command_that_does_not_read() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let session = bench
        .open(
            &["sh", "-c", "echo up; exec sleep 1000"],
            Kind::Pipes { input: true },
        )
        .unwrap();
    let mut line = Line::attach(&session, true);
    line.expect("up");
    for _ in 0..4 {
        line.say(&Frame::Input(vec![b'a'; 60_000]));
    }
    line.say(&Frame::Signal(15));
    assert_eq!(line.exit(), 128 + 15);
    line.close();
}

#[test]
fn streams_are_apart_and_a_dead_line_hangs_up() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let session = bench
        .open(
            &["sh", "-c", "echo o; echo e >&2; exec sleep 1000"],
            Kind::Pipes { input: true },
        )
        .unwrap();
    let mut line = Line::attach(&session, true);
    line.expect("o\n");
    line.close();
    assert!(session.snapshot().pid.is_some());
    session.hang_up();
    assert_eq!(finish(&session).0, 128 + 1);
}

#[test]
fn a_background_process_does_not_hold_up_the_end() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let (status, text) = bench.sh("sleep 1000 & echo done");
    assert_eq!((status, text.as_str()), (0, "done\n"));
    until("the orphan is init's", || {
        let all = bench.instance.processes().unwrap();
        all.len() == 1 && all[0].name == "sleep" && all[0].parent == 1
    });
}

#[test]
fn orphans_are_reaped() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let (status, _) = bench.sh("for i in 1 2 3 4 5 6 7 8; do (true &) ; done; (sleep 0.01 &)");
    assert_eq!(status, 0);
    until("nobody is left, not even a corpse", || {
        bench.instance.processes().unwrap().is_empty()
    });
}

#[test]
fn the_user_and_the_directory_are_as_asked() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let mut asked = command(&["sh", "-c", "id -un; id -gn; pwd; umask; echo $HOME"]);
    asked.user = Some("nobody".to_owned());
    asked.cwd = b"/usr".to_vec();
    let session = bench
        .sessions
        .open(&bench.instance, &asked, Kind::Pipes { input: false })
        .unwrap();
    assert_eq!(
        finish(&session),
        (0, "nobody\nnogroup\n/usr\n0022\n/root\n".to_owned())
    );
    asked.user = Some("nobody-of-that-name".to_owned());
    let failure = bench
        .sessions
        .open(&bench.instance, &asked, Kind::Pipes { input: false })
        .unwrap_err();
    assert!(
        failure.to_string().contains("nobody-of-that-name"),
        "{failure}"
    );
    asked.user = None;
    asked.cwd = b"/no/such/dir".to_vec();
    let failure = bench
        .sessions
        .open(&bench.instance, &asked, Kind::Pipes { input: false })
        .unwrap_err();
    assert_eq!(failure.shell_status(), Some(127));
}
