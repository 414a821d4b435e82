//! Branches and checkpoints: what each operation leaves behind, what it costs, what it refuses.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use branchpoint_fs::attr::{Caller, FileKind};
use branchpoint_fs::branch::{BranchInfo, CheckpointInfo, Revision};
use branchpoint_fs::error::{Error, ErrorKind, Result};
use branchpoint_fs::id::{CheckpointId, Ino, LayerId};
use branchpoint_fs::kv::faulty::{At, Fault, FaultyKv, Plan, Then};
use branchpoint_fs::kv::memory::MemoryKv;
use branchpoint_fs::kv::{Batch, Durability, Key, Kv, Table, Visitor};
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_fs::view::View;
use nix::errno::Errno;

/// An engine in memory that the test can look at and break while the store has it.
#[derive(Clone, Debug)]
struct Engine {
    kv: Arc<FaultyKv<MemoryKv>>,
    /// Reads, and entries written.
    steps: Arc<AtomicU64>,
}

impl Engine {
    fn count(&self, steps: usize) {
        self.steps.fetch_add(steps as u64, Ordering::Relaxed);
    }

    /// Lets the next write find a full disk.
    fn fill_disk(&self) {
        let at = At::Write(self.kv.writes() + 1);
        self.kv.set_plan(Some(Plan {
            at,
            fault: Fault::NoSpace,
            then: Then::GoOn,
        }));
    }

    /// Returns how many batches `work` wrote.
    fn writes_of<T>(&self, work: impl FnOnce() -> T) -> u64 {
        let before = self.kv.writes();
        work();
        self.kv.writes() - before
    }
}

impl Kv for Engine {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.count(1);
        self.kv.get(table, key)
    }

    fn seek(&self, table: Table, from: &[u8], prefix: usize) -> Result<Option<(Key, Vec<u8>)>> {
        self.count(1);
        self.kv.seek(table, from, prefix)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visitor<'_>) -> Result<()> {
        self.kv.scan(table, from, &mut |key, value| {
            self.count(1);
            visit(key, value)
        })
    }

    fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.count(batch.len());
        self.kv.write(batch, durability)
    }

    fn sync(&self) -> Result<()> {
        self.kv.sync()
    }

    fn size_bytes(&self, table: Table, from: &[u8], to: &[u8]) -> Result<u64> {
        self.kv.size_bytes(table, from, to)
    }

    fn snapshot(&self) -> Result<Box<dyn Kv + '_>> {
        self.kv.snapshot()
    }
}

fn new_store() -> (Arc<Store>, Engine) {
    let kv = Arc::new(FaultyKv::new(MemoryKv::new(), None));
    let engine = Engine {
        kv,
        steps: Arc::default(),
    };
    Store::create_in(&engine, &StoreOptions::default()).unwrap();
    let store = Store::open_in(Path::new("/nonexistent"), Box::new(engine.clone())).unwrap();
    // Numbers of layers are reserved ahead in a batch of their own; here, before anything counts.
    let root = store.branch("main").unwrap();
    store.branch_create("first", &branch(&root)).unwrap();
    store.branch_delete("first").unwrap();
    (store, engine)
}

fn branch(info: &BranchInfo) -> Revision {
    Revision::Branch {
        name: info.name.clone(),
        head: info.head,
    }
}

fn point(info: &CheckpointInfo) -> Revision {
    Revision::Checkpoint {
        id: info.id,
        layer: info.layer,
    }
}

fn touch(view: &View, name: &str) -> Ino {
    let made = view.mknod(
        Caller::ROOT,
        Ino::ROOT,
        name.as_bytes(),
        FileKind::Regular,
        0o644,
        0,
        0,
    );
    made.unwrap().ino
}

fn has(view: &View, name: &str) -> bool {
    match view.lookup(Ino::ROOT, name.as_bytes()) {
        Ok(_) => true,
        Err(Error::Posix(Errno::ENOENT)) => false,
        Err(error) => panic!("{name}: {error:?}"),
    }
}

/// Everything about lines that can be asked for.
fn shape(store: &Arc<Store>) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        store.branches().unwrap(),
        store.checkpoints().unwrap(),
        store.log().unwrap(),
    )
}

