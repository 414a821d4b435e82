//! Three-way merges, on a real store over a base.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod layers;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use branchpoint_fs::Error;
use branchpoint_fs::attr::{Caller, FileKind, SetAttr};
use branchpoint_fs::branch::Revision;
use branchpoint_fs::error::Result;
use branchpoint_fs::kv::Table;
use branchpoint_fs::kv::faulty::FaultyKv;
use branchpoint_fs::kv::memory::MemoryKv;
use branchpoint_fs::merge::{MergeOutcome, merge};
use branchpoint_fs::store::{Store, StoreOptions};
use layers::{Branch, Fixture, Node};

fn fixture() -> Fixture {
    Fixture::new(|base| {
        fs::create_dir_all(base.join("dir/sub")).unwrap();
        fs::write(base.join("dir/sub/deep"), "deep").unwrap();
        fs::write(base.join("dir/x"), "x").unwrap();
        fs::write(base.join("big"), vec![1; 100_000]).unwrap();
        fs::write(base.join("one"), "1").unwrap();
        fs::write(base.join("two"), "2").unwrap();
        fs::hard_link(base.join("two"), base.join("second")).unwrap();
    })
}

fn run(f: &Fixture) -> Result<MergeOutcome> {
    let side = f.store.resolve("side").unwrap();
    merge(&f.store, &side, "main", &mut |_| Ok(()))
}

/// Merges and checks that all that is named is a conflict, and that nothing has changed.
#[track_caller]
fn assert_conflicts(f: &Fixture, expected: &[&str]) {
    let before = f.tree_of("main");
    match run(f) {
        Err(Error::Conflicts { paths }) => assert_eq!(paths, expected),
        other => panic!("{other:?}"),
    }
    assert_eq!(f.tree_of("main"), before);
    // The branch goes on.
    f.branch("main").write("after", b"after");
}

fn content(tree: &BTreeMap<String, Node>) -> BTreeMap<&str, &[u8]> {
    tree.iter()
        .map(|(path, node)| (path.as_str(), node.content.as_slice()))
        .collect()
}

#[test]
fn what_only_one_side_changed_comes_from_that_side() {
    let f = fixture();
    let main = f.branch("main");
    let side = f.fork("side", "main");
    side.write("new", b"new");
    side.mkdir("made");
    side.mkdir("made/below");
    side.write("made/below/large", &[7; 300_000]);
    side.symlink("made/link", b"../one");
    side.make("made/pipe", FileKind::Fifo, 0);
    side.make("made/device", FileKind::CharDevice, 0x103);
    side.link("new", "made/also-new");
    side.set_xattr("new", "user.note", b"n");
    let mut big = vec![1; 100_000];
    big[50_000] = 2;
    side.write("big", &big);
    side.rm_all("dir/sub");
    side.chmod("one", 0o4711);
    let expected = side.tree();
    main.write("mine", b"mine");
    main.write("two", b"two");
    drop(main);
    let outcome = run(&f).unwrap();
    assert!(!outcome.nothing_to_do);
    assert_eq!(f.layer("main"), outcome.head);
    let mut merged = f.tree_of("main");
    assert_eq!(merged.remove("mine").unwrap().content, b"mine");
    for name in ["two", "second"] {
        assert_eq!(merged[name].content, b"two");
        merged.insert(name.into(), expected[name].clone());
    }
    assert_eq!(merged, expected);
    // What is written afterwards stays on its side.
    side.write("new", b"changed there");
    f.branch("main").write("big", b"changed here");
    assert_eq!(f.branch("main").read("new"), b"new");
    assert_eq!(side.read("big"), big);
    // A second merge of the same brings nothing but what is new there.
    side.write("new", b"new");
    f.branch("main").write("big", &big);
    assert!(run(&f).unwrap().nothing_to_do);
}

