//! Differences between branches, and merging them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use branchpoint_fs::Error;
use branchpoint_fs::attr::{Caller, FileKind, RenameMode, SetAttr};
use branchpoint_fs::check::check;
use branchpoint_fs::collect::collect;
use branchpoint_fs::diff::{ChangeKind, diff};
use branchpoint_fs::id::Ino;
use branchpoint_fs::merge::{MergeOutcome, merge, prepare};
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_fs::view::View;

struct Fixture {
    store: Arc<Store>,
    _dir: tempfile::TempDir,
}

/// A store over a base with `a`, `dir/b`, `dir/sub/c`, and branches `main` and `side`.
fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    std::fs::create_dir_all(base.join("dir/sub")).unwrap();
    for (path, text) in [
        ("a", "alpha\n"),
        ("dir/b", "beta\n"),
        ("dir/sub/c", "gamma\n"),
    ] {
        std::fs::write(base.join(path), text).unwrap();
    }
    let path = dir.path().join("store");
    Store::create(&path, &StoreOptions { base: Some(base) }).unwrap();
    let store = Store::open(&path).unwrap();
    store
        .branch_create("side", &store.resolve("main").unwrap())
        .unwrap();
    Fixture { store, _dir: dir }
}

fn find(view: &View, path: &str) -> Option<Ino> {
    let mut at = Ino::ROOT;
    for name in path.split('/') {
        at = view.lookup(at, name.as_bytes()).ok()?.ino;
    }
    Some(at)
}

fn parent(view: &View, path: &str) -> (Ino, Vec<u8>) {
    match path.rsplit_once('/') {
        Some((dir, name)) => (find(view, dir).unwrap(), name.as_bytes().to_vec()),
        None => (Ino::ROOT, path.as_bytes().to_vec()),
    }
}

fn put(view: &View, path: &str, text: &str) {
    let ino = find(view, path).unwrap_or_else(|| {
        let (dir, name) = parent(view, path);
        view.mknod(Caller::ROOT, dir, &name, FileKind::Regular, 0o644, 0, 0)
            .unwrap()
            .ino
    });
    let empty = SetAttr {
        size: Some(0),
        ..SetAttr::default()
    };
    view.setattr(Caller::ROOT, ino, &empty).unwrap();
    view.write(ino, 0, text.as_bytes(), false).unwrap();
}

fn get(view: &View, path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    view.read(find(view, path)?, 0, 1 << 20, &mut bytes)
        .unwrap();
    Some(String::from_utf8(bytes).unwrap())
}

fn remove(view: &View, path: &str) {
    let (dir, name) = parent(view, path);
    view.unlink(dir, &name).unwrap();
}

fn rename(view: &View, from: &str, to: &str) {
    let ((dir, name), (new_dir, new_name)) = (parent(view, from), parent(view, to));
    view.rename(
        Caller::ROOT,
        dir,
        &name,
        new_dir,
        &new_name,
        RenameMode::Replace,
    )
    .unwrap();
}

impl Fixture {
    fn view(&self, branch: &str) -> Arc<View> {
        self.store.view(branch).unwrap()
    }

    fn changes(&self, from: &str, to: &str) -> Vec<(ChangeKind, String)> {
        let layer = |name| self.store.resolve(name).unwrap().layer();
        diff(&self.store, layer(from), layer(to))
            .unwrap()
            .into_iter()
            .map(|change| (change.kind, String::from_utf8(change.path).unwrap()))
            .collect()
    }