#[test]
fn branch_sees_its_source_as_it_was_and_neither_sees_the_other() {
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    touch(&main, "before");
    let old_head = main.head();
    let try_ = store
        .branch_create("try", &store.resolve("main").unwrap())
        .unwrap();
    assert_ne!(
        main.head(),
        old_head,
        "the source goes on in a layer of its own"
    );
    let other = store.view("try").unwrap();
    assert_eq!(other.head(), try_.head);
    touch(&main, "in main");
    touch(&other, "in try");
    assert!(has(&main, "before") && has(&main, "in main") && !has(&main, "in try"));
    assert!(has(&other, "before") && has(&other, "in try") && !has(&other, "in main"));
}

#[test]
fn each_change_is_one_batch() {
    let (store, engine) = new_store();
    let main = store.view("main").unwrap();
    touch(&main, "a");
    let mut first = None;
    assert_eq!(
        engine.writes_of(|| first = store.checkpoint("main", None, false).ok()),
        1
    );
    let first = first.unwrap();
    touch(&main, "b");
    let head = store.resolve("main").unwrap();
    assert_eq!(
        engine.writes_of(|| store.branch_create("x", &head).unwrap()),
        1
    );
    assert_eq!(
        engine.writes_of(|| store.branch_create("y", &point(&first)).unwrap()),
        1
    );
    assert_eq!(
        engine.writes_of(|| store.branch_rename("y", "z").unwrap()),
        1
    );
    assert_eq!(
        engine.writes_of(|| store.rollback("main", &point(&first), Some("k")).unwrap()),
        1
    );
    assert_eq!(
        engine.writes_of(|| store.checkpoint_delete(first.id).unwrap()),
        1
    );
    assert_eq!(engine.writes_of(|| store.branch_delete("x").unwrap()), 1);
}

/// Counts what the engine is asked for and given, which unlike time says the same each run.
#[test]
fn cost_depends_neither_on_depth_nor_on_siblings() {
    let (store, engine) = new_store();
    let mut made = 0;
    let mut costs = || {
        // The lesser of two: one of 64 new layers writes down the next 64 numbers.
        let mut once = || {
            let steps = || engine.steps.swap(0, Ordering::Relaxed);
            touch(&store.view("main").unwrap(), &format!("file {made}"));
            steps();
            let checkpoint = store.checkpoint("main", None, false).unwrap();
            let checkpoint_steps = steps();
            store
                .branch_create(&format!("b{made}"), &point(&checkpoint))
                .unwrap();
            let branch_steps = steps();
            store.rollback("main", &point(&checkpoint), None).unwrap();
            made += 1;
            [checkpoint_steps, branch_steps, steps()]
        };
        let (one, two) = (once(), once());
        std::array::from_fn::<_, 3, _>(|at| one[at].min(two[at]))
    };
    let first = costs();
    for _ in 0..150 {
        costs();
    }
    assert_eq!(costs(), first);
    assert_eq!(store.line("main").unwrap().len(), 304);
}

#[test]
fn checkpoint_of_nothing_new_makes_none() {
    let (store, engine) = new_store();
    let main = store.view("main").unwrap();
    touch(&main, "a");
    let first = store.checkpoint("main", None, false).unwrap();
    assert!(!first.unchanged);
    let syncs = engine.kv.syncs();
    let again = store.checkpoint("main", None, true).unwrap();
    assert_eq!(
        again,
        CheckpointInfo {
            unchanged: true,
            ..first.clone()
        }
    );
    assert_eq!(engine.kv.syncs(), syncs + 1, "asked for as durable, it is");

    let head = main.head();
    let labelled = store.checkpoint("main", Some("label"), false).unwrap();
    assert_ne!(labelled.id, first.id);
    assert_eq!(
        (labelled.layer, labelled.parent),
        (first.layer, Some(first.id))
    );
    assert!(!labelled.unchanged);
    assert_eq!(main.head(), head, "an empty layer is not frozen");
    for label in [None, Some("label")] {
        let again = store.checkpoint("main", label, false).unwrap();
        assert!(again.unchanged && again.id == labelled.id, "{label:?}");
    }

    touch(&main, "b");
    assert!(!store.checkpoint("main", None, false).unwrap().unchanged);
    assert_eq!(store.checkpoints().unwrap().len(), 3);
}

