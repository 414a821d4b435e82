//! What the collector removes, and that nobody notices.

use std::sync::Arc;

use branchpoint_fs::attr::{Caller, FileKind};
use branchpoint_fs::collect::{Collected, collect};
use branchpoint_fs::id::{BlockIndex, Ino};
use branchpoint_fs::kv::faulty::FaultyKv;
use branchpoint_fs::kv::memory::MemoryKv;
use branchpoint_fs::kv::{Batch, Durability, Kv, Step, Table};
use branchpoint_fs::layout::key;
use branchpoint_fs::layout::locator::{Locator, RunOwner};
use branchpoint_fs::layout::record::LayerRecord;
use branchpoint_fs::store::{Store, StoreOptions};

use crate::history::{Random, assert_clean, checked, live, new_memory, open, tree, world};

pub(crate) fn entries(kv: &MemoryKv, table: Table) -> usize {
    let mut count = 0;
    kv.scan(table, &[], &mut |_, _| {
        count += 1;
        Ok(Step::Next)
    })
    .unwrap();
    count
}

#[test]
fn random_histories_check_clean_and_collecting_changes_nothing_that_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 1..=40 {
        println!("seed {seed}");
        let mut random = Random(seed * 0x9e37_79b9);
        let kv = new_memory();
        let store = open(dir.path(), &kv);
        for round in 0..4 {
            live(&store, &mut random, 12);
            assert_clean(&store, &format!("seed {seed}, round {round}"));
            let before = world(&store);
            let would = collect(&store, true, &mut |_| Ok(())).unwrap();
            let did = collect(&store, false, &mut |_| Ok(())).unwrap();
            assert_eq!(would.layers_removed, did.layers_removed);
            assert_eq!(did.layers_kept, 0);
            assert_eq!(world(&store), before, "seed {seed}, round {round}");
            assert_clean(&store, &format!("seed {seed}, round {round}, collected"));
            let again = collect(&store, false, &mut |_| Ok(())).unwrap();
            let expected = Collected {
                layers_live: did.layers_live,
                ..Collected::default()
            };
            assert_eq!(again, expected);
        }
        drop(store);
        let store = open(dir.path(), &kv);
        assert_clean(&store, &format!("seed {seed}, opened again"));
    }
}

#[test]
fn nothing_of_a_deleted_branch_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let tables = [
        Table::Layers,
        Table::Inodes,
        Table::Dentries,
        Table::Links,
        Table::Xattrs,
        Table::Map,
        Table::Data,
        Table::Changes,
    ];
    let before = tables.map(|table| entries(&kv, table));
    let main = store.resolve("main").unwrap();
    store.branch_create("other", &main).unwrap();
    {
        let view = store.view("other").unwrap();
        for n in 0..50u8 {
            let name = [b'a' + n % 26, b'0' + n / 26];
            let file = view
                .mknod(
                    Caller::ROOT,
                    Ino::ROOT,
                    &name,
                    FileKind::Regular,
                    0o644,
                    0,
                    0,
                )
                .unwrap();
            view.write(file.ino, 0, &vec![n; 300_000], false).unwrap();
        }
    }
    let checkpoint = store.checkpoint("other", None, false).unwrap();
    store.branch_delete("other").unwrap();
    assert_eq!(
        collect(&store, false, &mut |_| Ok(()))
            .unwrap()
            .entries_removed,
        0
    );
    store.checkpoint_delete(checkpoint.id).unwrap();
    let collected = collect(&store, false, &mut |_| Ok(())).unwrap();
    assert!(collected.bytes_freed > 50 * 300_000, "{collected:?}");
    assert_eq!(tables.map(|table| entries(&kv, table)), before);
    assert_clean(&store, "in the end");
}

#[test]
fn what_a_view_shows_is_kept_until_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let old = store.view("main").unwrap();
    old.mkdir(Caller::ROOT, Ino::ROOT, b"first", 0o755, 0)
        .unwrap();
    let first = store.checkpoint("main", None, false).unwrap();
    old.mkdir(Caller::ROOT, Ino::ROOT, b"second", 0o755, 0)
        .unwrap();
    let second = store.checkpoint("main", None, false).unwrap();
    let shown = store.view_at(second.layer).unwrap();
    let seen = tree(&shown);
    let to = store.resolve(&first.id.to_string()).unwrap();
    store.rollback("main", &to, None).unwrap();
    store.checkpoint_delete(second.id).unwrap();
    let new = store.view("main").unwrap();
    let delta = old.delta_inodes(&new).unwrap();
    assert_eq!(
        collect(&store, false, &mut |_| Ok(()))
            .unwrap()
            .layers_removed,
        0
    );
    assert_eq!(old.delta_inodes(&new).unwrap(), delta);
    drop(old);
    assert_eq!(
        collect(&store, false, &mut |_| Ok(()))
            .unwrap()
            .layers_removed,
        1
    );
    assert_eq!(tree(&shown), seen);
    drop(shown);
    assert_eq!(
        collect(&store, false, &mut |_| Ok(()))
            .unwrap()
            .layers_removed,
        1
    );
    assert!(store.view_at(second.layer).is_err());
    assert_clean(&store, "in the end");
}

