//! Clients that come together, die, or send what no client sends.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::harness::Bench;

fn fill(bench: &Bench, branch: &str) {
    let dir = bench.dir("content");
    for name in 0..300 {
        fs::write(dir.join(format!("file {name}")), vec![b'x'; 20_000]).unwrap();
    }
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&dir).arg("-cf");
    let archive = bench.path("content.tar");
    assert!(tar.arg(&archive).arg(".").status().unwrap().success());
    bench.run(["import", branch, "content.tar"]).ok();
}

#[test]
fn many_at_once_each_get_their_answer() {
    let bench = Bench::new();
    thread::scope(|scope| {
        for number in 0..8 {
            let bench = &bench;
            scope.spawn(move || {
                let name = format!("branch-{number}");
                let made = bench.run(["branch", "create", &name, "--from", "main", "--json"]);
                assert_eq!(made.ok().json()["id"], name.as_str());
                let label = format!("label {number}");
                let made = bench.run(["checkpoint", &name, "-m", &label, "--json"]);
                assert_eq!(made.ok().json()["branch"], name.as_str());
                bench.run(["rollback", &label, "--branch", &name]).ok();
            });
        }
    });
    assert_eq!(
        bench.run(["branch", "list", "--json"]).ok().lines().len(),
        9
    );
    bench.run(["check"]).ok();
}

#[test]
fn of_two_who_want_the_same_name_one_gets_it() {
    let bench = Bench::new();
    let codes: Vec<i32> = thread::scope(|scope| {
        let create = || {
            bench
                .run(["branch", "create", "same", "--from", "main"])
                .code
        };
        let runs: Vec<_> = (0..6).map(|_| scope.spawn(create)).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1);
    assert_eq!(codes.iter().filter(|code| **code == 1).count(), 5);
}

#[test]
fn a_client_that_is_killed_while_it_is_answered() {
    let bench = Bench::new();
    fill(&bench, "main");
    let pid = bench.daemon_pid();
    let mut client = bench
        .command(["export", "main"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = client.stdout.take().unwrap();
    out.read_exact(&mut [0; 512]).unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    drop(out);
    assert_eq!(bench.daemon_pid(), pid);
    bench.run(["check"]).ok();
}

#[test]
fn a_client_that_is_killed_while_it_sends() {
    let bench = Bench::new();
    fill(&bench, "main");
    bench
        .run(["branch", "create", "half", "--from", "main"])
        .ok();
    bench
        .run(["rollback", "--branch", "half", "none"])
        .refused(1, "'none'");
    let before = bench.run(["export", "half"]).ok().out.len();
    let pid = bench.daemon_pid();
    let mut client = bench
        .command(["import", "half"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut into = client.stdin.take().unwrap();
    let content = fs::read(bench.path("content.tar")).unwrap();
    // More than a pipe holds, so the daemon is in the middle of it.
    into.write_all(&content[..1 << 20]).unwrap();
    client.kill().unwrap();
    client.wait().unwrap();
    drop(into);
    // Waits for the import, which holds the branch.
    bench.run(["checkpoint", "half"]).ok();
    assert_eq!(bench.daemon_pid(), pid);
    assert_eq!(bench.run(["export", "half"]).ok().out.len(), before);
    bench.run(["check"]).ok();
}

#[test]
fn a_message_of_64_mb_is_refused_before_it_is_whole() {
    let bench = Bench::new();
    let pid = bench.daemon_pid();
    let mut stream = UnixStream::connect(bench.store().join("daemon.sock")).unwrap();
    for limit in [UnixStream::set_read_timeout, UnixStream::set_write_timeout] {
        limit(&stream, Some(Duration::from_secs(20))).unwrap();
    }
    let chunk = vec![b'x'; 1 << 20];
    let sent = (0..64).take_while(|_| stream.write_all(&chunk).is_ok());
    assert!(sent.count() < 64, "the daemon took all of it");
    // What it said before it closed may have been lost with what it did not read.
    let mut text = String::new();
    let mut lines = BufReader::new(stream);
    while lines.read_line(&mut text).is_ok_and(|count| count > 0) {}
    assert!(text.is_empty() || text.contains("hello"), "{text}");
    assert_eq!(bench.daemon_pid(), pid);
}