#[test]
fn branches_of_an_empty_head_hang_on_its_parent() {
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    touch(&main, "a");
    let first = store.checkpoint("main", None, false).unwrap();
    let head = main.head();
    let info = store
        .branch_create("x", &store.resolve("main").unwrap())
        .unwrap();
    assert_eq!(main.head(), head);
    assert_eq!(info.parent_checkpoint, Some(first.id));
    let log = store.log().unwrap();
    let node = log
        .nodes
        .iter()
        .find(|node| node.layer == info.head)
        .unwrap();
    assert_eq!(node.parent, Some(first.layer));
}

#[test]
fn rollback_goes_back_and_keeps_what_it_left() {
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    let a = touch(&main, "a");
    let first = store.checkpoint("main", Some("a"), false).unwrap();
    touch(&main, "b");
    let second = store.checkpoint("main", Some("b"), false).unwrap();
    touch(&main, "c");
    let left = main.head();

    let outcome = store
        .rollback("main", &point(&first), Some("kept"))
        .unwrap();
    assert_eq!(
        (outcome.old_head, outcome.checkpoint),
        (left, Some(first.clone()))
    );
    assert!(matches!(main.getattr(a), Err(Error::Posix(Errno::ESTALE))));
    let refused = main.mknod(
        Caller::ROOT,
        Ino::ROOT,
        b"late",
        FileKind::Regular,
        0o644,
        0,
        0,
    );
    assert!(
        matches!(refused, Err(Error::Posix(Errno::ESTALE))),
        "{refused:?}"
    );

    let back = store.view("main").unwrap();
    assert_eq!(back.head(), outcome.new_head);
    assert!(has(&back, "a") && !has(&back, "b") && !has(&back, "c"));
    let kept = store.view("kept").unwrap();
    assert_eq!(kept.head(), left);
    assert!(has(&kept, "a") && has(&kept, "b") && has(&kept, "c"));
    assert_eq!(
        store.branch("kept").unwrap().parent_checkpoint,
        Some(second.id)
    );
    assert_eq!(
        store.branch("main").unwrap().parent_checkpoint,
        Some(first.id)
    );

    // Without `keep` the line that was left has no name any more, but its checkpoints stay.
    touch(&back, "d");
    store.rollback("main", &point(&second), None).unwrap();
    let back = store.view("main").unwrap();
    assert!(has(&back, "b") && !has(&back, "d"));
    assert_eq!(store.branches().unwrap().len(), 2);
}

#[test]
fn rollback_refuses_before_it_changes_anything() {
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    touch(&main, "a");
    let first = store.checkpoint("main", None, false).unwrap();
    let before = shape(&store);
    let to_branch = store
        .rollback("main", &store.resolve("main").unwrap(), None)
        .unwrap_err();
    assert_eq!(to_branch.kind(), ErrorKind::Invalid);
    assert!(to_branch.to_string().contains("'main~0'"), "{to_branch}");
    let taken = store.rollback("main", &point(&first), Some("main"));
    assert!(matches!(taken, Err(Error::BranchExists { .. })));
    let bad = store.rollback("main", &point(&first), Some("a/b"));
    assert!(matches!(bad, Err(Error::BadName { .. })));
    let gone = Revision::Checkpoint {
        id: CheckpointId(7),
        layer: LayerId(1),
    };
    assert!(matches!(
        store.rollback("main", &gone, None),
        Err(Error::NoSuchRevision { .. })
    ));
    let nobody = store.rollback("nobody", &point(&first), None);
    assert!(matches!(nobody, Err(Error::NoSuchBranch { .. })));
    assert_eq!(shape(&store), before);
    assert!(has(&main, "a"), "the view was not retired");
}

#[test]
fn a_failed_write_leaves_everything_as_it_was() {
    let (store, engine) = new_store();
    let main = store.view("main").unwrap();
    touch(&main, "a");
    let first = store.checkpoint("main", None, false).unwrap();
    touch(&main, "b");
    let (before, head) = (shape(&store), main.head());
    let from = store.resolve("main").unwrap();
    let attempts: [&dyn Fn() -> Option<Error>; 7] = [
        &|| store.checkpoint("main", Some("x"), true).err(),
        &|| store.branch_create("x", &from).err(),
        &|| store.branch_create("x", &point(&first)).err(),
        &|| store.rollback("main", &point(&first), Some("x")).err(),
        &|| store.rollback("main", &point(&first), None).err(),
        &|| store.branch_rename("main", "x").err(),
        &|| store.checkpoint_delete(first.id).err(),
    ];
    for (at, attempt) in attempts.iter().enumerate() {
        engine.fill_disk();
        let error = attempt().unwrap_or_else(|| panic!("attempt {at} succeeded"));
        assert_eq!(error.kind(), ErrorKind::NoSpace, "attempt {at}");
        assert_eq!(shape(&store), before, "attempt {at}");
        assert_eq!(main.branch().as_deref(), Some("main"));
        assert_eq!(main.head(), head, "attempt {at}");
        touch(&main, &format!("after {at}"));
    }
    let second = store.checkpoint("main", Some("x"), true).unwrap();
    assert_eq!(second.layer, head);
    assert!(has(&store.view_at(head).unwrap(), "after 6"));
}

