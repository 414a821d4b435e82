//! The daemon: its beginning, its end, and what it makes of bad clients.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::harness::Bench;

fn signal(pid: u64, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(pid, signal).unwrap();
}

#[test]
fn it_starts_by_itself_and_stops_when_told() {
    let bench = Bench::new();
    let pid = bench.daemon_pid();
    assert_eq!(bench.daemon_pid(), pid, "it goes on running");
    let socket = bench.store().join("daemon.sock");
    let meta = std::fs::metadata(&socket).unwrap();
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert_eq!(
        std::fs::metadata(bench.store())
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    let stopped = bench.run(["stop", "--json"]).ok().json();
    assert_eq!(stopped["daemon_pid"], pid);
    assert!(
        !Path::new(&format!("/proc/{pid}/exe")).exists(),
        "stop waits for the end"
    );
    assert!(!socket.exists());
    let again = bench.run(["stop", "--json"]).ok();
    assert_eq!(again.json()["stopped"], false);
    assert!(again.err.contains("no daemon"), "{again:?}");
}

#[test]
fn many_first_commands_end_with_one_daemon() {
    let bench = Bench::new();
    let pids: Vec<u64> = thread::scope(|scope| {
        let runs: Vec<_> = (0..8).map(|_| scope.spawn(|| bench.daemon_pid())).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
}

#[test]
fn after_kill_9_the_next_command_just_works() {
    let bench = Bench::new();
    bench.run(["checkpoint", "-m", "kept", "--durable"]).ok();
    let pid = bench.daemon_pid();
    bench.kill_daemon();
    bench.run(["checkpoint", "show", "kept"]).ok();
    assert_ne!(bench.daemon_pid(), pid);
}

#[test]
fn sigterm_ends_it_in_order() {
    let bench = Bench::new();
    let pid = bench.daemon_pid();
    signal(pid, nix::sys::signal::Signal::SIGTERM);
    bench.wait_until_gone(pid);
    assert!(!bench.store().join("daemon.sock").exists());
    let log = std::fs::read_to_string(bench.store().join("daemon.log")).unwrap();
    assert!(log.trim_end().ends_with("ended"), "{log}");
}

#[test]
fn whatever_lies_at_the_place_of_the_socket_is_replaced() {
    let bench = Bench::new();
    let socket = bench.store().join("daemon.sock");
    drop(UnixListener::bind(&socket).unwrap());
    bench.daemon_pid();
    bench.run(["stop"]).ok();
    std::fs::write(&socket, "not a socket").unwrap();
    bench.daemon_pid();
}

#[test]
fn a_second_daemon_is_told_who_the_first_is() {
    let bench = Bench::new();
    let pid = bench.daemon_pid();
    bench.run(["serve"]).refused(1, &format!("process {pid}"));
    assert_eq!(bench.daemon_pid(), pid);
}

#[test]
fn a_store_at_a_long_path_works() {
    let bench = Bench::without_store();
    let mut dir = bench.path("long");
    while dir.as_os_str().len() < 400 {
        dir.push("a-directory-with-a-rather-long-name");
    }
    std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
    let dir = dir.to_str().unwrap();
    bench.run(["init", dir]).ok();
    let pid = bench.run(["--store", dir, "stats", "--json"]).ok().json()["daemon_pid"].clone();
    assert_eq!(
        bench.run(["--store", dir, "stop", "--json"]).ok().json()["daemon_pid"],
        pid
    );
}

#[test]
fn bad_clients_do_no_harm() {
    let bench = Bench::new();
    let pid = bench.daemon_pid();
    let connect = || UnixStream::connect(bench.store().join("daemon.sock")).unwrap();
    let answer = |bytes: &[u8]| {
        let mut stream = connect();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        // A daemon that has had enough may close before everything is sent.
        drop(stream.write_all(bytes));
        drop(stream.write_all(b"\n"));
        // The greeting, then the answer.
        let mut text = String::new();
        let mut lines = BufReader::new(stream);
        for _ in 0..2 {
            drop(lines.read_line(&mut text));
        }
        text
    };
    for bytes in [
        &b"hello"[..],
        b"{}",
        b"\xff\0\xff",
        b"[[[[",
        b"{\"version\":1,\"request\":{\"x\":1}}",
    ] {
        assert!(answer(bytes).contains("\"failed\""), "{bytes:?}");
    }
    assert!(answer(&[b'['; 200_000]).contains("\"failed\""));
    answer(&vec![b'x'; 8 << 20]);
    assert!(answer(b"{\"version\":99,\"request\":{\"stats\":{}}}").contains("speaks protocol"));
    // Export without a descriptor.
    let export =
        b"{\"version\":1,\"request\":{\"export\":{\"source\":{\"named\":\"main\",\"view\":null}}}}";
    assert!(answer(export).contains("without the file"));
    // Half a request, then gone; and clients that say nothing.
    connect().write_all(b"{\"version\":1,").unwrap();
    let silent: Vec<UnixStream> = (0..50).map(|_| connect()).collect();
    assert_eq!(bench.daemon_pid(), pid);
    // Asks for much and reads nothing.
    let mut deaf = connect();
    for _ in 0..1000 {
        if deaf
            .write_all(b"{\"version\":1,\"request\":{\"log\":{}}}\n")
            .is_err()
        {
            break;
        }
        deaf.set_nonblocking(true).unwrap();
    }
    assert_eq!(bench.daemon_pid(), pid);
    drop(silent);
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let bench = Bench::new();
    std::fs::remove_dir_all(bench.store().join("db")).unwrap();
    let ran = bench.run(["branch", "list"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(
        ran.err.starts_with("error: ") && !ran.err.contains("panicked"),
        "{ran:?}"
    );
}

#[test]
fn it_holds_nothing_of_the_shell_that_started_it() {
    let bench = Bench::new();
    let mut shell = std::process::Command::new("sh");
    // The shell's descriptor 9 is a pipe that ends only when everybody has closed it.
    shell
        .args([
            "-c",
            "\"$0\" stats --json 9>&1",
            env!("CARGO_BIN_EXE_branchpoint"),
        ])
        .env("BRANCHPOINT_STORE", bench.store());
    let ran = crate::harness::finish(shell).ok();
    assert!(ran.json()["daemon_pid"].is_u64());
}
