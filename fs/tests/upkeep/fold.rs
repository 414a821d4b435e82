//! Folding layers, and that nobody notices: whatever happens in between, and wherever it is cut off.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use branchpoint_fs::Error;
use branchpoint_fs::attr::{Caller, FileKind, SetAttr, Timestamp};
use branchpoint_fs::check::check;
use branchpoint_fs::collect::{Collected, collect};
use branchpoint_fs::id::Ino;
use branchpoint_fs::kv::Table;
use branchpoint_fs::kv::faulty::{At, Fault, FaultyKv, Plan, Then};
use branchpoint_fs::kv::memory::MemoryKv;
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_fs::view::View;

use crate::collect::entries;
use crate::history::{Random, Tree, assert_clean, checked, live, new_memory, open, tree, world};

const FOLDED: [Table; 7] = [
    Table::Layers,
    Table::Inodes,
    Table::Dentries,
    Table::Links,
    Table::Map,
    Table::Data,
    Table::Changes,
];

fn file(view: &View, name: &[u8]) -> Ino {
    let made = view.mknod(
        Caller::ROOT,
        Ino::ROOT,
        name,
        FileKind::Regular,
        0o644,
        0,
        0,
    );
    made.unwrap().ino
}

fn content(view: &View, ino: Ino) -> Vec<u8> {
    let mut bytes = Vec::new();
    view.read(ino, 0, 1 << 20, &mut bytes).unwrap();
    bytes
}

fn truncate(view: &View, ino: Ino, size: u64) {
    let change = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    view.setattr(Caller::ROOT, ino, &change).unwrap();
}

fn gc(store: &Arc<Store>) -> Collected {
    collect(store, false, &mut |_| Ok(())).unwrap()
}

/// Forgets all checkpoints but the youngest and the oldest.
fn forget_the_middle(store: &Store) {
    let line = store.line("main").unwrap();
    for checkpoint in &line[1..line.len() - 1] {
        store.checkpoint_delete(checkpoint.id).unwrap();
    }
}

/// What is shown, without what differs between two runs of one history.
fn timeless(store: &Arc<Store>) -> Vec<Tree> {
    let names = store.branches().unwrap().into_iter();
    let branches = names.map(|branch| tree(&store.view(&branch.name).unwrap()));
    let layers = store.checkpoints().unwrap().into_iter();
    let checkpoints = layers.map(|checkpoint| tree(&store.view_at(checkpoint.layer).unwrap()));
    let trees: Vec<Tree> = branches.chain(checkpoints).collect();
    let strip = |tree: Tree| -> Tree {
        let entries = tree.into_iter().map(|(path, (mut attr, content))| {
            let zero = Timestamp::default();
            (attr.atime, attr.mtime, attr.ctime, attr.btime) = (zero, zero, zero, zero);
            (path, (attr, content))
        });
        entries.collect::<BTreeMap<_, _>>()
    };
    trees.into_iter().map(strip).collect()
}

#[test]
fn a_store_that_is_collected_at_any_moment_shows_what_one_shows_that_never_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut folded = 0;
    let mut rewritten = 0;
    for seed in 1..=60u64 {
        println!("seed {seed}");
        let (kv, other) = (new_memory(), new_memory());
        let (store, never) = (open(dir.path(), &kv), open(dir.path(), &other));
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut moments = Random(seed + 77);
        for round in 0..25 {
            let mut same = Random(random.0);
            live(&store, &mut random, 3);
            live(&never, &mut same, 3);
            if moments.below(3) == 0 {
                let collected = gc(&store);
                folded += collected.layers_folded;
                rewritten += collected.runs_rewritten;
            }
            if round % 6 == 0 {
                assert!(
                    timeless(&store) == timeless(&never),
                    "seed {seed}, round {round}"
                );
                assert_clean(&store, &format!("seed {seed}, round {round}"));
            }
        }
        assert!(
            timeless(&store) == timeless(&never),
            "seed {seed}, in the end"
        );
        gc(&store);
        let report = checked(&store);
        assert!(report.is_clean(), "seed {seed}: {:#?}", report.problems);
        assert_eq!(report.counts.unused_runs, 0, "seed {seed}");
        drop(store);
        let store = open(dir.path(), &kv);
        assert!(
            timeless(&store) == timeless(&never),
            "seed {seed}, opened again"
        );
    }
    assert!(folded > 100 && rewritten > 10, "{folded}, {rewritten}");
}

