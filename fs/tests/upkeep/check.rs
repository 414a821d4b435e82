//! Every kind of damage is found, named, and stops nothing.

use std::path::Path;
use std::sync::Arc;

use branchpoint_fs::attr::{Caller, FileKind, XattrMode};
use branchpoint_fs::check::{CheckReport, Problem, check};
use branchpoint_fs::id::{BlockIndex, CheckpointId, Ino, LayerId};
use branchpoint_fs::kv::memory::MemoryKv;
use branchpoint_fs::kv::{Batch, Durability, Key, Kv, Step, Table};
use branchpoint_fs::layout::key::{self, ChangeOf};
use branchpoint_fs::layout::record::{
    BranchRecord, CheckpointRecord, DentryRecord, InodeRecord, LayerRecord, LayerState,
};
use branchpoint_fs::store::{Store, StoreOptions};

use crate::history::{assert_clean, checked, new_memory, open};

/// A store with one of everything: `main` has a checkpoint behind it, and `other` came off before.
struct Sample {
    _dir: tempfile::TempDir,
    kv: Arc<MemoryKv>,
    store: Arc<Store>,
    file: Ino,
    dir: Ino,
    sibling: Ino,
    layer: LayerId,
    checkpoint: CheckpointId,
}

fn sample() -> Sample {
    let dir = tempfile::tempdir().unwrap();
    let kv = new_memory();
    let store = open(dir.path(), &kv);
    let main = store.resolve("main").unwrap();
    store.branch_create("other", &main).unwrap();
    let view = store.view("main").unwrap();
    let me = Caller::ROOT;
    let sub = view.mkdir(me, Ino::ROOT, b"dir", 0o755, 0).unwrap().ino;
    let file = view
        .mknod(me, sub, b"file", FileKind::Regular, 0o644, 0, 0)
        .unwrap()
        .ino;
    view.write(file, 0, &vec![7; 200_000], false).unwrap();
    view.link(file, Ino::ROOT, b"link").unwrap();
    let sibling = view
        .mknod(me, Ino::ROOT, b"sibling", FileKind::Regular, 0o644, 0, 0)
        .unwrap()
        .ino;
    view.setxattr(me, file, b"user.x", b"1", XattrMode::Either)
        .unwrap();
    let checkpoint = store.checkpoint("main", None, false).unwrap();
    drop(view);
    assert_clean(&store, "before the damage");
    let (layer, checkpoint) = (checkpoint.layer, checkpoint.id);
    Sample {
        _dir: dir,
        kv,
        store,
        file,
        dir: sub,
        sibling,
        layer,
        checkpoint,
    }
}

impl Sample {
    fn put(&self, table: Table, key: &[u8], value: Vec<u8>) {
        let mut batch = Batch::new();
        batch.put(table, key, value);
        self.kv.write(&batch, Durability::Process).unwrap();
    }

    fn delete(&self, table: Table, key: &[u8]) {
        let mut batch = Batch::new();
        batch.delete(table, key);
        self.kv.write(&batch, Durability::Process).unwrap();
    }

    fn first(&self, table: Table, fits: impl Fn(&[u8]) -> bool) -> (Key, Vec<u8>) {
        let mut found = None;
        self.kv
            .scan(table, &[], &mut |key, value| {
                if !fits(key) {
                    return Ok(Step::Next);
                }
                found = Some((Key::from_slice(key), value.to_vec()));
                Ok(Step::Stop)
            })
            .unwrap();
        found.unwrap()
    }

    fn inode(&self, ino: Ino, change: impl FnOnce(&mut InodeRecord)) {
        let key = key::versioned(&key::inode(ino), self.layer);
        let value = self.kv.get(Table::Inodes, &key).unwrap().unwrap();
        let mut record = InodeRecord::decode(ino, &value).unwrap();
        change(&mut record);
        self.put(Table::Inodes, &key, record.encode());
    }

    /// Names of a directory lie behind its number.
    fn name_in(&self, dir: Ino, change: impl FnOnce(&mut DentryRecord)) {
        let start = key::inode(dir);
        let (key, value) = self.first(Table::Dentries, |key| key.starts_with(&start));
        let mut record = DentryRecord::decode(&value).unwrap().unwrap();
        change(&mut record);
        self.put(Table::Dentries, &key, record.encode());
    }

