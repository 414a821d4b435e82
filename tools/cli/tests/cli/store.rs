//! Stores, branches and checkpoints without a mount.

use crate::harness::Bench;

#[test]
fn a_store_is_made_once() {
    let bench = Bench::new();
    bench.run(["init"]).refused(1, "not empty");
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
fn a_missing_store_and_a_missing_base_are_named() {
    let bench = Bench::without_store();
    let ran = bench
        .run(["branch", "list"])
        .refused(1, "there is no store at");
    assert!(ran.err.contains("branchpoint init"), "{ran:?}");
    std::fs::create_dir(bench.store()).unwrap();
    bench
        .run(["branch", "list"])
        .refused(1, "is not a Branchpoint store");
    std::fs::remove_dir_all(bench.store()).unwrap();
    bench
        .run(["init", "--base", "/no/such/base"])
        .refused(1, "/no/such/base");
}

#[test]
fn a_failure_is_an_object_for_programs() {
    let bench = Bench::new();
    let ran = bench
        .run(["branch", "show", "none", "--json"])
        .refused(1, "no branch 'none'");
    let error = &ran.json()["error"];
    assert_eq!(error["kind"], "not_found");
    assert!(error["hint"].as_str().unwrap().contains("branch list"));
}

#[test]
fn branches_come_and_go() {
    let bench = Bench::new();
    let made = bench.run(["branch", "create", "try", "--json"]).ok().json();
    assert_eq!(made["id"], "try");
    assert_eq!(made["version"], 1);
    assert!(made["elapsed_us"].is_u64());
    bench
        .run(["branch", "create", "try", "--from", "main"])
        .refused(1, "exists already");
    bench
        .run(["branch", "rename", "try", "main"])
        .refused(1, "exists already");
    assert_eq!(
        bench
            .run(["branch", "rename", "try", "other", "--json"])
            .ok()
            .json()["id"],
        "other"
    );
    bench
        .run(["branch", "show", "try"])
        .refused(1, "no branch 'try'");
    bench.run(["branch", "delete", "other"]).ok();
    bench
        .run(["branch", "delete", "other"])
        .refused(1, "no branch 'other'");
}

#[test]
fn which_branch_is_asked_when_it_is_not_clear() {
    let bench = Bench::new();
    bench.run(["checkpoint", "-m", "one"]).ok();
    bench.run(["branch", "create", "try"]).ok();
    let ran = bench
        .run(["checkpoint", "-m", "two"])
        .refused(2, "which branch?");
    assert!(ran.err.contains("main, try"), "{ran:?}");
    bench.run(["checkpoint", "main", "-m", "two"]).ok();
}

#[test]
fn checkpoints_are_found_by_id_prefix_label_and_distance() {
    let bench = Bench::new();
    let made = bench
        .run(["checkpoint", "-m", "first one", "--json"])
        .ok()
        .json();
    let id = made["id"].as_str().unwrap().to_owned();
    assert_eq!(id.len(), 16);
    for field in ["elapsed_us", "pause_us", "flush_us", "created_us"] {
        assert!(made[field].is_u64(), "{field} in {made}");
    }
    for name in [&id, &id[..10], "first one", "main~0"] {
        let shown = bench
            .run(["checkpoint", "show", name, "--json"])
            .ok()
            .json();
        assert_eq!(shown["id"], id.as_str(), "{name}");
    }
    assert_eq!(
        bench
            .run(["checkpoint", "list", "--json"])
            .ok()
            .lines()
            .len(),
        1
    );
    bench
        .run(["checkpoint", "show", "main"])
        .refused(1, "is a branch");
    bench
        .run(["checkpoint", "show", "main~9"])
        .refused(1, "main~9");
    bench.run(["rollback", "first one"]).ok();
    bench.run(["rollback", "main"]).refused(1, "is a branch");
}

#[test]
fn a_checkpoint_of_another_store_is_not_found() {
    let (here, there) = (Bench::new(), Bench::new());
    let made = there.run(["checkpoint", "-m", "x", "--json"]).ok().json();
    let before = here.run(["branch", "show", "--json"]).ok().json();
    let id = made["id"].as_str().unwrap();
    here.run(["rollback", id])
        .refused(1, "no checkpoint or branch");
    assert_eq!(here.run(["branch", "show", "--json"]).ok().json(), before);
}

#[test]
fn the_tree_is_drawn_and_listed() {
    let bench = Bench::new();
    bench.run(["checkpoint", "-m", "start here"]).ok();
    bench.run(["branch", "create", "try"]).ok();
    let drawn = bench.run(["log"]).ok().out;
    assert!(drawn.contains("'start here'"), "{drawn}");
    assert!(
        drawn.contains("○ main") && drawn.contains("○ try"),
        "{drawn}"
    );
    let nodes = bench.run(["log", "--json"]).ok().lines();
    assert!(
        nodes
            .iter()
            .any(|node| node["checkpoints"][0]["label"] == "start here")
    );
}

#[test]
fn nobody_is_hurt_by_a_reader_that_leaves() {
    use std::process::Stdio;
    let bench = Bench::new();
    let mut child = bench
        .command(["log"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_needs_no_store_works_without_one() {
    let bench = Bench::without_store();
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            bench
                .run(["completions", shell])
                .ok()
                .out
                .contains("checkpoint")
        );
    }
    assert!(bench.run(["man"]).ok().out.contains(".TH branchpoint"));
    bench.run(["man", "--dir", "pages"]).ok();
    for page in [
        "branchpoint.1",
        "branchpoint-mount.1",
        "branchpoint-branch-create.1",
    ] {
        assert!(bench.path("pages").join(page).exists(), "{page}");
    }
    let found = bench.run(["doctor", "--json"]).json();
    assert!(found["findings"].as_array().unwrap().len() > 10);
}
