//! What a checkpoint's processes leave in the store: found again, kept apart, not part of the tree.

use std::sync::Arc;

use branchpoint_fs::attr::{Caller, FileKind};
use branchpoint_fs::collect::collect;
use branchpoint_fs::diff::diff;
use branchpoint_fs::id::{BLOCK_BYTES, Ino, LayerId};
use branchpoint_fs::merge::merge;
use branchpoint_fs::store::Store;
use branchpoint_fs::view::View;

use crate::history::{assert_clean, new_memory, open};

/// Near the end of what a process can address.
const STACK: u64 = 0x7fff_ffff_e000;

fn put(view: &View, name: &str, text: &str) {
    let ino = match view.lookup(Ino::ROOT, name.as_bytes()) {
        Ok(attr) => attr.ino,
        Err(_) => {
            view.mknod(
                Caller::ROOT,
                Ino::ROOT,
                name.as_bytes(),
                FileKind::Regular,
                0o644,
                0,
                0,
            )
            .unwrap()
            .ino
        }
    };
    view.write(ino, 0, text.as_bytes(), false).unwrap();
}

fn get(view: &View, ino: Ino, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    view.read(ino, offset, len, &mut bytes).unwrap();
    bytes
}

/// Takes a checkpoint whose process has `mark` in its heap and its stack.
fn with_memory(store: &Arc<Store>, mark: u8) -> LayerId {
    let instant = store.begin_instant("main").unwrap();
    let annex = instant.view();
    annex.annex_clear().unwrap();
    let ino = annex.annex_create(b"memory-2").unwrap();
    for at in [0x40_0000, STACK] {
        let page = [mark; BLOCK_BYTES as usize];
        annex.write(ino, at, &page, false).unwrap();
    }
    let info = store.finish_instant(&instant, None, false).unwrap();
    assert!(info.has_processes);
    info.layer
}

fn mark_in(store: &Arc<Store>, layer: LayerId) -> Vec<u8> {
    let view = store.view_at(layer).unwrap();
    let object = view.annex_find(b"memory-2").unwrap().unwrap();
    assert_eq!(object.blocks * 512, 2 * BLOCK_BYTES, "holes take no space");
    let mut marks = get(&view, object.ino, 0x40_0000, 1);
    marks.extend(get(&view, object.ino, STACK + BLOCK_BYTES - 1, 1));
    marks
}

#[test]
fn each_checkpoint_has_its_own_memory_also_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let main = store.view("main").unwrap();
    put(&main, "file", "before");
    let first = with_memory(&store, 1);
    // Nothing was written in the tree between the two: they are two instants all the same.
    let second = with_memory(&store, 2);
    assert_ne!(first, second);
    put(&main, "file", "after!");
    assert_clean(&store, "with two checkpoints");
    drop((main, store));

    let store = open(dir.path(), &kv);
    assert_eq!(mark_in(&store, first), [1, 1]);
    assert_eq!(mark_in(&store, second), [2, 2]);
    collect(&store, false, &mut |_| Ok(())).unwrap();
    assert_eq!(mark_in(&store, first), [1, 1]);
    assert_clean(&store, "collected");
    let ids: Vec<_> = store.checkpoints().unwrap().iter().map(|c| c.id).collect();
    for id in ids {
        store.checkpoint_delete(id).unwrap();
    }
    collect(&store, false, &mut |_| Ok(())).unwrap();
    assert_clean(&store, "with both deleted");
}

#[test]
fn what_runs_meanwhile_does_not_reach_the_instant() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &new_memory());
    let main = store.view("main").unwrap();
    put(&main, "file", "then");
    let instant = store.begin_instant("main").unwrap();
    put(&main, "file", "now!");
    let object = instant.view().annex_create(b"image").unwrap();
    instant.view().write(object, 0, b"image", false).unwrap();
    let info = store.finish_instant(&instant, Some("both"), true).unwrap();
    assert_eq!(info.label.as_deref(), Some("both"));
    let shown = store.view_at(info.layer).unwrap();
    let file = shown.lookup(Ino::ROOT, b"file").unwrap();
    assert_eq!(get(&shown, file.ino, 0, 4), b"then");
    let file = main.lookup(Ino::ROOT, b"file").unwrap();
    assert_eq!(get(&main, file.ino, 0, 4), b"now!");
    let next = store.checkpoint("main", None, false).unwrap();
    assert_eq!(next.parent, Some(info.id));
    assert!(!next.has_processes);
}

#[test]
fn an_instant_given_up_is_no_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &new_memory());
    put(&store.view("main").unwrap(), "file", "x");
    let instant = store.begin_instant("main").unwrap();
    instant.view().annex_create(b"image").unwrap();
    drop(instant);
    assert!(store.checkpoints().unwrap().is_empty());
    assert_clean(&store, "given up");
    collect(&store, false, &mut |_| Ok(())).unwrap();
    assert_clean(&store, "collected");
}

#[test]
fn operations_on_trees_do_not_see_the_annex() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &new_memory());
    let main = store.view("main").unwrap();
    put(&main, "file", "x");
    let first = with_memory(&store, 1);
    store
        .branch_create("side", &store.resolve("main").unwrap())
        .unwrap();
    put(&store.view("side").unwrap(), "other", "y");
    let second = with_memory(&store, 2);
    assert_eq!(diff(&store, first, second).unwrap(), []);
    let side = store.resolve("side").unwrap();
    let paths: Vec<_> = diff(&store, second, side.layer()).unwrap();
    assert_eq!(paths.len(), 1);
    assert_eq!(paths[0].path, b"other");
    drop(main);
    let outcome = merge(&store, &side, "main", &mut |_| Ok(())).unwrap();
    assert_eq!((outcome.added, outcome.modified), (1, 0));
    let view = store.view("main").unwrap();
    let mut names = Vec::new();
    let mut visit = |entry: &branchpoint_fs::attr::DirEntry| {
        names.push(entry.name.clone());
        true
    };
    view.readdir(Ino::ROOT, 0, &mut visit).unwrap();
    assert_eq!(names.len(), 4, "dot, dot-dot, file, other");
    assert_eq!(view.path_of(Ino::ANNEX).unwrap(), None);
    assert_clean(&store, "merged");
}
