//! Boxes, as a user has them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Bench, Ran, finish};
use crate::json::Document;

/// Nothing here takes longer unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns a bench whose store has this machine as its base, or nothing, loudly, where boxes are impossible.
fn bench() -> Option<Bench> {
    let cgroups = std::fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .contains(" - cgroup2 ");
    if !nix::unistd::Uid::effective().is_root() || !cgroups || !crate::harness::can_mount() {
        println!("SKIP boxes: they need the superuser, /dev/fuse and a cgroup v2 hierarchy");
        return None;
    }
    let bench = Bench::without_store();
    bench.run(["init", "--base", "/"]).ok();
    Some(bench)
}

fn exec(bench: &Bench, name: &str, script: &str) -> Ran {
    bench.run(["box", "exec", name, "--", "sh", "-c", script])
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn show(bench: &Bench, name: &str) -> Value {
    bench.run(["box", "show", name, "--json"]).ok().json()
}

#[test]
fn a_box_runs_this_machines_programs_on_a_branch() {
    let Some(bench) = bench() else { return };
    let started = bench
        .run(["box", "start", "--name", "web", "--json"])
        .ok()
        .json();
    assert_eq!(started["id"], "web");
    assert_eq!(started["branch"], "main");
    assert_eq!(started["state"], "running");
    let said = exec(&bench, "web", "hostname; id -u; cat /etc/debian_version");
    let version = std::fs::read_to_string("/etc/debian_version").unwrap();
    assert_eq!(said.ok().out, format!("web\n0\n{version}"));
    assert_eq!(
        exec(&bench, "web", "dpkg -s bash | grep ^Status").ok().out,
        "Status: install ok installed\n"
    );
    // What it writes goes to the branch and nowhere else.
    let marker = format!("/var/tmp/branchpoint-box-{}", std::process::id());
    exec(
        &bench,
        "web",
        &format!("echo written > {marker}; rm -rf /usr/share/doc"),
    )
    .ok();
    assert!(!Path::new(&marker).exists());
    let id = bench.run(["checkpoint", "main", "--json"]).ok().json()["id"].clone();
    let diff = bench.run(["diff", id.as_str().unwrap(), "main"]).ok();
    assert_eq!(diff.out, "");
    // The store itself is not in its base.
    let store = bench.store();
    assert_eq!(
        exec(&bench, "web", &format!("ls -A {}", store.display()))
            .ok()
            .out,
        ""
    );
    bench.run(["box", "stop", "web"]).ok();
    bench.run(["box", "start", "--name", "web"]).ok();
    assert_eq!(
        exec(
            &bench,
            "web",
            &format!("cat {marker}; ls /usr/share/doc 2>&1 | wc -l")
        )
        .ok()
        .out,
        "written\n1\n"
    );
    bench
        .run(["box", "remove", "web"])
        .refused(1, "box 'web' is running");
    bench.run(["box", "remove", "--force", "web"]).ok();
    bench
        .run(["box", "show", "web"])
        .refused(1, "there is no box 'web'");
}

#[test]
fn statuses_streams_and_input_pass_through() {
    let Some(bench) = bench() else { return };
    bench.run(["box", "start", "--name", "a"]).ok();
    let ran = exec(&bench, "a", "echo out; echo err >&2; exit 7");
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (7, "out\n", "err\n")
    );
    assert_eq!(exec(&bench, "a", "kill -KILL $$").code, 128 + 9);
    bench
        .run(["box", "exec", "a", "--", "no-such-thing"])
        .refused(127, "no-such-thing");
    bench
        .run(["box", "exec", "a", "--", "/etc/passwd"])
        .refused(126, "/etc/passwd");
    bench
        .run(["box", "exec", "b", "--", "true"])
        .refused(125, "there is no box 'b'");
    bench
        .run(["box", "exec", "-u", "nobody-here", "a", "--", "true"])
        .refused(125, "nobody-here");
    bench.run(["box", "exec", "a"]).refused(2, "COMMAND");
    let run = |args: &[&str]| bench.run(["box", "exec"].iter().chain(args)).ok().out;
    assert_eq!(run(&["-u", "nobody", "a", "--", "id", "-un"]), "nobody\n");
    assert_eq!(run(&["-w", "/usr", "a", "--", "pwd"]), "/usr\n");
    assert_eq!(
        run(&["-e", "X=a b", "a", "--", "sh", "-c", "echo $X"]),
        "a b\n"
    );
    assert_eq!(
        run(&["a", "--", "printf", "%s|", "", "a b", "*"]),
        "|a b|*|"
    );
    // Input larger than any pipe, and its end.
    let path = bench.path("input");
    std::fs::write(&path, vec![b'x'; 3 << 20]).unwrap();
    let mut command = bench.command(["box", "exec", "-i", "a", "--", "sh", "-c", "cat | wc -c"]);
    command.stdin(std::fs::File::open(&path).unwrap());
    assert_eq!(finish(command).ok().out.trim(), (3 << 20).to_string());
    // Output larger than any buffer arrives whole.
    assert_eq!(
        exec(&bench, "a", "head -c 3000000 /dev/zero")
            .ok()
            .out
            .len(),
        3_000_000
    );
    // Nothing is left of them.
    let shown = show(&bench, "a");
    assert_eq!(shown["process_count"], 0, "{shown}");
    assert_eq!(shown["sessions"].as_array().unwrap().len(), 0, "{shown}");
}