    /// Checks that the damage is found as what it is, and where: `main` and its checkpoint see it,
    /// `other` does not.
    #[track_caller]
    fn finds(&self, invariant: &str, what: &str) -> CheckReport {
        let report = checked(&self.store);
        let fits = |problem: &&Problem| problem.invariant == invariant && problem.what == what;
        let problem = report.problems.iter().find(fits);
        let problem = problem.unwrap_or_else(|| panic!("not found: {:#?}", report.problems));
        assert!(
            !problem.breaks.contains(&"other".to_owned()),
            "{problem:#?}"
        );
        report
    }

    #[track_caller]
    fn finds_in_main(&self, invariant: &str, what: &str) {
        let report = self.finds(invariant, what);
        let broken = ["main".to_owned(), self.checkpoint.to_string()];
        let all = report.problems.iter().any(|problem| {
            problem.what == what && broken.iter().all(|name| problem.breaks.contains(name))
        });
        assert!(all, "{:#?}", report.problems);
    }
}

#[test]
fn a_flipped_byte_of_content() {
    let sample = sample();
    let (key, mut value) = sample.first(Table::Data, |_| true);
    value[5000] ^= 1;
    sample.put(Table::Data, &key, value);
    sample.finds_in_main("I8", "a block is damaged");
}

#[test]
fn a_missing_and_a_short_run() {
    let short = sample();
    let (key, mut value) = short.first(Table::Data, |_| true);
    value.truncate(8192);
    short.put(Table::Data, &key, value);
    short.finds_in_main("I8", "a block is damaged");
    let missing = sample();
    missing.delete(Table::Data, &key);
    missing.finds_in_main("I8", "a block is damaged");
}

#[test]
fn a_run_that_nothing_points_at_is_counted_and_no_problem() {
    let sample = sample();
    sample.put(
        Table::Data,
        &key::run(sample.layer, sample.file, BlockIndex(0), 60_000),
        vec![1; 9],
    );
    let report = checked(&sample.store);
    assert!(report.is_clean(), "{:#?}", report.problems);
    assert_eq!(
        (report.counts.unused_runs, report.counts.unused_bytes),
        (1, 9)
    );
}

#[test]
fn entries_that_do_not_decode() {
    for table in [
        Table::Inodes,
        Table::Dentries,
        Table::Links,
        Table::Xattrs,
        Table::Map,
    ] {
        let sample = sample();
        let layer = sample.layer;
        let (key, value) = sample.first(table, |key| {
            key::layer_of(table, key).is_ok_and(|found| found == layer)
        });
        let mut longer = value;
        longer.insert(0, 77);
        sample.put(table, &key, longer);
        sample.finds_in_main("I1", "an entry is damaged");
        sample.put(table, b"short", vec![1]);
        sample.put(Table::Changes, b"x", vec![]);
        sample.put(Table::Base, b"x", vec![]);
        let report = checked(&sample.store);
        assert!(
            report
                .problems
                .iter()
                .any(|problem| problem.layer.is_none())
        );
    }
}

#[test]
fn changes_and_entries_that_do_not_match() {
    for (of, table) in [
        (ChangeOf::Inode, Table::Inodes),
        (ChangeOf::Dentry, Table::Dentries),
        (ChangeOf::Link, Table::Links),
        (ChangeOf::Xattr, Table::Xattrs),
        (ChangeOf::Blocks, Table::Map),
    ] {
        let unlisted = sample();
        let layer = unlisted.layer;
        let prefix = key::change(layer, of, &[]);
        let (change, _) = unlisted.first(Table::Changes, |key| key.starts_with(&prefix));
        unlisted.delete(Table::Changes, &change);
        unlisted.finds_in_main("I6", "a change is not listed among those of its layer");
        let missing = sample();
        let (entry, _) = missing.first(table, |key| {
            key::layer_of(table, key).is_ok_and(|found| found == layer)
        });
        missing.delete(table, &entry);
        let what = match of {
            ChangeOf::Blocks => "a block that a change lists is missing",
            _ => "what a change lists is missing",
        };
        missing.finds("I7", what);
    }
}

