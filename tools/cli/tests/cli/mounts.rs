//! Mounts by way of the program.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

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

#[test]
fn a_day_with_a_mounted_branch() {
    let Some((bench, mnt)) = mounted() else {
        return;
    };
    fs::write(mnt.join("file"), "one\n").unwrap();
    // Inside of the mount neither store nor branch has to be named.
    let made = bench
        .run_in(&mnt, ["checkpoint", "-m", "one", "--json"])
        .ok()
        .json();
    assert_eq!(made["branch"], "main");
    fs::write(mnt.join("file"), "two\n").unwrap();
    fs::write(mnt.join("more"), "").unwrap();
    let changes = bench.run_in(&mnt, ["diff", "one", "--json"]).ok().lines();
    let kinds: Vec<_> = changes
        .iter()
        .map(|c| (c["path"].as_str().unwrap(), c["kind"].as_str().unwrap()))
        .collect();
    assert_eq!(kinds, [("file", "modified"), ("more", "added")]);
    let patch = bench.run_in(&mnt, ["diff", "one", "--patch"]).ok().out;
    assert!(patch.contains("-one\n+two\n"), "{patch}");
    let back = bench
        .run_in(&mnt, ["rollback", "one", "--keep", "later", "--json"])
        .ok()
        .json();
    assert_eq!(back["id"], made["id"]);
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "one\n");
    assert!(!mnt.join("more").exists());
    bench.run_in(&mnt, ["switch", "later"]).ok();
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "two\n");
    bench.run_in(&mnt, ["switch", "main"]).ok();
    bench.run(["merge", "later", "--into", "main"]).ok();
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "two\n");
    let checked = bench.run(["check", "--json"]).ok().json();
    assert_eq!(checked["clean"], true, "{checked}");
    bench.run(["branch", "delete", "later"]).ok();
    let freed = bench.run(["gc", "--json"]).ok().json();
    assert!(freed["freed_bytes"].is_u64(), "{freed}");
    bench.run(["check"]).ok();
    bench.run(["unmount", "mnt"]).ok();
    assert!(!mnt.join("file").exists());
    bench
        .run(["unmount", "mnt"])
        .refused(1, "nothing of this store is mounted");
}

#[test]
fn a_branch_is_mounted_once_and_not_deleted_meanwhile() {
    let Some((bench, mnt)) = mounted() else {
        return;
    };
    bench.dir("other");
    bench
        .run(["mount", "main", "other"])
        .refused(1, "is mounted already");
    let ran = bench
        .run(["branch", "delete", "main"])
        .refused(1, "is mounted at");
    assert!(ran.err.contains("branchpoint unmount"), "{ran:?}");
    bench.run(["branch", "rename", "main", "trunk"]).ok();
    fs::write(mnt.join("x"), "x").unwrap();
    let made = bench.run_in(&mnt, ["checkpoint", "--json"]).ok().json();
    assert_eq!(made["branch"], "trunk");
    bench.run(["unmount", "trunk"]).ok();
}

#[test]
fn wrong_mount_points_are_refused() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    bench.dir("full/x");
    bench.dir("mnt");
    fs::write(bench.path("file"), "").unwrap();
    bench
        .run(["mount", "main", "none"])
        .refused(1, "No such file");
    bench
        .run(["mount", "main", "file"])
        .refused(1, "not a directory");
    bench.run(["mount", "main", "full"]).refused(1, "not empty");
    bench
        .run(["mount", "main", "store"])
        .refused(1, "lies in the store");
    bench
        .run(["mount", "main", "."])
        .refused(1, "would be hidden");
    bench.run(["mount", "none", "mnt"]).refused(1, "'none'");
    bench
        .run(["mount", "main", "mnt", "--fuse", "nonsense=1"])
        .refused(2, "no such switch");
    bench
        .run(["mount", "main", "mnt", "--fuse", "nonsense"])
        .refused(2, "NAME=VALUE");
    bench.run(["mount", "main", "full", "--over"]).ok();
    bench.run(["unmount"]).ok();
    assert!(bench.path("full/x").exists());
}

#[test]
fn a_busy_mount_is_not_removed_unless_by_force() {
    let Some((bench, mnt)) = mounted() else {
        return;
    };
    let mut user = Command::new("sleep")
        .arg("60")
        .current_dir(&mnt)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let pid = user.id().to_string();
    bench.run(["unmount", "mnt"]).refused(1, &pid);
    let ran = bench.run(["stop"]).refused(1, &pid);
    assert!(ran.err.contains("--force"), "{ran:?}");
    fs::write(mnt.join("still"), "here").unwrap();
    bench.run(["unmount", "mnt", "--force"]).ok();
    user.kill().unwrap();
    user.wait().unwrap();
    bench.run(["mount", "main", "mnt"]).ok();
    assert_eq!(fs::read_to_string(mnt.join("still")).unwrap(), "here");
}

#[test]
fn a_checkpoint_is_mounted_read_only() {
    let Some((bench, mnt)) = mounted() else {
        return;
    };
    fs::write(mnt.join("file"), "one").unwrap();
    bench.run(["checkpoint", "-m", "one"]).ok();
    fs::write(mnt.join("file"), "two").unwrap();
    let old = bench.dir("old");
    bench.run(["mount", "one", "old"]).refused(1, "--read-only");
    bench
        .run(["mount", "--read-only", "main", "old"])
        .refused(1, "is a branch");
    bench.run(["mount", "--read-only", "one", "old"]).ok();
    assert_eq!(fs::read_to_string(old.join("file")).unwrap(), "one");
    assert!(fs::write(old.join("file"), "x").is_err());
    bench
        .run(["checkpoint", "delete", "one"])
        .refused(1, "is mounted at");
    bench
        .run_in(&old, ["checkpoint"])
        .refused(1, "read-only mount");
    // A branch can be made from where one stands, even there.
    bench.run_in(&old, ["branch", "create", "from-old"]).ok();
    bench.run(["unmount", "--all"]).ok();
}