#[test]
fn a_hundred_checkpoints_without_names_become_one_layer() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let view = store.view("main").unwrap();
    let ino = file(&view, b"f");
    store.checkpoint("main", Some("first"), false).unwrap();
    for n in 0..100u8 {
        view.write(ino, u64::from(n % 7) * 4096, &[n; 5000], false)
            .unwrap();
        let made = file(&view, &[b'a' + n % 26, b'0' + n / 26]);
        view.write(made, 0, &[n; 100], false).unwrap();
        store.checkpoint("main", None, false).unwrap();
    }
    let shown = content(&view, ino);
    forget_the_middle(&store);
    let before = world(&store);
    let did = gc(&store);
    assert_eq!(did.layers_folded, 99, "{did:?}");
    assert_eq!(world(&store), before);
    assert_eq!(content(&view, ino), shown);
    assert_clean(&store, "folded");
    // The root, the first checkpoint, the last one, the head.
    assert_eq!(
        store.stats().unwrap().layers_frozen + store.stats().unwrap().layers_open,
        4
    );
    // What is written afterwards lies on it as on any other layer.
    view.write(ino, 0, &[255; 9000], false).unwrap();
    assert_eq!(content(&view, ino)[..9000], [255; 9000]);
    drop(view);
    drop(store);
    let store = open(dir.path(), &kv);
    assert_clean(&store, "opened again");
}

/// In the child a block would not be older than the cut any more: it must not be moved there.
#[test]
fn what_a_truncation_hid_does_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let view = store.view("main").unwrap();
    let ino = file(&view, b"f");
    store.checkpoint("main", None, false).unwrap();
    view.write(ino, 0, &[1; 40_960], false).unwrap();
    store.checkpoint("main", None, false).unwrap();
    truncate(&view, ino, 8192);
    truncate(&view, ino, 40_960);
    store.checkpoint("main", None, false).unwrap();
    view.write(ino, 20_480, &[2; 10], false).unwrap();
    store.checkpoint("main", None, false).unwrap();
    let mut expected = vec![1; 8192];
    expected.resize(40_960, 0);
    expected[20_480..20_490].fill(2);
    assert_eq!(content(&view, ino), expected);
    forget_the_middle(&store);
    let did = gc(&store);
    assert_eq!(did.layers_folded, 2, "{did:?}");
    assert_clean(&store, "folded");
    let last = store.line("main").unwrap()[0].layer;
    assert_eq!(content(&store.view_at(last).unwrap(), ino), expected);
    let branch = store.resolve("main~0").unwrap();
    store.branch_create("other", &branch).unwrap();
    assert_eq!(content(&store.view("other").unwrap(), ino), expected);
}

#[test]
fn what_was_made_and_removed_in_folded_layers_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let view = store.view("main").unwrap();
    let kept = file(&view, b"kept");
    store.checkpoint("main", None, false).unwrap();
    let counts = FOLDED.map(|table| entries(&kv, table));
    let ino = file(&view, b"f");
    view.write(ino, 0, &[1; 200_000], false).unwrap();
    view.link(ino, Ino::ROOT, b"g").unwrap();
    store.checkpoint("main", None, false).unwrap();
    view.unlink(Ino::ROOT, b"f").unwrap();
    view.unlink(Ino::ROOT, b"g").unwrap();
    store.checkpoint("main", None, false).unwrap();
    view.write(kept, 0, b"x", false).unwrap();
    store.checkpoint("main", None, false).unwrap();
    forget_the_middle(&store);
    gc(&store);
    assert_clean(&store, "folded");
    let after = FOLDED.map(|table| entries(&kv, table));
    // One layer more: the root directory and the file again, a block, and the changes for them.
    let more: Vec<usize> = after.iter().zip(counts).map(|(a, b)| a - b).collect();
    assert_eq!(more, [1, 2, 0, 0, 1, 0, 3], "{FOLDED:?}");
}

#[test]
fn a_layer_is_not_folded_while_a_view_shows_it_or_what_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let view = store.view("main").unwrap();
    let ino = file(&view, b"f");
    for n in 0..4u8 {
        view.write(ino, 0, &[n; 5000], false).unwrap();
        store.checkpoint("main", None, false).unwrap();
    }
    let line = store.line("main").unwrap();
    let shown = store.view_at(line[1].layer).unwrap();
    forget_the_middle(&store);
    assert_eq!(gc(&store).layers_folded, 0);
    assert_eq!(content(&shown, ino), [2; 5000]);
    drop(shown);
    assert_eq!(gc(&store).layers_folded, 2);
    assert!(store.view_at(line[2].layer).is_err());
    assert_eq!(content(&view, ino), [3; 5000]);
    assert_clean(&store, "in the end");
}