#[test]
fn entries_and_changes_of_no_layer() {
    let sample = sample();
    let nowhere = LayerId(5000);
    let thing = key::inode(sample.file);
    let (_, value) = sample.first(Table::Inodes, |key| key.starts_with(&thing));
    sample.put(Table::Inodes, &key::versioned(&thing, nowhere), value);
    sample.put(
        Table::Changes,
        &key::change(nowhere, ChangeOf::Inode, &thing),
        Vec::new(),
    );
    sample.finds("I6", "an entry belongs to no layer");
    sample.finds("I7", "a change belongs to no layer");
}

#[test]
fn link_counts() {
    let file = sample();
    file.inode(file.file, |record| record.attr.nlink = 3);
    file.finds_in_main("I12", "a link count is wrong");
    let dir = sample();
    dir.inode(dir.dir, |record| record.attr.nlink = 3);
    dir.finds_in_main("I12", "a directory's link count is wrong");
    let none = sample();
    none.inode(none.file, |record| record.attr.nlink = 0);
    none.finds_in_main("I12", "an inode without names is not noted as such");
    none.finds_in_main("I14", "a name leads to an inode that was removed");
}

#[test]
fn names_that_lead_astray() {
    let gone = sample();
    gone.name_in(gone.dir, |record| record.ino = Ino(4000));
    gone.finds_in_main("I10", "a name leads to an inode that is not there");
    gone.finds("I11", "an inode's own name does not lead to it");
    let kind = sample();
    kind.name_in(kind.dir, |record| record.kind = FileKind::Fifo);
    kind.finds_in_main("I10", "a name and its inode differ in kind");
    let other = sample();
    let to = other.dir;
    other.name_in(other.dir, |record| record.ino = to);
    other.finds_in_main("I10", "a name and its inode differ in kind");
    let unknown = sample();
    let to = unknown.sibling;
    unknown.name_in(unknown.dir, |record| record.ino = to);
    unknown.finds("I11", "an inode does not know one of its names");
    let lost = sample();
    lost.inode(lost.file, |record| record.name = b"elsewhere".to_vec());
    lost.finds_in_main("I11", "an inode's own name does not lead to it");
    let fresh = sample();
    fresh.inode(fresh.dir, |record| record.attr.kind = FileKind::Regular);
    fresh.finds("I10", "a name lies in what is no directory");
}

#[test]
fn directories_that_are_no_tree() {
    let circle = sample();
    circle.inode(circle.dir, |record| record.parent = record.attr.ino);
    circle.finds_in_main("I13", "a directory does not lie below the root");
    circle.finds("I13", "a directory's own name does not lead to it");
}

#[test]
fn inodes_that_contradict_themselves() {
    let changes: [fn(&mut InodeRecord); 5] = [
        |record| record.born = LayerId(900),
        |record| record.has_xattrs = false,
        |record| record.in_base = true,
        |record| record.attr.blocks = 3,
        |record| record.attr.size = u64::MAX,
    ];
    for change in changes {
        let sample = sample();
        sample.inode(sample.file, change);
        sample.finds_in_main("I15", "an inode contradicts itself");
    }
}

#[test]
fn branches_checkpoints_and_layers() {
    let sample = sample();
    let other = sample.store.branch("other").unwrap();
    let record = BranchRecord {
        head: sample.layer,
        checkpoint: None,
        created_us: 0,
    };
    sample.put(Table::Branches, b"frozen", record.encode());
    sample.finds("I3", "the head of a branch is not an open layer");
    let record = BranchRecord {
        head: other.head,
        checkpoint: None,
        created_us: 0,
    };
    sample.put(Table::Branches, b"frozen", record.encode());
    sample.put(Table::Branches, b"z", vec![9]);
    let report = checked(&sample.store);
    assert!(
        report
            .problems
            .iter()
            .any(|problem| problem.what.contains("another one's too"))
    );
    sample.delete(Table::Branches, b"frozen");
    sample.delete(Table::Branches, b"z");
    assert_clean(&sample.store, "mended");

    let record = CheckpointRecord {
        layer: other.head,
        parent: Some(CheckpointId(77)),
        branch: "main".to_owned(),
        label: None,
        created_us: 0,
        has_processes: false,
    };
    sample.put(
        Table::Checkpoints,
        &key::checkpoint(CheckpointId(5)),
        record.encode(),
    );
    sample.finds("I4", "the layer of a checkpoint is not frozen");
    sample.finds("I4", "the parent of a checkpoint is missing");
    sample.delete(Table::Checkpoints, &key::checkpoint(CheckpointId(5)));

    let record = LayerRecord {
        parent: Some(LayerId(800)),
        state: LayerState::Frozen,
        pinned: false,
        created_us: 0,
        adopted: Vec::new(),
        merged: Vec::new(),
    };
    sample.put(Table::Layers, &key::layer(LayerId(700)), record.encode());
    sample.finds("I2", "the parent of a layer is missing or younger");
    sample.put(Table::Meta, b"next_layer", 1u64.to_le_bytes().to_vec());
    sample.finds("I5", "a counter would give a number again");
}