#[test]
fn rename_of_a_branch_in_use() {
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    touch(&main, "a");
    let info = store.branch_rename("main", "trunk").unwrap();
    assert_eq!((info.name.as_str(), info.head), ("trunk", main.head()));
    assert_eq!(main.branch().as_deref(), Some("trunk"));
    assert!(
        Arc::ptr_eq(&main, &store.view("trunk").unwrap()),
        "still the one view"
    );
    assert!(matches!(
        store.view("main"),
        Err(Error::NoSuchBranch { .. })
    ));
    // It is still found where a layer is frozen under it.
    store.checkpoint("trunk", None, false).unwrap();
    assert_eq!(store.branch("trunk").unwrap().head, main.head());
    touch(&main, "b");

    store
        .branch_create("other", &store.resolve("trunk").unwrap())
        .unwrap();
    let taken = store.branch_rename("other", "trunk");
    assert!(matches!(taken, Err(Error::BranchExists { .. })));
    assert!(matches!(
        store.branch_rename("other", "-x"),
        Err(Error::BadName { .. })
    ));
    assert!(matches!(
        store.branch_rename("nobody", "x"),
        Err(Error::NoSuchBranch { .. })
    ));
}

#[test]
fn a_branch_in_use_and_the_last_one_are_not_deleted() {
    let (store, _) = new_store();
    let only = store.branch_delete("main").unwrap_err();
    assert_eq!(only.kind(), ErrorKind::Invalid);
    store
        .branch_create("x", &store.resolve("main").unwrap())
        .unwrap();
    let view = store.view("x").unwrap();
    assert!(matches!(
        store.branch_delete("x"),
        Err(Error::BranchBusy { .. })
    ));
    assert_eq!(store.stats().unwrap().views, 1);
    drop(view);
    assert_eq!(store.stats().unwrap().views, 0);
    store.branch_delete("x").unwrap();
    assert!(matches!(
        store.branch_delete("x"),
        Err(Error::NoSuchBranch { .. })
    ));
    // The name is free again, and its next owner has a view of its own.
    let again = store
        .branch_create("x", &store.resolve("main").unwrap())
        .unwrap();
    assert_eq!(store.view("x").unwrap().head(), again.head);
}

#[test]
fn revisions_are_tried_in_the_documented_order() {
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    let mut taken = Vec::new();
    for label in ["one", "two", "two", "nobody~9", "four"] {
        touch(&main, &format!("file {}", taken.len()));
        taken.push(store.checkpoint("main", Some(label), false).unwrap());
    }
    let is = |revision: &str, at: usize| {
        assert_eq!(
            store.resolve(revision).unwrap(),
            point(&taken[at]),
            "{revision}"
        );
    };
    let named = store.resolve("main").unwrap();
    assert!(
        matches!(&named, Revision::Branch { name, .. } if name == "main"),
        "{named:?}"
    );
    assert_eq!(named.layer(), main.head());
    for (back, at) in (0..5).rev().enumerate() {
        is(&format!("main~{back}"), at);
        is(&taken[at].id.to_string(), at);
        is(&taken[at].id.to_string().to_uppercase(), at);
        is(&taken[at].id.to_string()[..15], at);
    }
    is("one", 0);
    match store.resolve("two") {
        Err(Error::AmbiguousRevision { name, candidates }) => {
            let mut expected = vec![taken[1].id, taken[2].id];
            expected.sort();
            assert_eq!((name.as_str(), candidates), ("two", expected));
        }
        other => panic!("{other:?}"),
    }
    match store.resolve("main~9") {
        Err(Error::TooFarBack {
            branch,
            have: 5,
            want: 9,
        }) => assert_eq!(branch, "main"),
        other => panic!("{other:?}"),
    }
    for nothing in [
        "",
        "three",
        "main~",
        "main~-1",
        "nobody~0",
        "0000000000000000",
        "dea",
    ] {
        let found = store.resolve(nothing);
        assert!(
            matches!(found, Err(Error::NoSuchRevision { .. })),
            "{nothing}: {found:?}"
        );
    }
    // What would be found first is refused as a label, and says why.
    for label in ["main", "main~9", "0123456789abcdef"] {
        let refused = store.checkpoint("main", Some(label), false);
        assert!(
            matches!(&refused, Err(Error::BadName { name, .. }) if name == label),
            "{label}: {refused:?}"
        );
    }
    is("nobody~9", 3);
    // A branch takes the name of a label and of the beginning of an id.
    let prefix = taken[0].id.to_string()[..8].to_owned();
    for name in ["one", &prefix] {
        store.branch_create(name, &point(&taken[0])).unwrap();
        assert!(matches!(
            store.resolve(name).unwrap(),
            Revision::Branch { .. }
        ));
    }
}

