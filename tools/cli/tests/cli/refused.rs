//! What nobody should do: each is refused with what, why and the way out, and does no harm.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use branchpoint_fs::kv::rocks::RocksKv;
use branchpoint_fs::kv::{Batch, Durability, Kv as _, Table};

use crate::harness::{Bench, can_mount};

/// A store with `main` mounted at `mnt`, or nothing where that is impossible.
fn mounted() -> Option<(Bench, PathBuf)> {
    can_mount().then(|| {
        let bench = Bench::new();
        let dir = bench.dir("mnt");
        bench.run(["mount", "main", "mnt"]).ok();
        (bench, dir)
    })
}

/// Asserts that the store is whole and its only branch is where it was.
#[track_caller]
fn unharmed(bench: &Bench) {
    bench.run(["check"]).ok();
    let names: Vec<String> = bench
        .run(["branch", "list", "--json"])
        .ok()
        .lines()
        .iter()
        .map(|branch| branch["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["main"]);
}

#[test]
fn deleting_a_mounted_branch() {
    let Some((bench, mnt)) = mounted() else {
        return;
    };
    let at = mnt.display();
    bench.run(["branch", "delete", "main"]).says(
        1,
        &[
            &format!("error: branch 'main' is mounted at '{at}'"),
            &format!("hint: unmount it first: branchpoint unmount '{at}'"),
        ],
    );
    fs::write(mnt.join("still"), "works").unwrap();
    unharmed(&bench);
}

#[test]
fn deleting_the_only_branch() {
    let bench = Bench::new();
    bench.run(["branch", "delete", "main"]).says(
        1,
        &["error: branch 'main' is the only one and a store needs one: make another one first"],
    );
    unharmed(&bench);
}

#[test]
fn mounting_a_branch_twice() {
    let Some((bench, mnt)) = mounted() else {
        return;
    };
    bench.dir("other");
    bench.run(["mount", "main", "other"]).says(
        1,
        &[
            &format!(
                "error: branch 'main' is mounted already, at '{}'",
                mnt.display()
            ),
            "hint: use it there, or make a branch of it: branchpoint branch create NAME --from \
             'main'",
        ],
    );
    bench.run(["branch", "create", "next"]).ok();
    bench.run(["mount", "next", "mnt"]).says(
        1,
        &[
            &format!(
                "error: cannot mount at '{}': a branch is mounted there already",
                mnt.display()
            ),
            "hint: unmount that first",
        ],
    );
    bench.run(["branch", "delete", "next"]).ok();
    unharmed(&bench);
}

#[test]
fn unmounting_what_is_in_use() {
    let Some((bench, mnt)) = mounted() else {
        return;
    };
    let at = mnt.display().to_string();
    let mut user = Command::new("sleep")
        .arg("60")
        .current_dir(&mnt)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let users = format!(
        "  1: sleep (pid {}) has its working directory there",
        user.id()
    );
    let ran = bench.run(["unmount", "mnt"]);
    let stop = bench.run(["stop"]);
    user.kill().unwrap();
    user.wait().unwrap();
    let hint = |force: &str| {
        format!(
            "hint: end what uses it, or detach it; what is written there afterwards is lost: \
             {force}"
        )
    };
    ran.says(
        1,
        &[
            &format!("error: '{at}' is in use"),
            &users,
            &hint(&format!("branchpoint unmount --force '{at}'")),
        ],
    );
    stop.says(
        1,
        &[
            &format!("error: '{at}' is in use"),
            &users,
            &hint("branchpoint stop --force"),
        ],
    );
    unharmed(&bench);
    bench.run(["unmount", "mnt"]).ok();
}

#[test]
fn names_that_cannot_be() {
    let bench = Bench::new();
    for (name, reason) in [
        ("a/b", "'a/b' cannot be a name: it contains '/'"),
        ("..", "'..' cannot be a name: it begins with '.'"),
        (
            "a\nb",
            "'a\\nb' cannot be a name: it contains a control character",
        ),
        (
            "",
            "'' cannot be a name: a branch's name has at least one character",
        ),
        (
            "0123456789abcdef",
            "'0123456789abcdef' cannot be a name: it looks like the id of a checkpoint",
        ),
    ] {
        bench.run(["branch", "create", name]).says(
            1,
            &[&format!("error: {reason}"), "hint: choose another name"],
        );
    }
    bench.run(["checkpoint", "-m", "main"]).says(
        1,
        &[
            "error: 'main' cannot be a name: a branch has this name, and is found first",
            "hint: choose another name",
        ],
    );
    let ran = bench.run([
        OsStr::new("branch"),
        OsStr::new("create"),
        std::os::unix::ffi::OsStrExt::from_bytes(b"a\xffb"),
    ]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(
        ran.err.lines().next(),
        Some(
            "error: invalid value 'a\u{fffd}b' for '<NAME>': names, labels and ids are UTF-8, this is not"
        ),
    );
    unharmed(&bench);
}

#[test]
fn a_base_that_vanished() {
    let bench = Bench::without_store();
    let base = bench.dir("base");
    fs::write(base.join("file"), "base").unwrap();
    bench.run(["init", "--base", "base"]).ok();
    fs::rename(&base, bench.path("away")).unwrap();
    bench.run(["branch", "list"]).says(
        1,
        &[
            &format!("error: the base '{}' cannot be used", base.display()),
            "  1: No such file or directory (os error 2)",
            "hint: bring the base back to its place; the store itself is unharmed",
        ],
    );
    fs::rename(bench.path("away"), &base).unwrap();
    unharmed(&bench);
}

#[test]
fn a_base_in_the_store_and_a_store_in_the_base() {
    let bench = Bench::without_store();
    let store = bench.dir("store");
    bench.run(["init", "--base", "store"]).says(
        1,
        &[&format!(
            "error: '{}' cannot be used: it lies in the store itself; a base must be outside, or \
             above it",
            store.display()
        )],
    );
    assert!(fs::read_dir(&store).unwrap().next().is_none());
    // The other way round is how a home directory becomes a base: the store is not seen in it.
    fs::write(bench.path("file"), "base").unwrap();
    bench.run(["init", "--base", "."]).ok();
    if can_mount() {
        let outside = tempfile::tempdir().unwrap();
        let mnt = outside.path().to_str().unwrap();
        bench.run(["mount", "main", mnt]).ok();
        assert_eq!(fs::read(outside.path().join("file")).unwrap(), b"base");
        let inside = outside.path().join("store");
        assert!(fs::read_dir(inside).unwrap().next().is_none());
        bench.run(["unmount", mnt]).ok();
    }
    unharmed(&bench);
}

/// A directory that is bound over itself so that nothing in it can be written.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn new(dir: &Path) -> Option<Self> {
        let mount = |args: &[&str]| {
            let status = Command::new("mount").args(args).arg(dir).status();
            status.is_ok_and(|status| status.success())
        };
        let bound = mount(&["--bind", dir.to_str().unwrap()]).then(|| Self(dir.to_owned()))?;
        mount(&["-o", "remount,ro,bind"]).then_some(bound)
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_store_on_a_read_only_disk_is_read() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP read-only disk: only root can make one");
        return;
    }
    let bench = Bench::new();
    let mnt = bench.dir("mnt");
    bench.run(["checkpoint", "-m", "one"]).ok();
    bench.run(["stop"]).ok();
    let Some(disk) = ReadOnly::new(&bench.store()) else {
        println!("SKIP read-only disk: bind mounts are not allowed here");
        return;
    };
    let shown = bench.run(["stats", "--json"]).ok().json();
    assert_eq!(shown["read_only"], true);
    let read_only = format!("error: the store '{}' is read-only", bench.shown("store"));
    for args in [
        vec!["branch", "create", "next"],
        vec!["checkpoint", "-m", "two"],
        vec!["rollback", "one"],
        vec!["branch", "rename", "main", "other"],
    ] {
        let ran = bench.run(&args);
        assert_eq!(ran.code, 1, "{args:?}: {ran:?}");
        assert_eq!(ran.err.lines().next(), Some(read_only.as_str()), "{args:?}");
    }
    if can_mount() {
        bench.run(["mount", "--read-only", "one", "mnt"]).ok();
        assert!(fs::read_dir(&mnt).unwrap().next().is_none());
    }
    bench.run(["stop"]).ok();
    drop(disk);
    unharmed(&bench);
}

#[test]
fn a_second_daemon() {
    let bench = Bench::new();
    let pid = bench.daemon_pid();
    bench.run(["serve"]).says(
        1,
        &[
            &format!(
                "error: the store '{}' is open in process {pid}",
                bench.shown("store")
            ),
            &format!("hint: end process {pid} first; a daemon ends with `branchpoint stop`"),
        ],
    );
    assert_eq!(bench.daemon_pid(), pid);
}

#[test]
fn a_checkpoint_of_another_store() {
    let (here, there) = (Bench::new(), Bench::new());
    let made = there.run(["checkpoint", "-m", "x", "--json"]).ok().json();
    let id = made["id"].as_str().unwrap();
    here.run(["rollback", id]).says(
        1,
        &[
            &format!("error: there is no checkpoint or branch '{id}' in this store"),
            "hint: `branchpoint log` shows the branches and checkpoints of the store",
        ],
    );
    unharmed(&here);
}

#[test]
fn an_ambiguous_label() {
    let bench = Bench::new();
    let mut ids: Vec<String> = (0..2)
        .map(|_| {
            // Another label in between, so that the second is a checkpoint of its own.
            bench.run(["checkpoint", "-m", "between"]).ok();
            let made = bench.run(["checkpoint", "-m", "twice", "--json"]).ok();
            made.json()["id"].as_str().unwrap().to_owned()
        })
        .collect();
    ids.sort();
    bench.run(["rollback", "twice"]).says(
        1,
        &[
            &format!("error: 'twice' is ambiguous: it fits {}", ids.join(", ")),
            "hint: name one by its id; `branchpoint checkpoint list` shows them all",
        ],
    );
    unharmed(&bench);
}

#[test]
fn a_store_of_a_newer_format() {
    let bench = Bench::new();
    let set_format = |format: u32| {
        let kv = RocksKv::open(&bench.store().join("db"), false).unwrap();
        let mut batch = Batch::new();
        batch.put(Table::Meta, &b"format"[..], format.to_le_bytes().to_vec());
        kv.write(&batch, Durability::Disk).unwrap();
    };
    let known = branchpoint_fs::store::FORMAT_VERSION;
    set_format(known + 7);
    bench.run(["branch", "list"]).says(
        1,
        &[
            &format!(
                "error: the store has format {}, this program knows up to {known}",
                known + 7
            ),
            "hint: use a newer version of branchpoint",
        ],
    );
    set_format(known);
    unharmed(&bench);
}

#[test]
fn a_store_that_was_removed_under_its_daemon() {
    let bench = Bench::new();
    let pid = bench.daemon_pid();
    fs::remove_dir_all(bench.store()).unwrap();
    bench.run(["branch", "list"]).says(
        1,
        &[
            &format!("error: there is no store at '{}'", bench.shown("store")),
            "hint: `branchpoint init` makes one; --store or BRANCHPOINT_STORE names another",
        ],
    );
    // A new one at the same place is a store of its own, whatever the old daemon does.
    bench.run(["init"]).ok();
    assert_ne!(bench.daemon_pid(), pid);
    unharmed(&bench);
    // The old daemon notices that it has nothing left to serve.
    bench.wait_until_gone(pid);
}

#[test]
fn a_socket_that_was_removed_under_its_daemon() {
    let bench = Bench::new();
    let pid = bench.daemon_pid();
    fs::remove_file(bench.store().join("daemon.sock")).unwrap();
    assert_eq!(bench.daemon_pid(), pid, "the same daemon is found again");
}

#[test]
fn a_store_of_somebody_else() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIP another user: only root can be one");
        return;
    }
    let bench = Bench::new();
    bench.daemon_pid();
    fs::set_permissions(bench.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    // Where it was built, nobody else may be able to reach it.
    let program = bench.path("program");
    fs::copy(env!("CARGO_BIN_EXE_branchpoint"), &program).unwrap();
    let mut command = Command::new("runuser");
    command
        .args(["-u", "nobody", "--"])
        .arg(&program)
        .args(["branch", "list"])
        .env("BRANCHPOINT_STORE", bench.store());
    let ran = crate::harness::finish(command);
    if ran.code == 126 || ran.code == 127 {
        println!("SKIP another user: nobody cannot run the program where it is");
        return;
    }
    ran.says(
        1,
        &[
            "error: the store's daemon belongs to another user",
            "hint: work as the user who owns the store",
        ],
    );
    unharmed(&bench);
}
