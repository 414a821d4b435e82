//! The program for somebody who is not root, mounting by way of `fusermount3`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use crate::harness::{Bench, can_mount, finish};

/// What a user does in a day. Stops at the first thing that is not as it should be.
const DAY: &str = r#"
set -eu
trap 'cd / && branchpoint stop --force >/dev/null 2>&1' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
says() { # what is said, then the command, which must fail
    wanted=$1; shift
    if said=$("$@" 2>&1); then fail "'$*' worked: $said"; fi
    case $said in *"$wanted"*) ;; *) fail "'$*' said: $said" ;; esac
}
cd "$HOME"
mkdir base m r
echo base >base/f
branchpoint init --base base
[ -d .local/share/branchpoint ] || fail "the default store is elsewhere"
branchpoint mount main m
[ "$(cat m/f)" = base ] || fail "the base is not seen"
echo changed >m/f
mkdir m/d
echo deep >m/d/file
cd m
branchpoint checkpoint -m one
rm -r d
branchpoint rollback one
[ "$(cat d/file)" = deep ] || fail "the rollback did not bring it back"
branchpoint branch create try
branchpoint switch try
cd ..
echo more >m/g
branchpoint merge try --into main
branchpoint mount --read-only one r
[ "$(cat r/d/file)" = deep ] || fail "the checkpoint is not seen"
says "Read-only file system" sh -c 'echo x >r/x'
exec 9<m/f
says "is in use" branchpoint unmount m
exec 9<&-
branchpoint unmount r
branchpoint apply main --yes
[ "$(cat base/f)" = changed ] || fail "the base was not changed"
# A daemon that dies leaves a mount behind, and the next one clears it away.
kill -9 "$(branchpoint stats --json | sed 's/.*"daemon_pid":\([0-9]*\).*/\1/')"
branchpoint branch list 2>&1 | grep -q "its mount at" || fail "the dead mount was not cleared away"
branchpoint mount try m
[ "$(cat m/g)" = more ] || fail "the branch is not what it was"
branchpoint check
branchpoint stop
! grep -q " $HOME/" /proc/mounts || fail "a mount is left"
echo "a whole day"
"#;

/// Runs the day in a mount namespace where anybody may open the device, as on most machines.
const SETTING: &str = r#"
set -eu
mknod "$HOME/fuse" c 10 229
chmod 666 "$HOME/fuse"
mount --bind "$HOME/fuse" /dev/fuse
exec runuser -u nobody -- env HOME="$HOME" PATH="$HOME/bin:$PATH" sh -c "$DAY"
"#;

fn is_setuid(program: &str) -> bool {
    fs::metadata(program).is_ok_and(|meta| meta.permissions().mode() & 0o4000 != 0)
}

#[test]
fn somebody_who_is_not_root_can_do_all_this() {
    if !can_mount() {
        return;
    }
    let lacks = if !nix::unistd::geteuid().is_root() {
        Some("only root can become nobody")
    } else if !is_setuid("/usr/bin/fusermount3") {
        Some("there is no fusermount3 that may mount")
    } else {
        None
    };
    if let Some(lacks) = lacks {
        println!("SKIP another user: {lacks}");
        return;
    }
    let bench = Bench::without_store();
    let home = bench.dir("home");
    let open = |path: &Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    open(&bench.path("."));
    // Where it was built, others may not look.
    let bin = bench.dir("home/bin");
    fs::copy(env!("CARGO_BIN_EXE_branchpoint"), bin.join("branchpoint")).unwrap();
    open(&bin.join("branchpoint"));
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    chown(&home, Some(nobody.uid.as_raw()), Some(nobody.gid.as_raw())).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", SETTING])
        .env("DAY", DAY)
        .env("HOME", &home)
        .env_remove("BRANCHPOINT_STORE")
        .env_remove("XDG_DATA_HOME")
        .current_dir("/");
    let ran = finish(command);
    assert!(
        ran.code == 0 && ran.out.ends_with("a whole day\n"),
        "{ran:#?}"
    );
}