#[test]
fn lines_close_over_deleted_checkpoints() {
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    let taken: Vec<CheckpointInfo> = (0..4)
        .map(|at| {
            touch(&main, &format!("file {at}"));
            store.checkpoint("main", None, false).unwrap()
        })
        .collect();
    store.branch_create("x", &point(&taken[3])).unwrap();
    store.checkpoint_delete(taken[1].id).unwrap();
    store.checkpoint_delete(taken[3].id).unwrap();
    for branch in ["main", "x"] {
        let line: Vec<CheckpointId> = store
            .line(branch)
            .unwrap()
            .iter()
            .map(|info| info.id)
            .collect();
        assert_eq!(line, [taken[2].id, taken[0].id], "{branch}");
        assert!(has(&store.view(branch).unwrap(), "file 3"), "{branch}");
    }
    assert!(matches!(
        store.checkpoint_delete(taken[3].id),
        Err(Error::NoSuchRevision { .. })
    ));
    // The newest that is left lies further back than the head, so a new one can be made.
    let again = store.checkpoint("main", None, false).unwrap();
    assert!(!again.unchanged);
    assert_eq!(
        (again.layer, again.parent),
        (taken[3].layer, Some(taken[2].id))
    );
}

#[test]
fn views_of_checkpoints_are_read_only_and_never_change() {
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    touch(&main, "a");
    let first = store.checkpoint("main", None, false).unwrap();
    let view = store.view_at(first.layer).unwrap();
    touch(&main, "b");
    assert!(has(&view, "a") && !has(&view, "b"));
    let refused = view.mknod(
        Caller::ROOT,
        Ino::ROOT,
        b"c",
        FileKind::Regular,
        0o644,
        0,
        0,
    );
    assert!(matches!(refused, Err(Error::Posix(Errno::EROFS))));
    let open = store.view_at(main.head()).unwrap_err();
    assert_eq!(open.kind(), ErrorKind::Invalid);
    assert_eq!(
        store.view_at(LayerId(1 << 40)).unwrap_err().kind(),
        ErrorKind::Corrupt
    );
}

#[test]
fn log_shows_names_forks_and_what_each_holds() {
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    let file = touch(&main, "file");
    main.write(file, 0, &[7; 8192], false).unwrap();
    let fork = main.head();
    store
        .branch_create("x", &store.resolve("main").unwrap())
        .unwrap();
    let unnamed = main.head();
    main.write(file, 0, &[8; 100], false).unwrap();
    let away = store
        .branch_create("away", &store.resolve("main").unwrap())
        .unwrap();
    store.branch_delete(&away.name).unwrap();
    // Beyond the first segment of the bitmap.
    main.write(file, 4 << 20, &[9; 4096], false).unwrap();
    let point = store.checkpoint("main", None, false).unwrap();

    let nodes = store.log().unwrap().nodes;
    let layers: Vec<LayerId> = nodes.iter().map(|node| node.layer).collect();
    let x = store.branch("x").unwrap().head;
    let mut expected = vec![LayerId::ROOT, fork, x, point.layer, main.head()];
    expected.sort();
    assert_eq!(layers, expected, "{unnamed} has one live child and no name");
    let node = |layer| nodes.iter().find(|node| node.layer == layer).unwrap();
    let facts = |layer| {
        let node = node(layer);
        (node.parent, node.private_bytes, node.shared_bytes)
    };
    assert_eq!(facts(LayerId::ROOT), (None, 0, 0));
    assert_eq!(facts(fork), (Some(LayerId::ROOT), 8192, 0));
    assert_eq!(facts(x), (Some(fork), 0, 8192));
    assert_eq!(facts(point.layer), (Some(fork), 8192, 8192));
    assert_eq!(facts(main.head()), (Some(point.layer), 0, 16384));
    assert_eq!(node(point.layer).checkpoints, [point]);
    assert_eq!(node(x).branches, ["x"]);
    let stats = store.stats().unwrap();
    assert_eq!(
        (stats.branches, stats.checkpoints, stats.layers_dead),
        (2, 1, 0)
    );
}

