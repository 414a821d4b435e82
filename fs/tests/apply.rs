//! Carrying what a branch changed to real directories, and what everybody else sees of it.
#![allow(clippy::unwrap_used)]

#[path = "support/trees.rs"]
mod trees;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use branchpoint_fs::apply::{ApplyOutcome, apply};
use branchpoint_fs::attr::{Caller, RenameMode, SetAttr};
use branchpoint_fs::error::{Error, Result};
use branchpoint_fs::id::{Ino, LayerId};
use branchpoint_fs::progress::Progress;
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_fs::view::View;

use trees::*;

fn head(store: &Store) -> LayerId {
    store.branch("main").unwrap().head
}

fn to_base(store: &Arc<Store>) -> Result<ApplyOutcome> {
    apply(store, head(store), None, false, &mut quiet)
}

fn fill_base(base: &Path) {
    fs::create_dir_all(base.join("dir/sub")).unwrap();
    fs::create_dir_all(base.join("gone/deep/er")).unwrap();
    let big: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(base.join("big"), big).unwrap();
    fs::write(base.join("dir/small"), "small").unwrap();
    fs::write(base.join("dir/empty"), "").unwrap();
    fs::write(base.join("dir/sub/keep"), "keep").unwrap();
    fs::write(base.join("gone/deep/er/file"), "unseen until it is removed").unwrap();
    fs::write(base.join("untouched"), "untouched").unwrap();
    fs::write(base.join("mode"), "mode").unwrap();
    fs::write(base.join("pair"), "two names").unwrap();
    fs::hard_link(base.join("pair"), base.join("dir/pair2")).unwrap();
    fs::write(base.join("file-to-dir"), "x").unwrap();
    fs::create_dir(base.join("dir-to-file")).unwrap();
    fs::write(base.join("dir-to-file/inside"), "inside").unwrap();
    symlink("dir/small", base.join("link")).unwrap();
    let holes = fs::File::create(base.join("holes")).unwrap();
    holes.write_all_at(b"end", 500_000).unwrap();
}

fn remove_all(view: &View, dir: Ino, name: &[u8]) {
    let ino = view.lookup(dir, name).unwrap().ino;
    for (name, child) in names(view, ino) {
        let kind = view.getattr(child).unwrap().kind;
        match kind {
            branchpoint_fs::attr::FileKind::Directory => remove_all(view, ino, &name),
            _ => view.unlink(ino, &name).unwrap(),
        }
    }
    view.rmdir(dir, name).unwrap();
}

fn change_everything(view: &View) {
    let root = Ino::ROOT;
    view.write(at(view, "big"), 100_000, b"changed", false)
        .unwrap();
    view.write(at(view, "dir/small"), 0, b"SMALL and longer", false)
        .unwrap();
    view.write(at(view, "dir/empty"), 0, b"no more", false)
        .unwrap();
    view.write(at(view, "pair"), 0, b"TWO", false).unwrap();
    view.write(at(view, "holes"), 10, b"middle", false).unwrap();
    let change = SetAttr {
        perm: Some(0o4711),
        ..SetAttr::default()
    };
    view.setattr(Caller::ROOT, at(view, "mode"), &change)
        .unwrap();
    remove_all(view, root, b"gone");
    view.unlink(root, b"file-to-dir").unwrap();
    let made = view.mkdir(Caller::ROOT, root, b"file-to-dir", 0o750, 0);
    file(view, made.unwrap().ino, b"inside", b"new inside");
    remove_all(view, root, b"dir-to-file");
    file(view, root, b"dir-to-file", b"a file now");
    view.rename(
        Caller::ROOT,
        at(view, "dir"),
        b"sub",
        root,
        b"moved",
        RenameMode::Replace,
    )
    .unwrap();
    view.unlink(root, b"link").unwrap();
    view.symlink(Caller::ROOT, root, b"link", b"elsewhere")
        .unwrap();
    view.link(at(view, "untouched"), root, b"untouched-too")
        .unwrap();
    let made = view
        .mkdir(Caller::ROOT, root, b"planted", 0o755, 0)
        .unwrap();
    set_mtime(view, made.ino, 1_000_000_000, 5);
    plant_in(view, made.ino);
}