/// Bytes that a copy shares stay, whatever the layer is called in which they lie.
#[test]
fn copies_of_what_lies_in_a_folded_layer_stay_readable() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let view = store.view("main").unwrap();
    let ino = file(&view, b"f");
    store.checkpoint("main", None, false).unwrap();
    view.write(ino, 0, &[7; 65_536], false).unwrap();
    store.checkpoint("main", None, false).unwrap();
    view.write(ino, 4096, &[8; 4096], false).unwrap();
    store.checkpoint("main", None, false).unwrap();
    forget_the_middle(&store);
    assert_eq!(gc(&store).layers_folded, 1);
    let copy = file(&view, b"copy");
    view.copy_range(ino, 0, copy, 0, 65_536).unwrap();
    let expected = content(&view, ino);
    assert_clean(&store, "copied");
    view.unlink(Ino::ROOT, b"f").unwrap();
    for _ in 0..3 {
        store.checkpoint("main", None, false).unwrap();
        forget_the_middle(&store);
        gc(&store);
        assert_eq!(content(&view, copy), expected);
        assert_clean(&store, "collected");
        view.setattr(Caller::ROOT, copy, &SetAttr::default())
            .unwrap();
        view.write(copy, 60_000, &[9; 10], false).unwrap();
        view.write(copy, 60_000, &expected[60_000..60_010], false)
            .unwrap();
    }
}

fn image_with_much_to_fold(dir: &std::path::Path) -> Arc<MemoryKv> {
    let image = new_memory();
    let store = open(dir, &image);
    let mut random = Random(4711);
    for _ in 0..12 {
        live(&store, &mut random, 6);
        for branch in store.branches().unwrap() {
            store.checkpoint(&branch.name, None, false).unwrap();
        }
    }
    for (n, checkpoint) in store.checkpoints().unwrap().iter().enumerate() {
        if n % 9 != 0 {
            store.checkpoint_delete(checkpoint.id).unwrap();
        }
    }
    drop(store);
    image
}

/// Cuts the collection off at each of its writes in turn.
#[test]
fn folding_that_was_killed_is_completed_by_the_next_collection() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_much_to_fold(dir.path());
    let before = world(&open(dir.path(), &Arc::new((*image).clone())));
    let whole = Arc::new((*image).clone());
    let expected = gc(&open(dir.path(), &whole));
    assert!(
        expected.layers_folded > 5 && expected.runs_removed > 0,
        "{expected:?}"
    );
    for n in 1.. {
        let kv = Arc::new(FaultyKv::cut_at((*image).clone(), n));
        let store = Store::open_in(dir.path(), Box::new(Arc::clone(&kv))).unwrap();
        let outcome = collect(&store, false, &mut |_| Ok(()));
        drop(store);
        assert_eq!(outcome.is_err(), kv.fired(), "write {n}");
        let left = Arc::new(kv.inner().clone());
        let store = open(dir.path(), &left);
        assert_clean(&store, &format!("cut at write {n}"));
        assert_eq!(world(&store), before, "cut at write {n}");
        // Life goes on before anything is completed.
        let extra = store.view("main").unwrap();
        extra
            .mkdir(Caller::ROOT, Ino::ROOT, b"extra", 0o755, 0)
            .unwrap();
        let checkpoint = store.checkpoint("main", None, false).unwrap();
        extra.rmdir(Ino::ROOT, b"extra").unwrap();
        drop(extra);
        store.checkpoint_delete(checkpoint.id).unwrap();
        let between = world(&store);
        gc(&store);
        assert_clean(&store, &format!("cut at write {n}, collected again"));
        assert_eq!(world(&store), between, "write {n}");
        if !kv.fired() {
            assert!(n > 10);
            break;
        }
    }
}