#[test]
fn the_open_view_is_retired_and_the_next_one_shows_the_merge() {
    let f = fixture();
    let main = f.branch("main");
    let side = f.fork("side", "main");
    side.write("new", b"new");
    run(&f).unwrap();
    assert!(matches!(
        main.view.getattr(branchpoint_fs::id::Ino::ROOT),
        Err(Error::Posix(_))
    ));
    assert_eq!(f.branch("main").read("new"), b"new");
}

#[test]
fn a_rename_on_one_side_and_edits_on_the_other_come_together() {
    for edits_here in [true, false] {
        let f = fixture();
        let main = f.branch("main");
        let side = f.fork("side", "main");
        let (editor, mover) = if edits_here {
            (&main, &side)
        } else {
            (&side, &main)
        };
        mover.mv("dir", "moved");
        mover.mv("one", "moved/uno");
        editor.write("dir/sub/deep", b"deeper");
        editor.write("dir/sub/more", b"more");
        editor.save("one", b"saved");
        editor.rm("dir/x");
        drop((main, side));
        run(&f).unwrap();
        let merged = f.tree_of("main");
        let expected: [(&str, &[u8]); 9] = [
            ("big", &[1; 100_000]),
            ("moved", b""),
            ("moved/sub", b""),
            ("moved/sub/deep", b"deeper"),
            ("moved/sub/more", b"more"),
            ("moved/uno", b"saved"),
            ("second", b"2"),
            ("two", b"2"),
            ("", b""),
        ];
        let expected: BTreeMap<&str, &[u8]> = expected
            .into_iter()
            .filter(|(path, _)| !path.is_empty())
            .collect();
        assert_eq!(content(&merged), expected, "edits here: {edits_here}");
    }
}

#[test]
fn the_same_change_on_both_sides_is_fine_and_directories_made_twice_become_one() {
    let f = fixture();
    let main = f.branch("main");
    let side = f.fork("side", "main");
    for (branch, name) in [(&main, "main"), (&side, "side")] {
        branch.mkdir("made");
        branch.mkdir("made/deeper");
        branch.write(&format!("made/deeper/{name}"), name.as_bytes());
        branch.write("made/same", b"same");
        branch.write("one", b"both");
        branch.save("big", b"small");
        branch.rm("two");
        branch.mv("dir/x", "dir/y");
    }
    drop((main, side));
    run(&f).unwrap();
    let merged = f.tree_of("main");
    let names: Vec<&str> = merged.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "big",
            "dir",
            "dir/sub",
            "dir/sub/deep",
            "dir/y",
            "made",
            "made/deeper",
            "made/deeper/main",
            "made/deeper/side",
            "made/same",
            "one",
            "second"
        ]
    );
    assert_eq!(merged["big"].content, b"small");
}

#[test]
fn every_kind_of_conflict_is_listed_and_nothing_changes() {
    let f = fixture();
    let main = f.branch("main");
    main.write("gone-here", b"1");
    main.write("gone-there", b"1");
    main.write("mode", b"1");
    main.write("attribute", b"1");
    main.write("moved", b"1");
    main.write("was-file", b"1");
    main.mkdir("dir-gone-here");
    main.mkdir("dir-gone-there");
    main.mkdir("circle-a");
    main.mkdir("circle-b");
    let side = f.fork("side", "main");

    main.write("one", b"here");
    side.write("one", b"there");
    main.rm("gone-here");
    side.write("gone-here", b"2");
    main.write("gone-there", b"2");
    side.rm("gone-there");
    main.write("new", b"here");
    side.write("new", b"there");
    main.mkdir("new-kind");
    side.write("new-kind", b"there");
    main.chmod("mode", 0o600);
    side.chmod("mode", 0o666);
    main.set_xattr("attribute", "user.a", b"1");
    side.set_xattr("attribute", "user.a", b"2");
    main.mv("moved", "moved-here");
    side.mv("moved", "moved-there");
    main.rm_all("dir-gone-here");
    side.write("dir-gone-here/new", b"1");
    main.write("dir-gone-there/new", b"1");
    side.rm_all("dir-gone-there");
    main.mv("circle-a", "circle-b/a");
    side.mv("circle-b", "circle-a/b");
    main.rm("was-file");
    main.mkdir("was-file");
    side.write("was-file", b"2");
    // Both of these are no conflicts, and are not made either.
    side.write("fine", b"fine");
    side.save("big", b"fine");
    assert_conflicts(
        &f,
        &[
            "attribute: an extended attribute changed on both sides",
            "circle-b: moved below what the other side moved below it",
            "dir-gone-here/new: its directory was removed here, added or changed there",
            "dir-gone-there/new: added here, its directory was removed there",
            "gone-here: removed here, modified there",
            "gone-there: modified here, removed there",
            "mode: mode or owner changed on both sides",
            "moved-here: renamed on both sides to different paths",
            "new-kind: of different kinds on both sides",
            "new: added on both sides with different content or attributes",
            "one: modified on both sides",
            "was-file: removed here, modified there",
        ],
    );
}