fn plant_in(view: &View, dir: Ino) {
    let one = file(view, dir, b"one", &vec![4; 100_000]);
    view.link(one, dir, b"two").unwrap();
    set_xattr(view, one, b"user.note", b"text");
    set_mtime(view, one, 1_111_111_111, 222);
    view.mknod(
        Caller::ROOT,
        dir,
        b"pipe",
        branchpoint_fs::attr::FileKind::Fifo,
        0o620,
        0,
        0,
    )
    .unwrap();
}

/// What a new store over `dir` shows.
fn seen(scratch: &Path, name: &str, dir: &Path) -> std::collections::BTreeMap<String, String> {
    describe(&open_store(scratch, name, Some(dir)).view("main").unwrap())
}

#[test]
fn the_base_becomes_the_branch_and_nobody_else_notices() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fill_base(&base);
    let store = open_store(dir.path(), "store", Some(&base));
    let before = store.checkpoint("main", Some("before"), false).unwrap();
    store
        .branch_create("side", &store.resolve("main").unwrap())
        .unwrap();
    let main = store.view("main").unwrap();
    let old_view = store.view_at(before.layer).unwrap();
    let side = store.view("side").unwrap();
    // A newer version of an inode whose content is still the base's.
    let change = SetAttr {
        perm: Some(0o600),
        ..SetAttr::default()
    };
    side.setattr(Caller::ROOT, at(&side, "dir/small"), &change)
        .unwrap();
    // A block of the base that another file shares.
    let copy = file(&side, Ino::ROOT, b"copy", b"");
    let big = at(&side, "big");
    assert_eq!(
        side.copy_range(big, 4096, copy, 0, 200_704).unwrap(),
        200_704
    );
    let shared = content(&side, copy);
    let old = fs::read(base.join("big")).unwrap();
    assert!(shared == old[4096..204_800]);
    change_everything(&main);
    // Not described before: directories that nobody has looked into are seen first by the apply.
    let outcome = to_base(&store).unwrap();
    assert!(outcome.preserved_bytes >= 300_000, "{outcome:?}");
    assert_eq!(outcome.attributes_skipped, 0);

    let wanted = describe(&main);
    assert_same(&wanted, &seen(dir.path(), "again", &base));
    assert!(content(&main, at(&main, "big"))[100_000..].starts_with(b"changed"));
    assert_eq!(
        fs::metadata(base.join("mode"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
        0o4711
    );
    let twins = ["pair", "dir/pair2"].map(|name| fs::metadata(base.join(name)).unwrap().ino());
    assert_eq!(twins[0], twins[1]);
    let leftovers = fs::read_dir(&base).unwrap().filter(|e| {
        e.as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with('.')
    });
    assert_eq!(leftovers.count(), 0);

    // All others go on seeing what was there, with what they cached and without.
    let fresh_view = store.view_at(before.layer).unwrap();
    for view in [
        &old_view,
        &fresh_view,
        &side,
        &store.view_at(LayerId::ROOT).unwrap(),
    ] {
        assert!(content(view, at(view, "big")) == old);
        assert_eq!(content(view, at(view, "dir/small")), b"small");
        assert_eq!(content(view, at(view, "dir/empty")), b"");
        assert_eq!(content(view, at(view, "pair")), b"two names");
        assert_eq!(content(view, at(view, "mode")), b"mode");
        assert_eq!(content(view, at(view, "untouched")), b"untouched");
        assert_eq!(content(view, at(view, "dir/sub/keep")), b"keep");
        assert_eq!(content(view, at(view, "dir-to-file/inside")), b"inside");
        let file = at(view, "gone/deep/er/file");
        assert_eq!(content(view, file), b"unseen until it is removed");
        assert_eq!(content(view, at(view, "holes")).len(), 500_003);
        for path in ["big", "dir/empty", "mode", "pair"] {
            assert!(view.backing(at(view, path)).unwrap().is_none(), "{path}");
        }
        assert!(view.lookup(Ino::ROOT, b"planted").is_err());
    }
    assert!(content(&side, copy) == shared);
    // The branches can go on changing such files.
    side.write(at(&side, "big"), 290_000, b"side", false)
        .unwrap();
    let mut expected = old.clone();
    expected[290_000..290_004].copy_from_slice(b"side");
    assert!(content(&side, at(&side, "big")) == expected);
    let change = SetAttr {
        size: Some(400_000),
        ..SetAttr::default()
    };
    side.setattr(Caller::ROOT, at(&side, "dir/small"), &change)
        .unwrap();
    let grown = content(&side, at(&side, "dir/small"));
    assert!(grown.starts_with(b"small") && grown[5..].iter().all(|byte| *byte == 0));

    // And after all has been closed.
    let (path, layer) = (store.dir().to_path_buf(), before.layer);
    drop((main, old_view, fresh_view, side, store));
    let store = Store::open(&path).unwrap();
    let view = store.view_at(layer).unwrap();
    assert!(content(&view, at(&view, "big")) == old);
    assert_same(&wanted, &describe(&store.view("main").unwrap()));
    // A second time there is nothing to do, a third time only what is new.
    let outcome = to_base(&store).unwrap();
    assert_eq!(
        (outcome.written, outcome.removed, outcome.hard_links),
        (0, 0, 0),
        "{outcome:?}"
    );
    let main = store.view("main").unwrap();
    main.write(at(&main, "big"), 0, b"again", false).unwrap();
    main.write(at(&main, "planted/one"), 0, b"again", false)
        .unwrap();
    let outcome = to_base(&store).unwrap();
    assert_eq!(
        (outcome.written, outcome.hard_links, outcome.removed),
        (2, 1, 0),
        "{outcome:?}"
    );
    assert!(fs::read(base.join("big")).unwrap().starts_with(b"again"));
    assert!(content(&view, at(&view, "big")) == old);
}

#[test]
fn what_others_changed_is_listed_and_nothing_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fill_base(&base);
    let store = open_store(dir.path(), "store", Some(&base));
    let main = store.view("main").unwrap();
    change_everything(&main);
    fs::write(base.join("dir/small"), "other").unwrap();
    fs::write(base.join("gone/deep/surprise"), "mine").unwrap();
    fs::create_dir(base.join("planted")).unwrap();
    fs::write(base.join("planted/one"), "mine").unwrap();
    fs::remove_file(base.join("big")).unwrap();
    let before = seen(dir.path(), "before", &base);
    let error = to_base(&store).unwrap_err();
    let Error::Conflicts { paths } = error else {
        panic!("{error:?}");
    };
    let named: Vec<&str> = paths
        .iter()
        .map(|p| p.split(" (").next().unwrap())
        .collect();
    assert_eq!(
        named,
        ["big", "dir/small", "gone/deep", "planted/one"],
        "{paths:?}"
    );
    assert_same(&before, &seen(dir.path(), "after", &base));
}