    fn merge(&self) -> Result<MergeOutcome, Vec<String>> {
        let source = self.store.resolve("side").unwrap();
        match merge(&self.store, &source, "main", &mut |_| Ok(())) {
            Ok(outcome) => Ok(outcome),
            Err(Error::Conflicts { paths }) => Err(paths),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_diff_names_each_kind_of_change() {
    let fixture = fixture();
    let side = fixture.view("side");
    put(&side, "a", "other\n");
    put(&side, "new", "new\n");
    remove(&side, "dir/b");
    rename(&side, "dir/sub", "moved");
    let mode = SetAttr {
        perm: Some(0o700),
        ..SetAttr::default()
    };
    side.setattr(Caller::ROOT, find(&side, "dir").unwrap(), &mode)
        .unwrap();
    let expected = [
        (ChangeKind::Modified, "a"),
        (ChangeKind::Metadata, "dir"),
        (ChangeKind::Removed, "dir/b"),
        (ChangeKind::Renamed, "moved"),
        (ChangeKind::Added, "new"),
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(kind, path)| (kind, path.to_owned()))
        .collect();
    assert_eq!(fixture.changes("main", "side"), expected);
    assert_eq!(fixture.changes("side", "side"), []);
    let back: Vec<_> = fixture
        .changes("side", "main")
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert!(back.contains(&ChangeKind::Added) && back.contains(&ChangeKind::Renamed));
}

#[test]
fn writing_the_same_bytes_is_no_difference() {
    let fixture = fixture();
    put(&fixture.view("side"), "a", "alpha\n");
    assert_eq!(fixture.changes("main", "side"), []);
}

#[test]
fn changes_of_different_files_combine() {
    let fixture = fixture();
    put(&fixture.view("side"), "a", "side\n");
    put(&fixture.view("side"), "dir/new", "new\n");
    put(&fixture.view("main"), "dir/b", "main\n");
    let outcome = fixture.merge().unwrap();
    assert_eq!(
        (outcome.added, outcome.modified, outcome.removed),
        (1, 1, 0)
    );
    let main = fixture.view("main");
    assert_eq!(get(&main, "a").unwrap(), "side\n");
    assert_eq!(get(&main, "dir/b").unwrap(), "main\n");
    assert_eq!(get(&main, "dir/new").unwrap(), "new\n");
    assert!(
        fixture.merge().unwrap().nothing_to_do,
        "everything is there already"
    );
}

#[test]
fn a_directory_renamed_here_takes_an_edit_made_there() {
    let fixture = fixture();
    rename(&fixture.view("main"), "dir", "elsewhere");
    put(&fixture.view("side"), "dir/sub/c", "side\n");
    put(&fixture.view("side"), "dir/sub/new", "new\n");
    fixture.merge().unwrap();
    let main = fixture.view("main");
    assert_eq!(get(&main, "elsewhere/sub/c").unwrap(), "side\n");
    assert_eq!(get(&main, "elsewhere/sub/new").unwrap(), "new\n");
    assert_eq!(find(&main, "dir"), None);
}

#[test]
fn directories_made_on_both_sides_become_one() {
    let fixture = fixture();
    for (branch, file) in [("main", "mine"), ("side", "theirs")] {
        let view = fixture.view(branch);
        view.mkdir(Caller::ROOT, Ino::ROOT, b"build", 0o755, 0)
            .unwrap();
        put(&view, &format!("build/{file}"), file);
    }
    fixture.merge().unwrap();
    let main = fixture.view("main");
    assert_eq!(get(&main, "build/mine").unwrap(), "mine");
    assert_eq!(get(&main, "build/theirs").unwrap(), "theirs");
}

#[test]
fn conflicts_are_all_listed_and_nothing_changes() {
    let fixture = fixture();
    let (main, side) = (fixture.view("main"), fixture.view("side"));
    put(&side, "a", "side\n");
    put(&main, "a", "main\n");
    remove(&side, "dir/b");
    put(&main, "dir/b", "main\n");
    put(&side, "both", "side\n");
    put(&main, "both", "main\n");
    put(&side, "dir/sub/c", "side\n");
    remove(&main, "dir/sub/c");
    put(&side, "fine", "fine\n");
    let conflicts = fixture.merge().unwrap_err();
    assert_eq!(
        conflicts,
        [
            "a: modified on both sides",
            "both: added on both sides with different content or attributes",
            "dir/b: modified here, removed there",
            "dir/sub/c: removed here, modified there",
        ]
    );
    let main = fixture.view("main");
    assert_eq!(get(&main, "a").unwrap(), "main\n");
    assert_eq!(find(&main, "fine"), None);
}

#[test]
fn a_file_replaced_by_rename_is_a_modified_file() {
    let fixture = fixture();
    let side = fixture.view("side");
    put(&side, "a.tmp", "side\n");
    rename(&side, "a.tmp", "a");
    assert_eq!(
        fixture.changes("main", "side"),
        [(ChangeKind::Modified, "a".to_owned())]
    );
    fixture.merge().unwrap();
    assert_eq!(get(&fixture.view("main"), "a").unwrap(), "side\n");
}

#[test]
fn hard_links_and_renames_arrive() {
    let fixture = fixture();
    let side = fixture.view("side");
    side.link(find(&side, "a").unwrap(), Ino::ROOT, b"a2")
        .unwrap();
    put(&side, "n1", "new\n");
    side.link(find(&side, "n1").unwrap(), Ino::ROOT, b"n2")
        .unwrap();
    rename(&side, "dir/b", "b");
    fixture.merge().unwrap();
    let main = fixture.view("main");
    assert_eq!(find(&main, "a"), find(&main, "a2"));
    assert_eq!(find(&main, "n1"), find(&main, "n2"));
    assert_eq!(main.getattr(find(&main, "n1").unwrap()).unwrap().nlink, 2);
    assert_eq!(get(&main, "b").unwrap(), "beta\n");
    assert_eq!(find(&main, "dir/b"), None);
}

/// Merging again compares with what was merged before, not with where the lines once forked.
#[test]
fn a_second_merge_knows_of_the_first() {
    let fixture = fixture();
    let store = &fixture.store;
    let view = |branch: &str| store.view(branch).unwrap();
    let bring = |from: &str, into: &str| {
        merge(store, &store.resolve(from).unwrap(), into, &mut |_| Ok(())).unwrap()
    };
    let text = |branch: &str, path: &str| get(&view(branch), path);
    for (path, content) in [("theirs", "one"), ("gone", "soon"), ("both", "side")] {
        put(&view("side"), path, content);
    }
    bring("side", "main");
    // What came from there is removed and changed here; there, something else is changed.
    remove(&view("main"), "gone");
    put(&view("main"), "both", "main");
    put(&view("side"), "theirs", "two");
    let outcome = bring("side", "main");
    assert_eq!((outcome.modified, outcome.added), (1, 0), "{outcome:?}");
    assert_eq!(text("main", "gone"), None);
    assert_eq!(text("main", "both").unwrap(), "main");
    assert_eq!(text("main", "theirs").unwrap(), "two");
    // Nothing came since: nothing is done.
    assert!(bring("side", "main").nothing_to_do);
    // And the other way: the merged state is what both have behind them.
    let outcome = bring("main", "side");
    assert_eq!((outcome.modified, outcome.removed), (1, 1), "{outcome:?}");
    assert_eq!(text("side", "both").unwrap(), "main");
    assert_eq!(text("side", "gone"), None);
    // What both did alike is settled for good, though that merge had nothing to do.
    put(&view("side"), "both", "more");
    put(&view("main"), "both", "more");
    let outcome = bring("side", "main");
    assert!(
        outcome.nothing_to_do && outcome.already_there == 1,
        "{outcome:?}"
    );
    put(&view("side"), "both", "last");
    assert_eq!(bring("side", "main").modified, 1);
    assert_eq!(text("main", "both").unwrap(), "last");
    // Collecting leaves what a later merge compares with.
    for branch in ["main", "side"] {
        store.checkpoint(branch, None, false).unwrap();
    }
    for checkpoint in store.checkpoints().unwrap() {
        store.checkpoint_delete(checkpoint.id).unwrap();
    }
    collect(store, false, &mut |_| Ok(())).unwrap();
    assert!(bring("side", "main").nothing_to_do);
    put(&view("side"), "both", "anew");
    put(&view("main"), "a", "changed here");
    assert_eq!(bring("side", "main").modified, 1);
    assert_eq!(text("main", "both").unwrap(), "anew");
    assert_eq!(text("main", "gone"), None);
    let report = check(store, &mut |_| Ok(())).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// Three lines, each of which gets the others' work in turns: no difference is asked about twice.
#[test]
fn lines_that_exchange_their_work_again_and_again_have_no_conflicts() {
    let fixture = fixture();
    let store = &fixture.store;
    let main = store.resolve("main").unwrap();
    store.branch_create("third", &main).unwrap();
    let names = ["main", "side", "third"];
    for round in 0..4 {
        for (n, from) in names.into_iter().enumerate() {
            let view = store.view(from).unwrap();
            put(&view, "shared", &format!("{from} {round}"));
            put(&view, &format!("{from}{round}"), "new");
            if round > 0 {
                remove(&view, &format!("{}{}", names[(n + 1) % 3], round - 1));
            }
            drop(view);
            for into in names.into_iter().filter(|into| *into != from) {
                merge(store, &store.resolve(from).unwrap(), into, &mut |_| Ok(())).unwrap();
            }
            if n == 1 {
                collect(store, false, &mut |_| Ok(())).unwrap();
            }
        }
    }
    for name in names {
        let view = store.view(name).unwrap();
        assert_eq!(get(&view, "shared").unwrap(), "third 3");
        for removed in ["main0", "side1", "third2"] {
            assert_eq!(get(&view, removed), None, "{name}");
        }
        assert_eq!(get(&view, "main3").unwrap(), "new");
    }
    let report = check(store, &mut |_| Ok(())).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// What programs change in the target while a merge is prepared is not lost.
#[test]
fn a_target_that_changed_meanwhile_is_left_alone() {
    let fixture = fixture();
    let store = &fixture.store;
    put(&store.view("side").unwrap(), "theirs", "one");
    let source = store.resolve("side").unwrap();
    let prepared = prepare(store, &source, "main", &mut |_| Ok(())).unwrap();
    assert!(prepared.done().is_none());
    put(&store.view("main").unwrap(), "ours", "two");
    let error = prepared.finish().unwrap_err();
    assert!(matches!(error, Error::BranchBusy { .. }), "{error}");
    let main = store.view("main").unwrap();
    assert_eq!(get(&main, "ours").unwrap(), "two");
    assert_eq!(get(&main, "theirs"), None);
    drop(main);
    fixture.merge().unwrap();
    let main = store.view("main").unwrap();
    assert_eq!(get(&main, "ours").unwrap(), "two");
    assert_eq!(get(&main, "theirs").unwrap(), "one");
}
