//! Branches do not see each other, however many and however deep; and bad requests do no damage.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use branchpoint_fs::attr::{Caller, FileKind, SetAttr};
use branchpoint_fs::error::{Error, ErrorKind};
use branchpoint_fs::id::Ino;
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_fs::view::View;
use branchpoint_tests::guard::Watchdog;
use branchpoint_tests::rig::{Scratch, assert_clean, make_base, new_store};
use nix::errno::Errno;

fn create(view: &View, name: &[u8]) -> Ino {
    let attr = view.mknod(
        Caller::ROOT,
        Ino::ROOT,
        name,
        FileKind::Regular,
        0o644,
        0,
        0,
    );
    attr.unwrap().ino
}

fn read(view: &View, name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let ino = view.lookup(Ino::ROOT, name).unwrap().ino;
    view.read(ino, 0, 100_000, &mut bytes).unwrap();
    bytes
}

fn block(text: &str) -> Vec<u8> {
    text.bytes().cycle().take(4096).collect()
}

#[test]
fn a_thousand_siblings_see_only_their_own_block_and_name() {
    const SIBLINGS: usize = 1000;
    let _watchdog = Watchdog::new(300);
    let scratch = Scratch::new();
    let store = new_store(&scratch.path().join("store"), None);
    let main = store.view("main").unwrap();
    let ino = create(&main, b"block");
    main.write(ino, 0, &block("parent"), false).unwrap();
    main.write(ino, 4096, &block("shared"), false).unwrap();
    let name = create(&main, b"name");
    main.write(name, 0, b"parent's", false).unwrap();
    let from = store.resolve("main").unwrap();
    for n in 0..SIBLINGS {
        store.branch_create(&format!("sibling{n}"), &from).unwrap();
    }
    for n in 0..SIBLINGS {
        let view = store.view(&format!("sibling{n}")).unwrap();
        let ino = view.lookup(Ino::ROOT, b"block").unwrap().ino;
        view.write(ino, 0, &block(&format!("block of {n} ")), false)
            .unwrap();
        view.unlink(Ino::ROOT, b"name").unwrap();
        let name = create(&view, b"name");
        view.write(name, 0, format!("name of {n}").as_bytes(), false)
            .unwrap();
    }
    // The parent goes on writing: nobody may see that.
    main.write(ino, 4096, &block("later"), false).unwrap();
    for n in 0..SIBLINGS {
        let view = store.view(&format!("sibling{n}")).unwrap();
        let expected = [block(&format!("block of {n} ")), block("shared")].concat();
        assert_eq!(read(&view, b"block"), expected, "sibling {n}");
        assert_eq!(read(&view, b"name"), format!("name of {n}").as_bytes());
    }
    assert_eq!(
        read(&main, b"block"),
        [block("parent"), block("later")].concat()
    );
    assert_eq!(read(&main, b"name"), b"parent's");
    assert_clean(&store);
}

#[test]
fn ten_thousand_checkpoints_deep_everything_is_still_there() {
    const DEPTH: usize = 10_000;
    let _watchdog = Watchdog::new(600);
    let scratch = Scratch::new();
    let dir = scratch.path().join("store");
    let store = new_store(&dir, None);
    let view = store.view("main").unwrap();
    let old = create(&view, b"old");
    view.write(old, 0, b"from the beginning", false).unwrap();
    let counter = create(&view, b"counter");
    let mut marks = Vec::new();
    for n in 0..DEPTH {
        view.write(counter, 0, &n.to_le_bytes(), false).unwrap();
        let info = store.checkpoint("main", None, false).unwrap();
        assert!(!info.unchanged, "checkpoint {n}");
        if n % 1000 == 0 {
            marks.push((n, info.id));
        }
    }
    drop(view);
    drop(store);
    let store = Store::open(&dir).unwrap();
    assert_eq!(
        read(&store.view("main").unwrap(), b"old"),
        b"from the beginning"
    );
    for (n, id) in marks {
        let layer = store.checkpoint_info(id).unwrap().layer;
        let view = store.view_at(layer).unwrap();
        assert_eq!(read(&view, b"counter"), n.to_le_bytes());
        assert_eq!(read(&view, b"old"), b"from the beginning");
    }
    let back = store.resolve(&format!("main~{}", DEPTH / 2)).unwrap();
    let view = store.view_at(back.layer()).unwrap();
    let counter = usize::from_le_bytes(read(&view, b"counter").try_into().unwrap());
    assert!(
        (DEPTH / 2).abs_diff(counter) <= 1,
        "main~{} shows {counter}",
        DEPTH / 2
    );
    assert_clean(&store);
}

#[test]
fn a_child_does_not_see_what_its_parent_does_to_the_base() {
    let _watchdog = Watchdog::new(60);
    let scratch = Scratch::new();
    let base = scratch.dir("base");
    make_base(&base);
    let store = new_store(&scratch.path().join("store"), Some(&base));
    let child_from = store.resolve("main").unwrap();
    store.branch_create("child", &child_from).unwrap();
    let main = store.view("main").unwrap();
    let ino = main.lookup(Ino::ROOT, b"d").unwrap().ino;
    main.write(ino, 0, b"SMALL", false).unwrap();
    main.setattr(
        Caller::ROOT,
        ino,
        &SetAttr {
            perm: Some(0o600),
            ..SetAttr::default()
        },
    )
    .unwrap();
    let child = store.view("child").unwrap();
    assert_eq!(read(&child, b"d"), b"small");
    assert_eq!(child.lookup(Ino::ROOT, b"d").unwrap().perm, 0o644);
    assert_eq!(child.lookup(Ino::ROOT, b"d").unwrap().nlink, 3);
    assert_eq!(std::fs::read(base.join("d")).unwrap(), b"small");
    assert_clean(&store);
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    error.to_string()
}