/// A disk that is full for a moment: the store stays open, and the next collection completes it.
#[test]
fn folding_that_failed_is_completed_by_the_next_collection() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_much_to_fold(dir.path());
    let before = world(&open(dir.path(), &Arc::new((*image).clone())));
    let whole = Arc::new((*image).clone());
    gc(&open(dir.path(), &whole));
    for n in 1.. {
        let plan = Plan {
            at: At::Write(n),
            fault: Fault::NoSpace,
            then: Then::GoOn,
        };
        let kv = Arc::new(FaultyKv::new((*image).clone(), Some(plan)));
        let store = Store::open_in(dir.path(), Box::new(Arc::clone(&kv))).unwrap();
        let outcome = collect(&store, false, &mut |_| Ok(()));
        assert_eq!(outcome.is_err(), kv.fired(), "write {n}");
        assert_clean(&store, &format!("failed at write {n}"));
        gc(&store);
        assert_eq!(world(&store), before, "write {n}");
        assert_clean(&store, &format!("failed at write {n}, collected again"));
        drop(store);
        for table in FOLDED {
            let left = entries(kv.inner(), table);
            assert_eq!(left, entries(&whole, table), "write {n}, {table:?}");
        }
        if !kv.fired() {
            break;
        }
    }
}

/// Two writers and readers work on what is being folded and swept under them.
#[test]
fn views_go_on_while_layers_are_folded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    Store::create(&path, &StoreOptions::default()).unwrap();
    let store = Store::open(&path).unwrap();
    let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (store, stop, writes) = (&store, &stop, &writes);
        for name in [b"a", b"b"] {
            scope.spawn(move || {
                let view = store.view("main").unwrap();
                let ino = file(&view, name);
                let mut expected = vec![0; 50 * 4096];
                let mut random = Random(u64::from(name[0]) * 7919);
                while !stop.load(Ordering::Relaxed) {
                    let at = random.below(49) as usize * 4096;
                    let len = 4096 * (1 + random.below(20) as usize).min(50 - at / 4096);
                    let byte = random.below(256) as u8;
                    match random.below(8) {
                        0 => {
                            truncate(&view, ino, at as u64);
                            expected[at..].fill(0);
                        }
                        _ => {
                            view.write(ino, at as u64, &vec![byte; len], false).unwrap();
                            expected[at..at + len].fill(byte);
                        }
                    }
                    let mut shown = content(&view, ino);
                    shown.resize(expected.len(), 0);
                    assert!(shown == expected);
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let work = || {
            let mut folded = 0;
            for round in 0..40 {
                for _ in 0..3 {
                    let before = writes.load(Ordering::Relaxed);
                    let began = Instant::now();
                    while writes.load(Ordering::Relaxed) < before + 4 {
                        assert!(began.elapsed() < Duration::from_secs(60), "nobody writes");
                        std::thread::yield_now();
                    }
                    store.checkpoint("main", None, false).unwrap();
                }
                let line = store.line("main").unwrap();
                if line.len() > 2 {
                    forget_the_middle(store);
                }
                folded += gc(store).layers_folded;
                if round % 10 == 9 {
                    assert_clean(store, &format!("round {round}"));
                }
            }
            folded
        };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        let folded = outcome.unwrap();
        assert!(folded > 10, "{folded}");
    });
    assert_clean(&store, "in the end");
    drop(store);
    assert_clean(&Store::open(&path).unwrap(), "opened again");
}

/// Whoever asked for it goes away after ever more steps.
#[test]
fn a_collection_can_be_interrupted_at_any_step() {
    let dir = tempfile::tempdir().unwrap();
    let image = image_with_much_to_fold(dir.path());
    let before = world(&open(dir.path(), &Arc::new((*image).clone())));
    for steps in (0..).step_by(7) {
        let kv = Arc::new((*image).clone());
        let store = open(dir.path(), &kv);
        let mut left = steps;
        let outcome = collect(&store, false, &mut |_| {
            if left == 0 {
                return Err(Error::Interrupted);
            }
            left -= 1;
            Ok(())
        });
        assert_clean(&store, &format!("interrupted after {steps} steps"));
        assert_eq!(world(&store), before, "{steps} steps");
        match outcome {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, Error::Interrupted), "{error}"),
        }
        gc(&store);
        assert_clean(&store, &format!("completed after {steps} steps"));
        assert_eq!(world(&store), before, "{steps} steps");
    }
}

#[test]
fn looking_at_a_store_can_be_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let view = store.view("main").unwrap();
    for n in 0..600u32 {
        file(&view, format!("f{n}").as_bytes());
    }
    let mut told = 0;
    let outcome = check(&store, &mut |_| {
        told += 1;
        Err(Error::Interrupted)
    });
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
    assert_eq!(told, 1, "nothing more is looked at");
    assert_clean(&store, "looked at again");
}