#[test]
fn drift_of_the_base_is_reported_and_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    std::fs::create_dir_all(base.join("sub")).unwrap();
    for name in ["same", "longer", "gone"] {
        std::fs::write(base.join(name), "content").unwrap();
    }
    std::fs::hard_link(base.join("same"), base.join("sub/again")).unwrap();
    let kv = Arc::new(MemoryKv::new());
    let options = StoreOptions {
        base: Some(base.clone()),
    };
    Store::create_in(&*kv, &options).unwrap();
    let place = dir.path().join("store");
    std::fs::create_dir(&place).unwrap();
    let store = open(&place, &kv);
    let view = store.view("main").unwrap();
    let longer = view.lookup(Ino::ROOT, b"longer").unwrap().ino;
    view.write(longer, 100_000, b"mine", false).unwrap();
    view.unlink(Ino::ROOT, b"same").unwrap();
    let sub = view.lookup(Ino::ROOT, b"sub").unwrap().ino;
    view.lookup(sub, b"again").unwrap();
    let report = checked(&store);
    assert!(report.is_clean() && report.drift.is_empty(), "{report:#?}");
    assert_eq!(report.counts.base_inodes, 5);
    std::fs::write(base.join("longer"), "more content").unwrap();
    std::fs::remove_file(base.join("gone")).unwrap();
    let report = checked(&store);
    assert!(report.is_clean(), "{:#?}", report.problems);
    let mut paths: Vec<_> = report
        .drift
        .iter()
        .map(|drift| drift.path.as_str())
        .collect();
    paths.sort_unstable();
    assert_eq!(paths, ["gone", "longer"]);
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).unwrap();
        }
    }
}

/// Flips one byte of a file of a copy of the store; returns whether opening or checking notices.
fn notices(store: &Path, file: &Path, at: usize) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy");
    copy_dir(store, &copy);
    let file = copy.join(file.strip_prefix(store).unwrap());
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[at] ^= 0x40;
    std::fs::write(&file, &bytes).unwrap();
    match Store::open(&copy) {
        Err(_) => true,
        Ok(store) => match check(&store, &mut |_| Ok(())) {
            Err(_) => true,
            Ok(report) => report
                .problems
                .iter()
                .any(|problem| !problem.breaks.is_empty()),
        },
    }
}

#[test]
fn flipped_bytes_in_files_of_the_database_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    Store::create(&path, &StoreOptions::default()).unwrap();
    {
        let store = Store::open(&path).unwrap();
        let view = store.view("main").unwrap();
        for n in 0..100u8 {
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
            // Bytes that no compression makes shorter.
            let mut random = crate::history::Random(u64::from(n) + 1);
            let bytes: Vec<u8> = (0..40_000).map(|_| random.below(256) as u8).collect();
            view.write(file.ino, 0, &bytes, false).unwrap();
        }
        drop(view);
        store.checkpoint("main", None, true).unwrap();
    }
    // The log becomes table and blob files when the store is opened again.
    drop(Store::open(&path).unwrap());
    let mut tried = 0;
    for entry in std::fs::read_dir(path.join("db")).unwrap() {
        let file = entry.unwrap().path();
        let len = std::fs::metadata(&file).unwrap().len() as usize;
        let (first, step) = match file.extension().and_then(|extension| extension.to_str()) {
            // Entries lie at the start; what lies at the end may be statistics, of no consequence.
            Some("sst") => (20, len),
            Some("blob") => (len / 10, len / 5),
            _ => continue,
        };
        for at in (first..len).step_by(step) {
            assert!(
                notices(&path, &file, at),
                "byte {at} of {len} in {}",
                file.display()
            );
            tried += 1;
        }
    }
    assert!(tried > 5, "{tried}");
    let store = Store::open(&path).unwrap();
    assert_clean(&store, "without a flipped byte");
}