#[test]
fn everything_is_there_when_a_real_store_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    Store::create(&path, &StoreOptions::default()).unwrap();
    let store = Store::open(&path).unwrap();
    let main = store.view("main").unwrap();
    touch(&main, "a");
    let first = store.checkpoint("main", Some("first"), true).unwrap();
    touch(&main, "b");
    store
        .branch_create("x", &store.resolve("main").unwrap())
        .unwrap();
    store
        .rollback("main", &point(&first), Some("kept"))
        .unwrap();
    let before = shape(&store);
    let stats = store.stats().unwrap();
    assert!(stats.disk_bytes > 0 && stats.table_bytes.len() == Table::ALL.len());
    drop((main, store));

    let store = Store::open(&path).unwrap();
    assert_eq!(shape(&store), before);
    for (branch, sees_b) in [("main", false), ("x", true), ("kept", true)] {
        let view = store.view(branch).unwrap();
        assert!(has(&view, "a"), "{branch}");
        assert_eq!(has(&view, "b"), sees_b, "{branch}");
    }
    // Numbers of layers go on where they were, so that children stay younger than their parents.
    touch(&store.view("x").unwrap(), "c");
    assert!(!store.checkpoint("x", None, false).unwrap().unchanged);
    assert_eq!(store.stats().unwrap().store_id, stats.store_id);
}

#[test]
fn checkpoints_under_a_writer_are_moments_of_it() {
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    let stop = AtomicBool::new(false);
    let (taken, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) {
                touch(&main, &format!("file {written}"));
                written += 1;
            }
            written
        });
        let mut taken = Vec::new();
        for at in 0..100 {
            taken.push(store.checkpoint("main", None, false).unwrap());
            let from = store.resolve("main").unwrap();
            store.branch_create(&format!("b{at}"), &from).unwrap();
            assert!(Arc::ptr_eq(&main, &store.view("main").unwrap()));
        }
        stop.store(true, Ordering::Relaxed);
        (taken, writer.join().unwrap())
    });
    // Each has all that was written before some moment, none of what came later, and the moments
    // follow each other.
    let mut least = 0;
    for info in taken {
        let view = store.view_at(info.layer).unwrap();
        let count = (0..written)
            .take_while(|at| has(&view, &format!("file {at}")))
            .count();
        let late = (count..written).find(|at| has(&view, &format!("file {at}")));
        assert_eq!(late, None, "after {count} of {written}");
        assert!(count >= least, "{count} after {least}");
        least = count;
    }
    assert!(
        (0..written).all(|at| has(&main, &format!("file {at}"))),
        "nothing got lost"
    );
}

/// A listing looks up each entry's inode on its way; that must not wait for a change of the table of
/// layers that waits for the listing.
#[test]
fn a_checkpoint_is_listed_while_others_are_taken() {
    const ROUNDS: usize = 2000;
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    for at in 0..200 {
        touch(&main, &format!("file {at}"));
    }
    let frozen = store.checkpoint("main", None, false).unwrap().layer;
    let (done, both) = std::sync::mpsc::channel();
    let (reader, reader_done) = (Arc::clone(&store), done.clone());
    std::thread::spawn(move || {
        for _ in 0..ROUNDS {
            // Another view each time, whose cache is empty.
            let view = reader.view_at(frozen).unwrap();
            let mut count = 0;
            let mut visit = |_: &_, _: &_| {
                count += 1;
                true
            };
            view.readdir_plus(Ino::ROOT, 0, &mut visit).unwrap();
            assert_eq!(count, 202);
        }
        reader_done.send(()).unwrap();
    });
    std::thread::spawn(move || {
        for at in 0..ROUNDS {
            touch(&main, &format!("late {at}"));
            store.checkpoint("main", None, false).unwrap();
        }
        done.send(()).unwrap();
    });
    for _ in 0..2 {
        let waited = both.recv_timeout(std::time::Duration::from_secs(60));
        waited.expect("one of them waits for the other");
    }
}