#[test]
fn a_mount_of_a_daemon_that_was_killed_is_cleared_away() {
    let Some((bench, mnt)) = mounted() else {
        return;
    };
    fs::write(mnt.join("file"), "kept").unwrap();
    bench.run(["checkpoint", "-m", "kept", "--durable"]).ok();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(bench.daemon_pid()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let ran = bench.run(["branch", "list"]).ok();
    assert!(ran.err.contains("its mount at"), "{ran:?}");
    assert!(fs::read_dir(&mnt).unwrap().next().is_none());
    bench.run(["mount", "main", "mnt"]).ok();
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "kept");
}

#[test]
fn somebody_elses_umount_is_noticed() {
    let Some((bench, mnt)) = mounted() else {
        return;
    };
    let done = Command::new("umount").arg(&mnt).status().unwrap();
    assert!(done.success());
    assert_eq!(
        bench.run(["stats", "--json"]).ok().json()["mounts"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    bench.run(["mount", "main", "mnt"]).ok();
}

#[test]
fn files_go_through_archives() {
    let Some((bench, mnt)) = mounted() else {
        return;
    };
    fs::create_dir(mnt.join("d")).unwrap();
    fs::write(mnt.join("d/file"), "content").unwrap();
    let archive = bench.path("out.tar");
    let status = bench
        .command(["export", "main"])
        .stdout(fs::File::create(&archive).unwrap())
        .status()
        .unwrap();
    assert!(status.success());
    bench
        .run(["import", "main", "out.tar"])
        .refused(1, "is mounted at");
    bench.run(["branch", "create", "copy"]).ok();
    bench.run(["unmount", "mnt"]).ok();
    bench.run(["import", "copy", "out.tar"]).ok();
    bench.run(["mount", "copy", "mnt"]).ok();
    assert_eq!(fs::read_to_string(mnt.join("d/file")).unwrap(), "content");
}

#[test]
fn a_base_that_vanishes_is_named_and_nothing_is_lost() {
    if !can_mount() {
        return;
    }
    let bench = Bench::without_store();
    let (base, mnt) = (bench.dir("base"), bench.dir("mnt"));
    fs::write(base.join("below"), "base").unwrap();
    bench.run(["init", "--base", "base"]).ok();
    bench
        .run(["mount", "main", "base"])
        .refused(1, "the base lies in it");
    bench.run(["mount", "main", "mnt"]).ok();
    assert_eq!(fs::read_to_string(mnt.join("below")).unwrap(), "base");
    fs::write(mnt.join("above"), "branch").unwrap();
    bench.run(["stop"]).ok();
    fs::rename(&base, bench.path("away")).unwrap();
    bench.run(["branch", "list"]).refused(1, "the base");
    fs::rename(bench.path("away"), &base).unwrap();
    bench.run(["mount", "main", "mnt"]).ok();
    assert_eq!(fs::read_to_string(mnt.join("above")).unwrap(), "branch");
}

#[test]
fn a_merge_that_conflicts_changes_nothing_and_says_so() {
    let Some((bench, mnt)) = mounted() else {
        return;
    };
    fs::write(mnt.join("file"), "base\n").unwrap();
    bench
        .run(["branch", "create", "try", "--from", "main"])
        .ok();
    fs::write(mnt.join("file"), "main\n").unwrap();
    bench.run(["switch", "try"]).ok();
    fs::write(mnt.join("file"), "try\n").unwrap();
    let ran = bench
        .run(["merge", "try", "--into", "main", "--json"])
        .refused(3, "file");
    assert_eq!(ran.json()["error"]["kind"], "conflict");
    assert!(
        ran.json()["error"]["conflicts"][0]
            .as_str()
            .unwrap()
            .contains("file")
    );
    bench
        .run(["merge", "try", "--into", "try"])
        .refused(1, "itself");
    bench.run(["switch", "main"]).ok();
    assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "main\n");
}

#[test]
fn a_branch_is_applied_to_its_base() {
    if !can_mount() {
        return;
    }
    let bench = Bench::without_store();
    let (base, mnt) = (bench.dir("base"), bench.dir("mnt"));
    fs::write(base.join("old"), "old").unwrap();
    bench.run(["init", "--base", "base"]).ok();
    bench.run(["mount", "main", "mnt"]).ok();
    fs::write(mnt.join("new"), "new").unwrap();
    fs::remove_file(mnt.join("old")).unwrap();
    bench.run(["apply", "main", "--dry-run"]).ok();
    assert!(base.join("old").exists() && !base.join("new").exists());
    let done = bench.run(["apply", "main", "--json"]).ok().json();
    assert_eq!(
        (&done["written"], &done["removed"]),
        (&1.into(), &1.into()),
        "{done}"
    );
    assert!(!base.join("old").exists());
    assert_eq!(fs::read_to_string(base.join("new")).unwrap(), "new");
}

#[test]
fn a_store_without_base_is_applied_somewhere_or_not_at_all() {
    let bench = Bench::new();
    bench.run(["apply", "main"]).refused(2, "no base");
}