#[test]
fn bad_names_of_branches_are_refused() {
    let scratch = Scratch::new();
    let store = new_store(&scratch.path().join("store"), None);
    let from = store.resolve("main").unwrap();
    let long = "x".repeat(4096);
    for name in [
        "", ".", "..", "a/b", "a\nb", "a\0b", "main~1", "-x", "\u{7f}", &long,
    ] {
        refused(store.branch_create(name, &from), ErrorKind::Invalid);
        refused(store.branch_rename("main", name), ErrorKind::Invalid);
    }
    refused(store.branch_create("main", &from), ErrorKind::Exists);
    refused(store.branch_delete("nobody"), ErrorKind::NotFound);
    refused(store.resolve("no such thing"), ErrorKind::NotFound);
    refused(store.resolve("main~5"), ErrorKind::NotFound);
    assert_eq!(store.branches().unwrap().len(), 1);
    assert_clean(&store);
}

#[test]
fn bad_names_of_files_are_refused() {
    let scratch = Scratch::new();
    let store = new_store(&scratch.path().join("store"), None);
    let view = store.view("main").unwrap();
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        let result = view.mkdir(Caller::ROOT, Ino::ROOT, name, 0o755, 0);
        assert!(result.is_err(), "{name:?} was accepted");
    }
    let long = view
        .mkdir(Caller::ROOT, Ino::ROOT, &[b'x'; 256], 0o755, 0)
        .unwrap_err();
    assert_eq!(long.errno(), Errno::ENAMETOOLONG);
    assert_clean(&store);
}

#[test]
fn a_branch_in_use_is_not_deleted() {
    let scratch = Scratch::new();
    let store = new_store(&scratch.path().join("store"), None);
    let from = store.resolve("main").unwrap();
    store.branch_create("other", &from).unwrap();
    let view = store.view("other").unwrap();
    refused(store.branch_delete("other"), ErrorKind::Busy);
    create(&view, b"still works");
    drop(view);
    store.branch_delete("other").unwrap();
    assert_clean(&store);
}

#[test]
fn a_second_opener_is_told_who_holds_the_store() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("store");
    let store = new_store(&dir, None);
    let message = refused(Store::open(&dir), ErrorKind::Busy);
    assert!(
        message.contains(&std::process::id().to_string()),
        "{message}"
    );
    drop(store);
    Store::open(&dir).unwrap();
}

#[test]
fn rolling_back_to_a_checkpoint_of_another_store_is_refused() {
    let scratch = Scratch::new();
    let ours = new_store(&scratch.path().join("ours"), None);
    let theirs = new_store(&scratch.path().join("theirs"), None);
    create(&theirs.view("main").unwrap(), b"f");
    let foreign = theirs.checkpoint("main", Some("foreign"), false).unwrap();
    refused(ours.resolve(&foreign.id.to_string()), ErrorKind::NotFound);
    let revision = theirs.resolve("foreign").unwrap();
    assert!(ours.rollback("main", &revision, None).is_err());
    assert_eq!(ours.branches().unwrap().len(), 1);
    assert_clean(&ours);
}

#[test]
fn what_is_no_store_or_no_base_is_refused() {
    let scratch = Scratch::new();
    refused(
        Store::open(&scratch.path().join("nowhere")),
        ErrorKind::NotFound,
    );
    refused(Store::open(&scratch.dir("empty")), ErrorKind::NotFound);
    let full = scratch.dir("full");
    std::fs::write(full.join("f"), b"x").unwrap();
    refused(
        Store::create(&full, &StoreOptions::default()),
        ErrorKind::Exists,
    );
    assert!(full.join("f").exists());
    for base in ["nothing here", "full/f"] {
        let options = StoreOptions {
            base: Some(scratch.path().join(base)),
        };
        assert!(
            Store::create(&scratch.path().join("new"), &options).is_err(),
            "{base}"
        );
    }
}

#[test]
fn a_base_that_vanishes_gives_errors_and_no_damage() {
    let scratch = Scratch::new();
    let base = scratch.dir("base");
    make_base(&base);
    let dir = scratch.path().join("store");
    let store = new_store(&dir, Some(&base));
    let view = store.view("main").unwrap();
    let ours = create(&view, b"ours");
    view.write(ours, 0, b"kept", false).unwrap();
    drop((view, store));
    std::fs::rename(&base, scratch.path().join("moved")).unwrap();
    if let Ok(store) = Store::open(&dir) {
        let view: Arc<View> = store.view("main").unwrap();
        assert!(view.lookup(Ino::ROOT, b"a").is_err());
    }
    std::fs::rename(scratch.path().join("moved"), &base).unwrap();
    let store = Store::open(&dir).unwrap();
    let view = store.view("main").unwrap();
    assert_eq!(read(&view, b"ours"), b"kept");
    assert_eq!(read(&view, b"d"), b"small");
    assert_clean(&store);
}