/// A program holds a file without names while its mount goes to another branch and back.
#[test]
fn a_file_without_names_stays_while_a_mount_that_holds_it_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    Store::create(&path, &StoreOptions::default()).unwrap();
    let store = Store::open(&path).unwrap();
    let main = store.view("main").unwrap();
    let made = main.mknod(
        Caller::ROOT,
        Ino::ROOT,
        b"f",
        FileKind::Regular,
        0o644,
        0,
        0,
    );
    let ino = made.unwrap().ino;
    main.write(ino, 0, b"content", false).unwrap();
    let here = store.resolve("main").unwrap();
    store.branch_create("other", &here).unwrap();
    main.remember(ino, 1);
    let go = |from: &View, to: &View| to.adopt_references(&from.take_references());
    let content = |view: &View| {
        let mut bytes = Vec::new();
        view.read(ino, 0, 100, &mut bytes).map(|()| bytes)
    };
    let other = store.view("other").unwrap();
    go(&main, &other);
    other.unlink(Ino::ROOT, b"f").unwrap();
    assert_eq!(content(&other).unwrap(), b"content");
    go(&other, &main);
    drop(other);
    let other = store.view("other").unwrap();
    go(&main, &other);
    assert_eq!(content(&other).unwrap(), b"content");
    assert_eq!(content(&main).unwrap(), b"content");
    // A checkpoint holds it too; back there, the descriptor means it as it was.
    let checkpoint = store.checkpoint("other", None, false).unwrap();
    other.write(ino, 0, b"CONTENT", false).unwrap();
    let to = store.resolve(&checkpoint.id.to_string()).unwrap();
    store.rollback("other", &to, None).unwrap();
    let back = store.view("other").unwrap();
    go(&other, &back);
    drop(other);
    assert_eq!(content(&back).unwrap(), b"content");
    back.forget(ino, 1);
    assert!(content(&back).is_err(), "nobody holds it any more");
    assert!(content(&store.view_at(checkpoint.layer).unwrap()).is_ok());
    // To a state that never had it, there is nothing to hold.
    let report = branchpoint_fs::check::check(&store, &mut |_| Ok(())).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

#[test]
fn a_successor_takes_the_place_of_a_branch_while_both_are_in_use() {
    let (store, _) = new_store();
    let main = store.view("main").unwrap();
    let a = touch(&main, "a");
    let first = store.checkpoint("main", None, false).unwrap();
    let late = touch(&main, "late");
    store.branch_create("next", &point(&first)).unwrap();
    let next = store.view("next").unwrap();
    let taken = store.branch_replace("main", "next", Some("main"));
    assert!(matches!(taken, Err(Error::BranchExists { .. })));
    let nobody = store.branch_replace("main", "nobody", None);
    assert!(matches!(nobody, Err(Error::NoSuchBranch { .. })));

    store.branch_replace("main", "next", Some("kept")).unwrap();
    assert!(store.branch("next").is_err());
    assert_eq!(store.branch("main").unwrap().head, next.head());
    assert_eq!(store.branch("kept").unwrap().head, main.head());
    // Whoever works in one of them goes on there, and is found under its new name.
    assert!(Arc::ptr_eq(&store.view("main").unwrap(), &next));
    assert!(Arc::ptr_eq(&store.view("kept").unwrap(), &main));
    assert_eq!(next.branch().as_deref(), Some("main"));
    assert_eq!(main.branch().as_deref(), Some("kept"));
    assert!(main.getattr(late).is_ok() && next.getattr(a).is_ok());
    assert!(next.getattr(late).is_err());

    // Without a name for what is left, it goes on until it is let go of.
    store.branch_create("third", &point(&first)).unwrap();
    store.branch_replace("main", "third", None).unwrap();
    assert_eq!(next.branch(), None);
    touch(&next, "unseen");
    let main = store.view("main").unwrap();
    assert!(main.lookup(Ino::ROOT, b"unseen").is_err());
}
