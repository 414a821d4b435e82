//! What a box looks like from inside.

use crate::support::{Bench, can_box};

#[test]
fn names_numbers_and_mounts_are_the_boxes_own() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    assert_eq!(bench.sh("hostname").1, "crate\n");
    assert_eq!(bench.sh("cat /proc/1/comm").1, "branchpoint-box\n");
    // Init, the shell and nobody else.
    assert_eq!(bench.sh("ls -d /proc/[0-9]* | wc -l").1.trim(), "4");
    assert_eq!(
        bench
            .sh("ls /dev")
            .1
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" "),
        "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"
    );
    assert_eq!(
        bench
            .sh("cat /sys/class/net/lo/operstate; ls /sys/class/net")
            .1,
        "unknown\nlo\n"
    );
    assert_eq!(bench.sh("cat /proc/self/cgroup | grep ^0:").1, "0::/tree\n");
    let mounts = bench.sh("cut -d' ' -f5 /proc/self/mountinfo | sort").1;
    for place in ["/", "/proc", "/sys", "/dev", "/dev/pts", "/dev/shm"] {
        assert!(
            mounts.lines().any(|line| line == place),
            "{place}: {mounts}"
        );
    }
    for place in ["/tmp", "/run", "/var"] {
        assert!(
            !mounts.lines().any(|line| line.starts_with(place)),
            "{mounts}"
        );
    }
}

#[test]
fn devices_work() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    assert_eq!(bench.sh("head -c 8 /dev/urandom | wc -c").1.trim(), "8");
    assert_eq!(
        bench
            .sh("echo x > /dev/null && head -c 3 /dev/zero | od -An -tx1")
            .1
            .trim(),
        "00 00 00"
    );
    assert_ne!(bench.sh("echo x > /dev/full").0, 0);
    assert_eq!(
        bench.sh("su nobody -s /bin/sh -c 'echo y > /dev/null'").0,
        0
    );
}

#[test]
fn shared_memory_and_temporary_files_are_in_the_view() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let (status, text) =
        bench.sh("echo shm > /dev/shm/a && echo tmp > /tmp/b && echo run > /run/c");
    assert_eq!(status, 0, "{text}");
    for (path, content) in [
        ("dev/shm/a", "shm\n"),
        ("tmp/b", "tmp\n"),
        ("run/c", "run\n"),
    ] {
        let found = std::fs::read_to_string(bench.root.path().join(path)).unwrap();
        assert_eq!(found, content);
    }
    assert_eq!(bench.sh("stat -c %a /dev/shm").1, "1777\n");
}

#[test]
fn the_host_is_out_of_reach() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    for script in [
        "echo 1 > /proc/sys/kernel/sysrq",
        "echo c > /proc/sysrq-trigger",
        "echo x > /sys/kernel/uevent_helper",
        "touch /dev/new",
        "mknod /tmp/disk b 254 0",
        "cat /proc/1/environ",
        "readlink /proc/1/root",
        "cat /proc/1/fd/2",
        "hostname other",
        "chmod 600 /dev/null",
    ] {
        let (status, text) = bench.sh(script);
        assert_ne!(status, 0, "{script}: {text}");
    }
    assert_eq!(
        bench.sh("cat /proc/kcore 2>/dev/null | wc -c").1.trim(),
        "0"
    );
    // A device node that is in the root already does not work.
    let node = bench.root.path().join("tmp/node");
    let made = std::process::Command::new("mknod")
        .arg(&node)
        .args(["c", "1", "5"])
        .status();
    assert!(made.unwrap().success());
    assert_ne!(bench.sh("head -c 1 /tmp/node").0, 0);
}

#[test]
fn loopback_carries_and_leads_nowhere_else() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let script = "import socket,threading\n\
        s=socket.create_server(('127.0.0.1',8000))\n\
        c=socket.create_connection(('127.0.0.1',8000))\n\
        a,_=s.accept(); c.sendall(b'hi'); print(a.recv(2).decode())\n\
        try: socket.create_connection(('192.0.2.1',80),timeout=5)\n\
        except OSError as e: print(e.errno)\n";
    let session = bench
        .open(
            &["python3", "-c", script],
            branchpoint_boxes::session::Kind::Pipes { input: false },
        )
        .unwrap();
    assert_eq!(
        crate::support::finish(&session),
        (0, "hi\n101\n".to_owned())
    );
}