#[test]
fn renames_against_removals_are_conflicts() {
    let f = fixture();
    let main = f.branch("main");
    let side = f.fork("side", "main");
    main.mv("one", "uno");
    side.rm("one");
    main.rm_all("dir");
    side.mv("dir", "moved");
    match run(&f) {
        Err(Error::Conflicts { paths }) => {
            assert!(
                paths.contains(&"uno: renamed here, removed there".to_owned()),
                "{paths:?}"
            );
            assert!(
                paths.iter().any(|path| path.starts_with("moved: ")),
                "{paths:?}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn truncation_growth_and_holes_come_over() {
    let f = fixture();
    let main = f.branch("main");
    main.write("grown", &[3; 50_000]);
    main.write("cut", &[3; 50_000]);
    let side = f.fork("side", "main");
    let size = |branch: &Branch, path: &str, size| {
        let change = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        branch
            .view
            .setattr(Caller::ROOT, branch.ino(path), &change)
            .unwrap();
    };
    size(&side, "big", 10_001);
    size(&side, "big", 90_000);
    side.view
        .write(side.ino("big"), 80_000, b"tail", false)
        .unwrap();
    side.view
        .write(side.ino("grown"), 70_000, b"tail", false)
        .unwrap();
    size(&side, "cut", 5);
    // Ours rewrote the same bytes: not a change.
    main.write("cut", &[3; 50_000]);
    main.chmod("cut", 0o600);
    main.write("other", b"o");
    let expected = side.tree();
    drop((main, side));
    run(&f).unwrap();
    let merged = f.tree_of("main");
    for path in ["big", "grown", "cut"] {
        assert_eq!(merged[path].content, expected[path].content, "{path}");
    }
    assert_eq!(merged["cut"].perm, 0o600);
}

#[test]
fn hard_links_that_each_side_adds_or_removes() {
    let f = fixture();
    let main = f.branch("main");
    let side = f.fork("side", "main");
    main.link("two", "dir/here");
    side.link("two", "dir/there");
    side.rm("second");
    side.write("two", b"two!");
    drop((main, side));
    run(&f).unwrap();
    let merged = f.tree_of("main");
    for path in ["two", "dir/here", "dir/there"] {
        assert_eq!(merged[path].content, b"two!", "{path}");
        assert_eq!(
            (merged[path].nlink, merged[path].same_as.as_str()),
            (3, "dir/here")
        );
    }
    assert!(!merged.contains_key("second"));
}

#[test]
fn a_checkpoint_can_be_merged_and_a_branch_not_into_itself() {
    let f = fixture();
    let side = f.fork("side", "main");
    side.write("new", b"1");
    f.store.checkpoint("side", Some("first"), false).unwrap();
    side.write("new", b"2");
    let first = f.store.resolve("first").unwrap();
    merge(&f.store, &first, "main", &mut |_| Ok(())).unwrap();
    assert_eq!(f.branch("main").read("new"), b"1");
    let main = f.store.resolve("main").unwrap();
    assert!(matches!(
        merge(&f.store, &main, "main", &mut |_| Ok(())),
        Err(Error::BadInput { .. })
    ));
}

#[test]
fn a_merge_that_fails_at_any_write_leaves_the_old_state() {
    let dir = tempfile::tempdir().unwrap();
    let mut cut = 0;
    for operation in 1.. {
        let kv = Arc::new(MemoryKv::new());
        Store::create_in(&kv, &StoreOptions::default()).unwrap();
        let store = Store::open_in(dir.path(), Box::new(kv.clone())).unwrap();
        let branch = |store: &Arc<Store>, name: &str| Branch {
            view: store.view(name).unwrap(),
        };
        branch(&store, "main").write("old", b"old");
        store
            .branch_create("side", &store.resolve("main").unwrap())
            .unwrap();
        let side = branch(&store, "side");
        for n in 0..60 {
            side.write(&format!("new-{n}"), &vec![7; 5000]);
        }
        side.write("old", b"changed");
        branch(&store, "main").write("mine", b"mine");
        let (before, theirs) = (branch(&store, "main").tree(), side.tree());
        drop(side);
        drop(store);

        let faulty = Arc::new(FaultyKv::cut_at(kv.clone(), operation));
        // Opening writes nothing; the counters' first numbers are written by the merge.
        let store = Store::open_in(dir.path(), Box::new(faulty.clone())).unwrap();
        let source: Revision = store.resolve("side").unwrap();
        let result = merge(&store, &source, "main", &mut |_| Ok(()));
        drop(store);
        let store = Store::open_in(dir.path(), Box::new(kv)).unwrap();
        let after = branch(&store, "main").tree();
        assert_eq!(
            branch(&store, "side").tree(),
            theirs,
            "operation {operation}"
        );
        if faulty.fired() {
            assert!(result.is_err(), "operation {operation}");
            assert_eq!(after, before, "operation {operation}");
            cut += 1;
        } else {
            result.unwrap();
            let mut expected = theirs;
            expected.insert("mine".into(), before["mine"].clone());
            assert_eq!(after, expected);
            break;
        }
    }
    assert!(cut > 60, "only {cut} writes");
}

#[test]
fn no_bytes_of_content_are_copied() {
    let dir = tempfile::tempdir().unwrap();
    let kv = Arc::new(MemoryKv::new());
    Store::create_in(&kv, &StoreOptions::default()).unwrap();
    let store = Store::open_in(dir.path(), Box::new(kv.clone())).unwrap();
    let branch = |name: &str| Branch {
        view: store.view(name).unwrap(),
    };
    branch("main").write("old", &[1; 1 << 20]);
    store
        .branch_create("side", &store.resolve("main").unwrap())
        .unwrap();
    branch("side").write("new", &[2; 8 << 20]);
    branch("side").write("old", &[3; 2 << 20]);
    let before = kv.len(Table::Data);
    merge(&store, &store.resolve("side").unwrap(), "main", &mut |_| {
        Ok(())
    })
    .unwrap();
    assert_eq!(kv.len(Table::Data), before);
    assert_eq!(branch("main").tree(), branch("side").tree());
    // What both point at stays as it is when either writes.
    branch("side").write("new", b"there");
    branch("main").write("old", b"here");
    assert_eq!(branch("main").read("new"), [2; 8 << 20]);
    assert_eq!(branch("side").read("old"), [3; 2 << 20]);
}

/// Numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn pick(&mut self, from: &[String]) -> Option<String> {
        (!from.is_empty()).then(|| from[self.roll(from.len())].clone())
    }
}

/// Does something to a branch that the view may refuse.
fn act(branch: &Branch, dice: &mut Dice) {
    let tree = branch.tree();
    let of = |kind| -> Vec<String> {
        let some = tree.iter().filter(|(_, node)| node.kind == kind);
        some.map(|(path, _)| path.clone()).collect()
    };
    let (files, mut dirs) = (of(FileKind::Regular), of(FileKind::Directory));
    let all: Vec<String> = tree.keys().cloned().collect();
    dirs.push(String::new());
    let dir = dice.pick(&dirs).unwrap();
    let name = format!("{dir}/n{}", dice.roll(4));
    let name = name.trim_start_matches('/').to_owned();
    let bytes = vec![u8::try_from(dice.roll(3)).unwrap(); [1, 5000, 9000][dice.roll(3)]];
    let free = branch.find(&name).is_none();
    let file = dice.pick(&files);
    match dice.roll(8) {
        0 if free => branch.mkdir(&name),
        1 if free => branch.write(&name, &bytes),
        2 => file.iter().for_each(|file| branch.write(file, &bytes)),
        3 => file.iter().for_each(|file| branch.save(file, &bytes)),
        4 if free => file.iter().for_each(|file| branch.link(file, &name)),
        5 => file.iter().for_each(|file| branch.chmod(file, 0o600)),
        6 if !all.is_empty() => branch.rm_all(&dice.pick(&all).unwrap()),
        7 if !all.is_empty() => {
            let ((from, old), (to, new)) = (dice.pick(&all).unwrap(), name).into_places(branch);
            // A directory into itself, or over something that is not empty, is refused.
            let _ = branch.view.rename(
                Caller::ROOT,
                from,
                &old,
                to,
                &new,
                branchpoint_fs::attr::RenameMode::Replace,
            );
        }
        _ => {}
    }
}

trait IntoPlaces {
    fn into_places(self, branch: &Branch) -> (Place, Place);
}

type Place = (branchpoint_fs::id::Ino, Vec<u8>);

impl IntoPlaces for (String, String) {
    fn into_places(self, branch: &Branch) -> (Place, Place) {
        let place = |path: &str| {
            let (dir, name) = branch.place(path);
            (dir, name.to_vec())
        };
        (place(&self.0), place(&self.1))
    }
}

/// Merging either side into the other must give the same tree, or conflicts either way. Whether link
/// counts and names fit together is checked whenever a tree is looked at.
#[test]
fn random_merges_come_out_the_same_in_both_directions() {
    let (mut merged, mut refused) = (0, 0);
    for seed in 0..400 {
        let dir = tempfile::tempdir().unwrap();
        let kv = MemoryKv::new();
        Store::create_in(&kv, &StoreOptions::default()).unwrap();
        let store = Store::open_in(dir.path(), Box::new(kv)).unwrap();
        let branch = |name: &str| Branch {
            view: store.view(name).unwrap(),
        };
        let mut dice = Dice(seed);
        for _ in 0..15 {
            act(&branch("main"), &mut dice);
        }
        let fork = |name: &str, from: &str| {
            store
                .branch_create(name, &store.resolve(from).unwrap())
                .unwrap();
        };
        fork("side", "main");
        for name in ["main", "side"] {
            for _ in 0..=dice.roll(4) {
                act(&branch(name), &mut dice);
            }
        }
        fork("main2", "main");
        fork("side2", "side");
        let run = |from: &str, into: &str| {
            merge(&store, &store.resolve(from).unwrap(), into, &mut |_| Ok(()))
        };
        match (run("side", "main"), run("main2", "side2")) {
            (Ok(_), Ok(_)) => {
                merged += 1;
                let strip = |name: &str| {
                    let mut tree = branch(name).tree();
                    tree.values_mut().for_each(|node| node.mtime = None);
                    tree
                };
                assert_eq!(strip("main"), strip("side2"), "seed {seed}");
            }
            (Err(Error::Conflicts { .. }), Err(Error::Conflicts { .. })) => refused += 1,
            (a, b) => panic!("seed {seed}: {a:?} and {b:?}"),
        }
    }
    assert!(
        merged > 100 && refused > 20,
        "{merged} merged, {refused} refused"
    );
}
