//! What a box may not do.

use branchpoint_boxes::session::Kind;

use crate::support::{Bench, can_box, finish};

/// Calls each system call by number and prints the errno.
const SCRIPT: &str = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in args])
    print(name, ctypes.get_errno() if r < 0 else 'allowed')
call('mount', 165, 0, 0, 0, 0, 0)
call('umount2', 166, 0, 0)
call('pivot_root', 155, 0, 0)
call('move_mount', 429, 0, 0, 0, 0, 0)
call('open_tree', 428, -100, 0, 1)
call('fsopen', 430, 0, 0)
call('setns', 308, 0, 0)
call('kexec_load', 246, 0, 0, 0, 0)
call('init_module', 175, 0, 0, 0)
call('bpf', 321, 0, 0, 0)
call('perf_event_open', 298, 0, 0, -1, -1, 0)
call('userfaultfd', 323, 1)
call('keyctl', 250, 0, 0, 0, 0, 0)
call('add_key', 248, 0, 0, 0, 0, 0)
call('reboot', 169, 0, 0, 0, 0)
call('syslog', 103, 3, 0, 0)
call('unshare-user', 272, 0x10000000)
call('unshare-time', 272, 0x80)
call('clone-newns', 56, 0x20011, 0, 0, 0, 0)
call('clone3', 435, 0, 0)
call('unshare-files', 272, 0x400)
call('x32-or-absent', 0x40000000 + 165, 0, 0, 0, 0, 0)
";

#[test]
fn what_reaches_the_host_is_refused() {
    if !can_box() || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let bench = Bench::new();
    let session = bench
        .open(&["python3", "-c", SCRIPT], Kind::Pipes { input: false })
        .unwrap();
    let (status, text) = finish(&session);
    assert_eq!(status, 0, "{text}");
    for line in text.lines() {
        let (name, result) = line.split_once(' ').unwrap();
        match name {
            "clone3" => assert_eq!(result, libc::ENOSYS.to_string(), "{line}"),
            "unshare-files" => assert_eq!(result, "allowed"),
            _ => assert_eq!(result, libc::EPERM.to_string(), "{line}"),
        }
    }
    assert_eq!(text.lines().count(), 22);
}

#[test]
fn rights_are_those_of_a_container() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let text = bench
        .sh("grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status")
        .1;
    let kept = format!("{:016x}", branchpoint_boxes::confine::capabilities());
    for (name, value) in [
        ("CapInh", "0000000000000000"),
        ("CapPrm", &kept),
        ("CapEff", &kept),
        ("CapBnd", &kept),
        ("CapAmb", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ] {
        assert!(
            text.contains(&format!("{name}:\t{value}\n")),
            "{name}: {text}"
        );
    }
    let limits = bench.sh("ulimit -Sn; ulimit -Ss; ulimit -Sc").1;
    assert_eq!(limits, "1024\n8192\n0\n");
}

#[test]
fn programs_with_threads_and_children_still_work() {
    if !can_box() {
        return;
    }
    let bench = Bench::new();
    let script = "import threading, subprocess\n\
        ts=[threading.Thread(target=lambda: None) for _ in range(20)]\n\
        [t.start() for t in ts]; [t.join() for t in ts]\n\
        print(subprocess.check_output(['echo','child']).decode().strip())\n";
    let session = bench
        .open(&["python3", "-c", script], Kind::Pipes { input: false })
        .unwrap();
    assert_eq!(finish(&session), (0, "child\n".to_owned()));
}