#[test]
fn a_dry_run_counts_and_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fill_base(&base);
    let store = open_store(dir.path(), "store", Some(&base));
    change_everything(&store.view("main").unwrap());
    let before = seen(dir.path(), "before", &base);
    let would = apply(&store, head(&store), None, true, &mut quiet).unwrap();
    assert_same(&before, &seen(dir.path(), "after", &base));
    let did = to_base(&store).unwrap();
    let counts = |o: &ApplyOutcome| (o.written, o.directories, o.hard_links, o.removed, o.bytes);
    assert_eq!(counts(&would), counts(&did));
    assert!(
        did.written > 8 && did.removed >= 5 && did.hard_links >= 3,
        "{did:?}"
    );
}

#[test]
fn an_interrupted_apply_is_completed_by_another() {
    // Stop after ever more steps, and do it again.
    let (mut steps, mut stopped) = (0, true);
    while stopped {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        fill_base(&base);
        let store = open_store(dir.path(), "store", Some(&base));
        let before = store.checkpoint("main", Some("before"), false).unwrap();
        change_everything(&store.view("main").unwrap());
        let mut left = steps;
        let mut stop = |_: Progress| {
            assert!(left > 0, "stopped here");
            left -= 1;
            Ok(())
        };
        let layer = head(&store);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            apply(&store, layer, None, false, &mut stop).unwrap()
        }));
        stopped = run.is_err();
        let view = store.view_at(before.layer).unwrap();
        assert_eq!(content(&view, at(&view, "pair")), b"two names");
        assert_eq!(content(&view, at(&view, "big")).len(), 300_000);
        if let Err(error) = to_base(&store) {
            panic!("after {steps} steps: {error:?}");
        }
        let view = store.view("main").unwrap();
        assert_same(&describe(&view), &seen(dir.path(), "again", &base));
        steps += 3;
    }
    assert!(steps > 20, "{steps}");
}

