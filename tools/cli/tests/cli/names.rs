//! Names that nobody should be able to make.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::harness::{Bench, can_mount};

const BAD: [&[u8]; 12] = [
    b"",
    b".",
    b"..",
    b"../main",
    b"a/b",
    b"/",
    b"a\nb",
    b"a\tb",
    b"a\x1b[2Jb",
    b"a~1",
    b"\xff\xfe",
    b"a\xc3(",
];

#[test]
fn a_bad_name_is_refused_whatever_it_is_for() {
    let bench = Bench::new();
    bench.run(["branch", "create", "good"]).ok();
    let before = bench.run(["branch", "list", "--json"]).ok().out;
    for name in BAD {
        let name = OsStr::from_bytes(name);
        let text = OsStr::new;
        for args in [
            vec![
                text("branch"),
                text("create"),
                name,
                text("--from"),
                text("main"),
            ],
            vec![text("branch"), text("rename"), text("good"), name],
            vec![text("branch"), text("delete"), name],
            vec![text("branch"), text("show"), name],
        ] {
            let ran = bench.run(&args);
            assert!(ran.code == 1 || ran.code == 2, "{args:?}: {ran:?}");
            assert!(ran.err.starts_with("error: "), "{args:?}: {ran:?}");
            // A terminal must not obey what a name says.
            assert!(
                !ran.err.contains('\x1b') && !ran.err.contains("a\nb"),
                "{args:?}: {ran:?}"
            );
        }
    }
    assert_eq!(bench.run(["branch", "list", "--json"]).ok().out, before);
}

#[test]
fn a_name_that_is_too_long_is_refused() {
    let bench = Bench::new();
    let long = "x".repeat(100_000);
    let ran = bench.run(["branch", "create", &long]);
    assert_eq!(ran.code, 1, "{}", ran.err.len());
    assert!(ran.err.contains("cannot be a name"), "{}", ran.err.len());
}

#[test]
fn odd_but_good_names_work() {
    let bench = Bench::new();
    for name in ["grün", "a b", "list", "#1", "'quoted'", "$HOME"] {
        let ran = bench.run(["branch", "create", "--from", "main", "--", name]);
        assert_eq!(ran.code, 0, "{name}: {ran:?}");
        let label = format!("of {name}");
        bench.run(["checkpoint", "-m", &label, "--", name]).ok();
        bench.run(["branch", "delete", "--", name]).ok();
    }
}

#[test]
fn a_store_is_found_from_inside_of_a_mount_whatever_it_is_called() {
    if !can_mount() {
        return;
    }
    for name in [
        &b"two words, and a comma"[..],
        b"tab\there",
        b"line\nbreak",
        b"not\xff\xfeunicode",
        b"colon:and%41%",
        b"back\\slash\"quote'",
        b"#hash",
    ] {
        let bench = Bench::named(OsStr::from_bytes(name));
        bench.run(["init"]).ok();
        let mnt = bench.dir("mnt");
        bench.run(["mount", "main", "mnt"]).ok();
        let made = bench.run_in(&mnt, ["checkpoint", "--json"]).ok().json();
        assert_eq!(made["branch"], "main", "{name:?}");
        // A daemon that dies leaves the mount behind; the next one knows it for its own.
        bench.kill_daemon();
        let ran = bench.run(["branch", "list"]).ok();
        assert!(ran.err.contains("its mount at"), "{name:?}: {ran:?}");
        bench.run(["mount", "main", "mnt"]).ok();
        let ran = bench.run_in(&bench.path("mnt"), ["stop", "--json"]);
        assert_eq!(ran.ok().json()["stopped"], true, "{name:?}");
    }
}

#[test]
fn inside_of_a_mount_whose_store_was_moved_nothing_else_is_taken_for_it() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new();
    let mnt = bench.dir("mnt");
    bench.run(["mount", "main", "mnt"]).ok();
    std::fs::rename(bench.store(), bench.path("moved")).unwrap();
    let ran = bench.run_in(&mnt, ["branch", "list"]);
    std::fs::rename(bench.path("moved"), bench.store()).unwrap();
    let message = format!(
        "error: the store of the mount at '{}' is not where it was",
        mnt.display()
    );
    ran.says(
        1,
        &[
            &message,
            "hint: name the store with --store DIR or BRANCHPOINT_STORE",
        ],
    );
}