/// Cuts the collection off at each of its writes in turn.
#[test]
fn a_collection_that_was_killed_is_finished_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let image = new_memory();
    {
        let store = open(dir.path(), &image);
        let mut random = Random(77);
        live(&store, &mut random, 60);
        let main = store.branches().unwrap()[0].clone();
        for branch in store.branches().unwrap().iter().skip(1) {
            store.branch_delete(&branch.name).unwrap();
        }
        for checkpoint in store.checkpoints().unwrap() {
            store.checkpoint_delete(checkpoint.id).unwrap();
        }
        assert_eq!(store.branches().unwrap()[0].name, main.name);
    }
    let before = world(&open(dir.path(), &Arc::new((*image).clone())));
    let whole = Arc::new((*image).clone());
    let expected = collect(&open(dir.path(), &whole), false, &mut |_| Ok(())).unwrap();
    assert!(expected.layers_removed > 3, "{expected:?}");
    for n in 1.. {
        let kv = Arc::new(FaultyKv::cut_at((*image).clone(), n));
        let store = Store::open_in(dir.path(), Box::new(Arc::clone(&kv))).unwrap();
        let outcome = collect(&store, false, &mut |_| Ok(()));
        drop(store);
        assert_eq!(outcome.is_err(), kv.fired(), "write {n}");
        let left = Arc::new(kv.inner().clone());
        let store = open(dir.path(), &left);
        assert_clean(&store, &format!("cut at write {n}"));
        collect(&store, false, &mut |_| Ok(())).unwrap();
        assert_clean(&store, &format!("cut at write {n}, collected again"));
        assert_eq!(world(&store), before, "write {n}");
        for table in [
            Table::Layers,
            Table::Map,
            Table::Data,
            Table::Changes,
            Table::Inodes,
        ] {
            assert_eq!(
                entries(&left, table),
                entries(&whole, table),
                "write {n}, {table:?}"
            );
        }
        if !kv.fired() {
            assert!(n > 3);
            break;
        }
    }
}

#[test]
fn a_thousand_dead_layers_on_disk_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    Store::create(&path, &StoreOptions::default()).unwrap();
    let store = Store::open(&path).unwrap();
    {
        let view = store.view("main").unwrap();
        let file = view
            .mknod(
                Caller::ROOT,
                Ino::ROOT,
                b"f",
                FileKind::Regular,
                0o644,
                0,
                0,
            )
            .unwrap();
        for n in 0..1000u32 {
            view.write(file.ino, 0, &n.to_le_bytes().repeat(2000), false)
                .unwrap();
            store.checkpoint("main", None, false).unwrap();
        }
    }
    let first = store.line("main").unwrap().pop().unwrap();
    for checkpoint in store.line("main").unwrap().iter().rev().skip(1) {
        store.checkpoint_delete(checkpoint.id).unwrap();
    }
    let to = store.resolve(&first.id.to_string()).unwrap();
    store.rollback("main", &to, None).unwrap();
    let before = world(&store);
    let collected = collect(&store, false, &mut |_| Ok(())).unwrap();
    assert_eq!(collected.layers_removed, 1000, "{collected:?}");
    assert_eq!(world(&store), before);
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(world(&store), before);
    let report = checked(&store);
    assert!(report.is_clean(), "{:#?}", report.problems);
    assert_eq!(report.counts.layers, 3);
}

/// What a merge may one day leave: an entry that points at runs of a layer on another line.
#[test]
fn runs_of_a_dead_pinned_layer_stay_as_long_as_something_points_at_them() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let me = Caller::ROOT;
    let revision = store.resolve("main").unwrap();
    store.branch_create("other", &revision).unwrap();
    let make = |branch: &str, bytes: &[u8]| {
        let view = store.view(branch).unwrap();
        let file = view
            .mknod(me, Ino::ROOT, b"f", FileKind::Regular, 0o644, 0, 0)
            .unwrap();
        view.write(file.ino, 0, bytes, false).unwrap();
        file.ino
    };
    let theirs = make("other", &[7; 4096]);
    let ours = make("main", &[1; 4096]);
    let checkpoint = store.checkpoint("other", None, false).unwrap();
    let head = store.branch("main").unwrap().head;
    drop(store);
    let block = |ino| key::block(ino, BlockIndex(0));
    let from = key::versioned(&block(theirs), checkpoint.layer);
    let value = kv.get(Table::Map, &from).unwrap().unwrap();
    let Locator::Run(place) = Locator::decode(&value).unwrap() else {
        panic!("no run")
    };
    let owner = RunOwner {
        layer: checkpoint.layer,
        object: theirs,
        first: BlockIndex(0),
    };
    let layer = key::layer(checkpoint.layer);
    let value = kv.get(Table::Layers, &layer).unwrap().unwrap();
    let mut record = LayerRecord::decode(&value).unwrap();
    record.pinned = true;
    let mut batch = Batch::new();
    batch.put(Table::Layers, layer, record.encode());
    let entry = key::versioned(&block(ours), head);
    batch.put(Table::Map, entry, Locator::Shared(place, owner).encode());
    kv.write(&batch, Durability::Process).unwrap();

    let store = open(dir.path(), &kv);
    assert_clean(&store, "shared");
    store.branch_delete("other").unwrap();
    store.checkpoint_delete(checkpoint.id).unwrap();
    for _ in 0..2 {
        let collected = collect(&store, false, &mut |_| Ok(())).unwrap();
        assert_eq!(collected.layers_kept, 1, "{collected:?}");
        assert_clean(&store, "the owner is dead");
    }
    drop(store);
    let store = open(dir.path(), &kv);
    assert_clean(&store, "opened again");
    let view = store.view("main").unwrap();
    let mut bytes = Vec::new();
    view.read(ours, 0, 4096, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4096]);
    view.unlink(Ino::ROOT, b"f").unwrap();
    let collected = collect(&store, false, &mut |_| Ok(())).unwrap();
    assert_eq!((collected.layers_kept, collected.layers_removed), (0, 1));
    assert_eq!(checked(&store).counts.runs, 0);
}