#[test]
fn another_directory_gets_the_changes_if_it_is_a_copy_of_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let (base, copy) = (dir.path().join("base"), dir.path().join("copy"));
    fill_base(&base);
    fill_base(&copy);
    let store = open_store(dir.path(), "store", Some(&base));
    let main = store.view("main").unwrap();
    change_everything(&main);
    let before = seen(dir.path(), "before", &base);
    let outcome = apply(&store, head(&store), Some(&copy), false, &mut quiet).unwrap();
    assert_eq!(outcome.preserved_bytes, 0);
    assert_same(&before, &seen(dir.path(), "after", &base));
    for name in [
        "big",
        "dir/small",
        "pair",
        "planted/one",
        "moved/keep",
        "holes",
    ] {
        assert!(
            fs::read(copy.join(name)).unwrap() == content(&main, at(&main, name)),
            "{name}"
        );
    }
    assert!(!copy.join("gone").exists() && !copy.join("dir/sub").exists());
    // Once more: nothing is left to do.
    let outcome = apply(&store, head(&store), Some(&copy), false, &mut quiet).unwrap();
    assert_eq!((outcome.written, outcome.removed), (0, 0));
    fs::write(copy.join("big"), "mine").unwrap();
    let error = apply(&store, head(&store), Some(&copy), false, &mut quiet).unwrap_err();
    assert!(
        matches!(&error, Error::Conflicts { paths } if paths.len() == 1),
        "{error:?}"
    );
}

#[test]
fn a_store_without_base_fills_an_empty_directory_and_needs_one() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    fs::create_dir(&out).unwrap();
    let store = open_store(dir.path(), "store", None);
    let main = store.view("main").unwrap();
    plant_in(&main, Ino::ROOT);
    let error = to_base(&store).unwrap_err();
    assert!(matches!(error, Error::BadInput { .. }), "{error:?}");
    apply(&store, head(&store), Some(&out), false, &mut quiet).unwrap();
    let (mut want, mut got) = (describe(&main), seen(dir.path(), "again", &out));
    // The directory itself is somebody else's, whose mode stays.
    want.remove(".");
    got.remove(".");
    assert_same(&want, &got);
}

#[test]
fn links_in_the_target_lead_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let (base, out, victim) = (
        dir.path().join("base"),
        dir.path().join("out"),
        dir.path().join("victim"),
    );
    for path in [&base.join("d"), &out, &victim] {
        fs::create_dir_all(path).unwrap();
    }
    symlink(&victim, out.join("d")).unwrap();
    let store = open_store(dir.path(), "store", Some(&base));
    let main = store.view("main").unwrap();
    file(&main, at(&main, "d"), b"file", b"x");
    let error = apply(&store, head(&store), Some(&out), false, &mut quiet).unwrap_err();
    assert!(matches!(error, Error::Conflicts { .. }), "{error:?}");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
}

#[test]
fn a_store_that_lies_in_its_base_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    let path = base.join("store");
    let options = StoreOptions {
        base: Some(base.clone()),
    };
    Store::create(&path, &options).unwrap();
    let store = Store::open(&path).unwrap();
    let main = store.view("main").unwrap();
    file(&main, at(&main, "store"), b"lock", b"broken");
    let error = to_base(&store).unwrap_err();
    assert!(matches!(error, Error::Conflicts { .. }), "{error:?}");
}

#[test]
fn two_applies_to_one_directory_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fill_base(&base);
    let target = dir.path().join("target");
    let store = open_store(dir.path(), "store", Some(&base));
    change_everything(&store.view("main").unwrap());
    let layer = head(&store);
    let mut inner = Vec::new();
    fill_base(&target);
    let mut meanwhile = |_: Progress| {
        inner.push(apply(&store, layer, Some(&target), false, &mut quiet));
        // Looking is allowed.
        apply(&store, layer, Some(&target), true, &mut quiet)
            .map(drop)
            .or(Ok(()))
    };
    apply(&store, layer, Some(&target), false, &mut meanwhile).unwrap();
    assert!(!inner.is_empty());
    for refused in inner {
        assert!(
            matches!(refused, Err(Error::TargetBusy { .. })),
            "{refused:?}"
        );
    }
    apply(&store, layer, Some(&target), false, &mut quiet).unwrap();
}
