//! Which runs the collector removes, and which it must not.

use std::sync::Arc;

use branchpoint_fs::attr::{Caller, FileKind};
use branchpoint_fs::collect::{Collected, collect};
use branchpoint_fs::id::Ino;
use branchpoint_fs::store::Store;
use branchpoint_fs::view::View;

use crate::history::{assert_clean, checked, new_memory, open, world};

const RUN: usize = 65_536;

fn file(view: &View, name: &[u8], bytes: &[u8]) -> Ino {
    let made = view.mknod(
        Caller::ROOT,
        Ino::ROOT,
        name,
        FileKind::Regular,
        0o644,
        0,
        0,
    );
    let ino = made.unwrap().ino;
    view.write(ino, 0, bytes, false).unwrap();
    ino
}

fn content(view: &View, ino: Ino) -> Vec<u8> {
    let mut bytes = Vec::new();
    view.read(ino, 0, 1 << 20, &mut bytes).unwrap();
    bytes
}

fn gc(store: &Arc<Store>) -> Collected {
    collect(store, false, &mut |_| Ok(())).unwrap()
}

fn run_of_numbers() -> Vec<u8> {
    (0..RUN).map(|n| (n / 4096) as u8 + 1).collect()
}

/// Only the first, a middle or the last block is overwritten, where the run was written, in a child,
/// or in a sibling: whoever saw the others sees them afterwards.
#[test]
fn a_run_of_which_one_block_was_overwritten_stays() {
    for block in [0, 7, 15] {
        let dir = tempfile::tempdir().unwrap();
        let kv = new_memory();
        let store = open(dir.path(), &kv);
        let view = store.view("main").unwrap();
        let same = file(&view, b"same", &run_of_numbers());
        let child = file(&view, b"child", &run_of_numbers());
        view.write(same, block * 4096, &[99; 4096], false).unwrap();
        let before = world(&store);
        assert_eq!(gc(&store).runs_removed, 0);
        assert_eq!(world(&store), before, "block {block}, one layer");
        store.checkpoint("main", Some("old"), false).unwrap();
        let old = store.resolve("old").unwrap();
        store.branch_create("sibling", &old).unwrap();
        view.write(child, block * 4096, &[98; 4096], false).unwrap();
        store.checkpoint("main", Some("new"), false).unwrap();
        let before = world(&store);
        assert_eq!(gc(&store).runs_removed, 0);
        assert_eq!(world(&store), before, "block {block}, two layers");
        // Without a name, what the sibling sees stays.
        for label in ["old", "new"] {
            let checkpoints = store.checkpoints().unwrap();
            let one = checkpoints
                .iter()
                .find(|one| one.label.as_deref() == Some(label));
            store.checkpoint_delete(one.unwrap().id).unwrap();
            let before = world(&store);
            gc(&store);
            assert_eq!(world(&store), before, "block {block}, without {label}");
            assert_clean(&store, label);
        }
        let sibling = store.view("sibling").unwrap();
        assert_eq!(content(&sibling, child), run_of_numbers());
        drop(sibling);
        // Now nobody sees the old block: the run stays for the others.
        store.branch_delete("sibling").unwrap();
        view.write(child, 0, &content(&view, child), false).unwrap();
        view.write(child, block * 4096, &[97; 4096], false).unwrap();
        let before = world(&store);
        gc(&store);
        assert_eq!(world(&store), before, "block {block}, without the sibling");
        assert_clean(&store, "in the end");
    }
}

#[test]
fn a_run_is_removed_when_its_last_block_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let view = store.view("main").unwrap();
    let ino = file(&view, b"f", &run_of_numbers());
    let mut expected = run_of_numbers();
    let (mut removed, mut rewritten) = (0, 0);
    // From the middle out, so that first and last are the last.
    for n in [8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15, 0] {
        view.write(ino, n as u64 * 4096, &[200 + n as u8; 4096], false)
            .unwrap();
        expected[n * 4096..(n + 1) * 4096].fill(200 + n as u8);
        let did = gc(&store);
        removed += did.runs_removed;
        rewritten += did.runs_rewritten;
        assert_eq!(content(&view, ino), expected, "block {n}");
        let report = checked(&store);
        assert!(report.is_clean(), "block {n}: {:#?}", report.problems);
        assert_eq!(report.counts.unused_runs, 0);
        // Never more than twice of what is used.
        assert!(report.counts.content_bytes <= 2 * RUN as u64, "{report:?}");
    }
    assert!(rewritten > 0, "{removed} removed");
    assert_eq!(checked(&store).counts.content_bytes, RUN as u64);
}

#[test]
fn a_run_that_a_copy_shares_is_neither_removed_nor_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let view = store.view("main").unwrap();
    let ino = file(&view, b"f", &run_of_numbers());
    store.checkpoint("main", None, false).unwrap();
    let copy = file(&view, b"copy", b"");
    view.copy_range(ino, 8 * 4096, copy, 0, 4096).unwrap();
    view.unlink(Ino::ROOT, b"f").unwrap();
    store.checkpoint("main", None, false).unwrap();
    let first = store.line("main").unwrap()[1].id;
    store.checkpoint_delete(first).unwrap();
    for _ in 0..2 {
        let did = gc(&store);
        assert_eq!((did.runs_removed, did.runs_rewritten), (0, 0));
        assert_eq!(content(&view, copy), [9; 4096]);
        assert_clean(&store, "collected");
    }
    view.unlink(Ino::ROOT, b"copy").unwrap();
    store.checkpoint("main", None, false).unwrap();
    let second = store.line("main").unwrap()[1].id;
    store.checkpoint_delete(second).unwrap();
    assert_eq!(gc(&store).runs_removed, 1);
    assert_clean(&store, "in the end");
}

#[test]
fn a_dry_run_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let view = store.view("main").unwrap();
    let ino = file(&view, b"f", &run_of_numbers());
    for n in 0..12u8 {
        view.write(ino, u64::from(n) * 4096, &[n; 4096], false)
            .unwrap();
        store.checkpoint("main", None, false).unwrap();
    }
    for checkpoint in &store.line("main").unwrap()[1..] {
        store.checkpoint_delete(checkpoint.id).unwrap();
    }
    let (before, counts) = (world(&store), checked(&store).counts);
    let would = collect(&store, true, &mut |_| Ok(())).unwrap();
    assert!(would.dry_run && would.layers_folded == 11, "{would:?}");
    assert!(would.bytes_freed > 11 * 4096, "{would:?}");
    assert_eq!(checked(&store).counts, counts);
    assert_eq!(world(&store), before);
    let did = gc(&store);
    assert_eq!(did.layers_folded, would.layers_folded);
    assert_eq!(world(&store), before);
}
