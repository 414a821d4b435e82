//! A shell at a terminal, as somebody at a keyboard finds it.

use branchpoint_boxes::session::frame::Frame;
use branchpoint_boxes::session::{Kind, Left};

use crate::support::{Bench, Line, can_box, finish, until};

const TERMINAL: Kind = Kind::Terminal {
    rows: 24,
    columns: 80,
};

/// Starts bash with a prompt that is easy to find.
fn bash(bench: &Bench) -> (std::sync::Arc<branchpoint_boxes::session::Session>, Line) {
    let session = bench
        .open(&["bash", "--norc", "--noprofile"], TERMINAL)
        .unwrap();
    let mut line = Line::attach(&session, true);
    line.type_in("PS1='ready> '\n");
    line.expect("\nready> ");
    (session, line)
}

#[test]
fn jobs_keys_and_sizes_work() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let (session, mut line) = bash(&bench);
    line.type_in("tty; stty size\n");
    line.expect("/dev/pts/0\r\n24 80\r\n");
    line.say(&Frame::Resize {
        rows: 50,
        columns: 132,
    });
    line.expect("ready> ");
    line.type_in("stty size\n");
    line.expect("50 132\r\n");
    // Control-C ends what runs in the foreground and not the shell.
    line.type_in("echo go; sleep 1000\n");
    line.expect("go\r\n");
    until("sleep runs", || {
        bench
            .instance
            .processes()
            .unwrap()
            .iter()
            .any(|one| one.name == "sleep")
    });
    line.type_in("\x03");
    line.expect("ready> ");
    line.type_in("echo status $?\n");
    line.expect("status 130\r\n");
    // Control-Z stops it, and it can be brought back.
    line.type_in("sleep 1000\n");
    until("sleep runs", || {
        bench
            .instance
            .processes()
            .unwrap()
            .iter()
            .any(|one| one.name == "sleep")
    });
    line.type_in("\x1a");
    line.expect("Stopped");
    let state = || {
        let all = bench.instance.processes().unwrap();
        all.iter()
            .find(|one| one.name == "sleep")
            .map(|one| one.state)
    };
    assert_eq!(state(), Some('T'));
    line.expect("ready> ");
    line.type_in("fg\n");
    until("it sleeps on", || state() == Some('S'));
    line.type_in("\x03");
    line.expect("ready> ");
    line.type_in("exit 7\n");
    assert_eq!(line.exit(), 7);
    assert_eq!(line.close(), Left::Exited(7));
    assert_eq!(finish(&session).0, 7);
}

#[test]
fn a_session_can_be_left_and_found_again() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let (session, mut line) = bash(&bench);
    line.type_in("x=kept; echo first\n");
    line.expect("\nfirst\r\n");
    line.say(&Frame::Detach);
    assert_eq!(line.close(), Left::Detached);
    assert!(!session.snapshot().attached);
    let mut second = Line::attach(&session, true);
    // What was on the screen comes again.
    second.expect("\nfirst\r\n");
    second.type_in("echo $x\n");
    second.expect("\nkept\r\n");
    // Whoever comes later takes over.
    let mut third = Line::attach(&session, false);
    loop {
        match second.next() {
            Some(Frame::Replaced) => break,
            Some(_) => {}
            None => panic!("nobody told the one who was replaced"),
        }
    }
    assert_eq!(second.close(), Left::Replaced);
    third.type_in("echo third\n");
    third.expect("\nthird\r\n");
    third.close();
    session.hang_up();
    assert_eq!(finish(&session).0, 128 + 1);
}

#[test]
fn hanging_up_reaches_the_jobs() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let (session, mut line) = bash(&bench);
    line.type_in("sleep 1000 & sleep 1001\n");
    until("both run", || {
        bench.instance.processes().unwrap().len() == 3
    });
    assert_eq!(line.close(), Left::Gone);
    session.hang_up();
    finish(&session);
    until("all are gone", || {
        bench.instance.processes().unwrap().is_empty()
    });
}