#[test]
fn signals_pass_and_a_client_that_goes_hangs_up() {
    let Some(bench) = bench() else { return };
    bench.run(["box", "start", "--name", "a"]).ok();
    let script = "trap 'echo got; exit 5' TERM; echo up; while :; do sleep 0.01; done";
    let mut child = bench
        .command(["box", "exec", "a", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut up = [0; 3];
    out.read_exact(&mut up).unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(rest, "got\n");
    let mut child = bench
        .command(["box", "exec", "a", "--", "sleep", "1000"])
        .spawn()
        .unwrap();
    until("it runs", || show(&bench, "a")["process_count"] == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    until("it is hung up", || show(&bench, "a")["process_count"] == 0);
}

#[test]
fn sessions_are_left_found_and_logged() {
    let Some(bench) = bench() else { return };
    let script = "echo first line; exec sleep 1000";
    bench
        .run(["box", "start", "--name", "a", "--", "sh", "-c", script])
        .ok();
    until("it has spoken", || {
        bench.run(["box", "logs", "a"]).ok().out == "first line\n"
    });
    let session = bench
        .run([
            "box",
            "exec",
            "-d",
            "-t",
            "a",
            "--json",
            "--",
            "sh",
            "-c",
            "tty; read x; echo [$x]; exit 3",
        ])
        .ok()
        .json();
    assert_eq!(session["id"], "a/2");
    until("it has spoken", || {
        bench
            .run(["box", "logs", "a/2"])
            .ok()
            .out
            .contains("/dev/pts/0")
    });
    let mut child = bench
        .command(["box", "attach", "a/2"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(
        text.contains("/dev/pts/0") && text.contains("[typed]"),
        "{text}"
    );
    let shown = show(&bench, "a");
    assert_eq!(shown["sessions"][1]["status"], 3, "{shown}");
    assert_eq!(shown["processes"][0]["command"], "sleep 1000", "{shown}");
    let human = bench.run(["box", "show", "a"]).ok().out;
    assert!(human.contains("a/2 ended with 3"), "{human}");
    bench
        .run(["box", "attach", "a/9"])
        .refused(125, "no session 9");
    bench
        .run(["box", "logs", "a/x"])
        .refused(2, "not the number");
}

#[test]
fn ports_lead_into_the_box() {
    let Some(bench) = bench() else { return };
    let script = "cd /usr/share && exec python3 -m http.server 80 --bind 127.0.0.1";
    bench
        .run(["box", "start", "--name", "web", "--", "sh", "-c", script])
        .ok();
    let port = bench
        .run(["box", "port", "web", "0:80", "--json"])
        .ok()
        .json();
    let host = port["host"].as_str().unwrap().to_owned();
    assert_eq!(port["box"], 80);
    until("it answers", || {
        let mut text = String::new();
        let Ok(mut stream) = TcpStream::connect(&host) else {
            return false;
        };
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let asked = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
        asked.is_ok() && stream.read_to_string(&mut text).is_ok() && text.contains("200 OK")
    });
    let again = format!("{host}:81");
    bench
        .run(["box", "port", "web", &again])
        .refused(1, "cannot listen");
    let listed = bench.run(["box", "port", "web"]).ok().out;
    assert!(listed.contains(&host), "{listed}");
    let number = host.rsplit(':').next().unwrap();
    bench.run(["box", "port", "web", "--remove", number]).ok();
    assert!(TcpStream::connect(&host).is_err());
    bench
        .run(["box", "port", "web", "--remove", number])
        .refused(1, "no forwarded port");
}

#[test]
fn whoever_is_in_the_way_is_named() {
    let Some(bench) = bench() else { return };
    let dir = bench.dir("mnt");
    bench.run(["mount", "main", dir.to_str().unwrap()]).ok();
    let refused = bench
        .run(["box", "start", "--name", "a"])
        .refused(1, "mounted already");
    assert!(refused.err.contains("--from 'main'"), "{refused:?}");
    bench
        .run(["box", "start", "--from", "main", "--name", "a"])
        .ok();
    bench.run(["unmount", "--all"]).ok();
    bench
        .run(["box", "start", "--name", "a"])
        .refused(1, "there is a box 'a' already");
    bench
        .run(["box", "start", "--branch", "a", "--name", "b"])
        .refused(1, "box 'a' runs on branch 'a'");
    bench
        .run(["mount", "a", dir.to_str().unwrap()])
        .refused(1, "box 'a' runs on branch 'a'");
    bench
        .run(["branch", "delete", "a"])
        .refused(1, "box 'a' runs on branch 'a'");
    bench.run(["checkpoint", "a", "-m", "before"]).ok();
    bench
        .run(["rollback", "before", "--branch", "a"])
        .refused(1, "box 'a' runs on branch 'a'");
    bench
        .run(["box", "start", "--name", "../a", "--branch", "main"])
        .refused(1, "cannot be the name of a box");
    bench
        .run(["box", "start", "--from", "main"])
        .refused(2, "--name");
    bench
        .run(["box", "start", "--branch", "nope"])
        .refused(1, "nope");
    bench
        .run(["box", "start", "--base", "/usr", "--branch", "main"])
        .refused(1, "its base is '/'");
    bench.run(["stop"]).refused(1, "boxes are running: a");
    // A command that cannot run leaves no box and no branch.
    bench
        .run([
            "box",
            "start",
            "--from",
            "main",
            "--name",
            "c",
            "--",
            "no-such-thing",
        ])
        .refused(127, "no-such-thing");
    bench
        .run(["box", "show", "c"])
        .refused(1, "there is no box 'c'");
    bench.run(["branch", "show", "c"]).refused(1, "c");
    let listed = bench.run(["box", "list"]).ok().out;
    assert_eq!(listed.lines().count(), 2, "{listed}");
}

#[test]
fn limits_are_held_or_refused() {
    let Some(bench) = bench() else { return };
    let ran = bench.run(["box", "start", "--name", "a", "--memory", "64M"]);
    if ran.code != 0 {
        ran.refused(1, "cannot be enforced here");
        println!("SKIP limits: no memory controller");
        return;
    }
    assert_ne!(
        exec(&bench, "a", "python3 -c 'bytearray(300 << 20)'").code,
        0
    );
    assert_eq!(exec(&bench, "a", "echo alive").ok().out, "alive\n");
    let shown = bench.run(["box", "show", "a"]).ok().out;
    assert!(shown.contains("memory 64.0 MiB"), "{shown}");
}

/// Returns the directories of cgroups of the store.
fn cgroups(bench: &Bench) -> Vec<std::path::PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(bench.store()).unwrap();
    let name = format!("branchpoint-{:x}-{:x}", found.dev(), found.ino());
    [
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/memory",
    ]
    .iter()
    .map(|root| Path::new(root).join(&name))
    .filter(|dir| dir.exists())
    .collect()
}

fn mounts_of(bench: &Bench) -> usize {
    let store = bench.store().display().to_string();
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter(|line| line.contains(&store)).count()
}

#[test]
fn the_end_of_the_daemon_is_the_end_of_its_boxes() {
    let Some(bench) = bench() else { return };
    let start = ["box", "start", "--name", "a", "--", "sleep", "1000"];
    let init_of = |started: Value| format!("/proc/{}", started["init_pid"]);
    let started = bench.run(start.iter().chain(&["--json"])).code;
    // After the dashes everything is the command's.
    assert_eq!(started, 0);
    let init = init_of(show(&bench, "a"));
    assert!(Path::new(&init).exists());
    bench.run(["stop", "--force"]).ok();
    assert!(!Path::new(&init).exists());
    assert_eq!((cgroups(&bench).len(), mounts_of(&bench)), (0, 0));
    // It is remembered, and runs again; then the daemon is killed.
    assert_eq!(show(&bench, "a")["state"], "stopped");
    bench
        .run(["box", "exec", "a", "--", "true"])
        .refused(125, "is not running");
    bench.run(["box", "start", "--name", "a"]).ok();
    exec(&bench, "a", "echo kept > /srv/kept").ok();
    let init = init_of(show(&bench, "a"));
    let pid = i32::try_from(bench.daemon_pid()).unwrap();
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    until("init ends with the daemon", || !Path::new(&init).exists());
    bench.run(["box", "start", "--name", "a"]).ok();
    assert_eq!(exec(&bench, "a", "cat /srv/kept").ok().out, "kept\n");
    bench.run(["box", "kill", "a"]).ok();
    // The session that all boxes share stays until the daemon ends.
    assert_eq!((cgroups(&bench).len(), mounts_of(&bench)), (0, 1));
    // A signal ends a daemon with running boxes and attached clients.
    bench.run(["box", "start", "--name", "a"]).ok();
    let mut child = bench
        .command(["box", "exec", "a", "--", "sleep", "1000"])
        .spawn()
        .unwrap();
    until("it runs", || show(&bench, "a")["process_count"] == 1);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(bench.daemon_pid()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 9));
    until("nothing is left", || {
        cgroups(&bench).is_empty() && mounts_of(&bench) == 0
    });
}

#[test]
fn a_box_whose_first_process_dies_is_taken_down() {
    let Some(bench) = bench() else { return };
    bench.run(["box", "start", "--name", "a"]).ok();
    let init = show(&bench, "a")["init_pid"].as_i64().unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(init).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    until("it is stopped", || show(&bench, "a")["state"] == "stopped");
    until("nothing is left", || {
        cgroups(&bench).is_empty() && mounts_of(&bench) == 1
    });
    bench.run(["box", "start", "--name", "a"]).ok();
}

#[test]
fn a_missing_store_is_made_on_a_base() {
    let Some(_) = bench() else { return };
    let bench = Bench::without_store();
    bench
        .run(["box", "start", "--base", "/", "--name", "a"])
        .ok();
    assert_eq!(exec(&bench, "a", "echo up").ok().out, "up\n");
}

#[test]
fn every_object_is_as_documented() {
    let Some(bench) = bench() else { return };
    let mut document = Document::read();
    let mut run = |name: &str, args: &[&str]| {
        let ran = bench.run(args).ok();
        let lines = if name == "Leaving" && ran.out.is_empty() {
            ran.err.clone()
        } else {
            ran.out.clone()
        };
        assert!(!lines.is_empty(), "{ran:?}");
        for line in lines.lines() {
            document.check(name, &serde_json::from_str(line).unwrap());
        }
    };
    run(
        "Box",
        &[
            "--json", "box", "start", "--name", "a", "--", "sleep", "1000",
        ],
    );
    run("Box", &["--json", "box", "list"]);
    run("Port", &["--json", "box", "port", "a", "0:80"]);
    run(
        "Leaving",
        &["--json", "box", "exec", "-d", "a", "--", "sleep", "1000"],
    );
    run("Leaving", &["--json", "box", "exec", "a", "--", "true"]);
    run("Box", &["--json", "box", "show", "a"]);
    run("Output", &["--json", "box", "logs", "a/1"]);
    run("Port", &["--json", "box", "port", "a"]);
    run(
        "Instant",
        &["--json", "box", "checkpoint", "a", "-m", "one"],
    );
    run("Checkpoint", &["--json", "checkpoint", "show", "one"]);
    run(
        "Return",
        &["--json", "box", "rollback", "a", "one", "--keep", "left"],
    );
    run("Sibling", &["--json", "box", "fork", "a"]);
    run("Promotion", &["--json", "box", "merge", "a-1"]);
    run("Box", &["--json", "box", "stop", "a", "--timeout", "0"]);
    run("Box", &["--json", "box", "start", "--name", "a"]);
    run("Box", &["--json", "box", "kill", "a"]);
    run("Deletion", &["--json", "box", "remove", "a"]);
}

/// A program that counts in memory and writes the count to a file whenever it is asked to.
const COUNTER: &str = "n=0; while read -r word; do n=$((n + 1)); echo $n > /count; done < /orders";

/// Starts a box whose process counts orders.
fn counting(bench: &Bench) {
    bench.run(["box", "start", "--name", "count"]).ok();
    exec(bench, "count", "mkfifo /orders").ok();
    let hold = "exec 9<>/orders; exec sleep 1000000";
    for script in [hold, COUNTER] {
        bench
            .run(["box", "exec", "-d", "count", "--", "sh", "-c", script])
            .ok();
    }
}

/// Gives an order, and returns the count after it.
fn order(bench: &Bench, name: &str) -> String {
    exec(bench, name, "rm -f /count; echo go > /orders").ok();
    let mut said = String::new();
    until("the count", || {
        said = exec(bench, name, "cat /count 2>/dev/null; true").ok().out;
        said.ends_with('\n')
    });
    said.trim().to_owned()
}

#[test]
fn files_and_processes_go_back_together_and_fork_apart() {
    let Some(bench) = bench() else { return };
    counting(&bench);
    assert_eq!(order(&bench, "count"), "1");
    assert_eq!(order(&bench, "count"), "2");
    let taken = bench
        .run(["box", "checkpoint", "count", "-m", "two", "--json"])
        .ok()
        .json();
    assert!(taken["memory_bytes"].as_u64().unwrap() > 4096, "{taken}");
    assert_eq!(order(&bench, "count"), "3");
    exec(&bench, "count", "rm -rf /etc /orders").ok();

    bench
        .run(["box", "rollback", "count", "two", "--keep", "wrecked"])
        .ok();
    exec(&bench, "count", "test -p /orders && test -e /etc/passwd").ok();
    assert_eq!(exec(&bench, "count", "cat /count").ok().out, "2\n");
    assert_eq!(order(&bench, "count"), "3");
    let kept = bench.run(["diff", "two", "wrecked"]).ok().out;
    assert!(kept.contains("etc"), "{kept}");

    let forked = bench.run(["box", "fork", "two", "-n", "3", "--json"]).ok();
    let names: Vec<String> = forked
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|one| one["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names.len(), 3);
    for (extra, name) in names.iter().enumerate() {
        for _ in 0..extra {
            order(&bench, name);
        }
        assert_eq!(order(&bench, name), (3 + extra).to_string(), "{name}");
    }
    assert_eq!(order(&bench, "count"), "4", "the origin is as it was");

    // The last one takes the origin's place, files and processes.
    exec(&bench, &names[2], "echo winner > /winner").ok();
    bench
        .run(["box", "merge", &names[2], "--into", &names[2]])
        .refused(1, "into itself");
    let conflict = bench.run(["box", "merge", &names[2], "--into", "count"]);
    assert!(
        conflict.err.contains("count"),
        "both wrote it: {conflict:?}"
    );
    assert_eq!(order(&bench, "count"), "5", "and it goes on");
    bench.run(["box", "rollback", "count", "two"]).ok();
    bench
        .run(["box", "merge", &names[2], "--into", "count"])
        .ok();
    assert_eq!(exec(&bench, "count", "cat /winner").ok().out, "winner\n");
    assert_eq!(order(&bench, "count"), "6");
    bench
        .run(["box", "show", &names[2]])
        .refused(1, "there is no box");
    bench.run(["stop", "--force"]).ok();
    bench.run(["check"]).ok();
}

#[test]
fn a_checkpoint_outlives_the_daemon() {
    let Some(bench) = bench() else { return };
    counting(&bench);
    assert_eq!(order(&bench, "count"), "1");
    bench
        .run(["box", "checkpoint", "count", "-m", "one", "--durable"])
        .ok();
    assert_eq!(order(&bench, "count"), "2");
    bench.run(["stop", "--force"]).ok();
    // The box is stopped; going back starts it again, from the store.
    bench.run(["box", "rollback", "count", "one"]).ok();
    assert_eq!(order(&bench, "count"), "2");
    assert_eq!(order(&bench, "count"), "3");
}

#[test]
fn what_cannot_be_done_leaves_the_box_as_it_is() {
    let Some(bench) = bench() else { return };
    counting(&bench);
    assert_eq!(order(&bench, "count"), "1");
    bench.run(["checkpoint", "main", "-m", "files"]).ok();
    for (args, words) in [
        (
            vec!["box", "rollback", "count", "files"],
            "holds files, but no processes",
        ),
        (
            vec!["box", "rollback", "count", "nothing"],
            "there is no checkpoint or branch",
        ),
        (vec!["box", "fork", "nobody"], "there is no box 'nobody'"),
        (
            vec!["box", "checkpoint", "nobody"],
            "there is no box 'nobody'",
        ),
    ] {
        let ran = bench.run(&args);
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.err.contains(words), "{ran:?}");
        assert_eq!(
            bench
                .run(["branch", "list", "--json"])
                .ok()
                .out
                .lines()
                .count(),
            1
        );
    }
    assert_eq!(order(&bench, "count"), "2");
    bench.run(["box", "stop", "count", "--timeout", "0"]).ok();
    let stopped = bench.run(["box", "checkpoint", "count"]);
    assert!(stopped.err.contains("is not running"), "{stopped:?}");
}
