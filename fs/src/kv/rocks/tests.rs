use tempfile::TempDir;

use super::*;
use crate::kv::suite;

fn open(dir: &TempDir) -> RocksKv {
    RocksKv::open(dir.path(), false).unwrap()
}

#[test]
fn keeps_the_promises_of_the_trait() {
    let mut dirs = Vec::new();
    suite::run_all(&mut || {
        let dir = TempDir::new().unwrap();
        let kv = open(&dir);
        dirs.push(dir);
        Box::new(kv)
    });
}

#[test]
fn keeps_the_promises_of_the_trait_when_flushed_all_the_time() {
    /// Flushes before each scan and batched get, which the suite does every few operations, so that
    /// files and their filters answer and not memory alone.
    #[derive(Debug)]
    struct Flushing(RocksKv);

    impl Kv for Flushing {
        fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
            self.0.get(table, key)
        }
        fn get_many(&self, table: Table, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
            self.0.flush()?;
            self.0.get_many(table, keys)
        }
        fn seek(&self, table: Table, from: &[u8], n: usize) -> Result<Option<(Key, Vec<u8>)>> {
            self.0.seek(table, from, n)
        }
        fn scan(&self, table: Table, from: &[u8], visit: &mut Visitor<'_>) -> Result<()> {
            self.0.flush()?;
            self.0.scan(table, from, visit)
        }
        fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
            self.0.write(batch, durability)
        }
        fn sync(&self) -> Result<()> {
            self.0.sync()
        }
        fn size_bytes(&self, table: Table, from: &[u8], to: &[u8]) -> Result<u64> {
            self.0.size_bytes(table, from, to)
        }
        fn snapshot(&self) -> Result<Box<dyn Kv + '_>> {
            self.0.snapshot()
        }
    }

    let mut dirs = Vec::new();
    suite::run_all(&mut || {
        let dir = TempDir::new().unwrap();
        let kv = open(&dir);
        dirs.push(dir);
        Box::new(Flushing(kv))
    });
}

#[test]
fn entries_survive_reopening_from_log_and_from_files() {
    let dir = TempDir::new().unwrap();
    for flush in [false, true] {
        let key = suite::versioned(u64::from(flush), 0);
        let kv = open(&dir);
        suite::put(&kv, Table::Inodes, &key, b"v");
        if flush {
            kv.flush().unwrap();
        }
        drop(kv);
        let kv = open(&dir);
        assert_eq!(kv.get(Table::Inodes, &key).unwrap(), Some(b"v".to_vec()));
        assert!(kv.seek(Table::Inodes, &key, 8).unwrap().is_some());
    }
    assert_eq!(suite::entries(&open(&dir), Table::Inodes, b"").len(), 2);
}

#[test]
fn seek_finds_its_prefix_in_many_files() {
    let dir = TempDir::new().unwrap();
    let kv = open(&dir);
    for version in 0..6 {
        for thing in (version..600).step_by(6) {
            suite::put(&kv, Table::Inodes, &suite::versioned(thing, version), b"v");
        }
        kv.flush().unwrap();
    }
    for compact in [false, true] {
        if compact {
            kv.compact(Table::Inodes).unwrap();
        }
        for thing in 0..600 {
            let found = kv
                .seek(Table::Inodes, &suite::versioned(thing, 0), 8)
                .unwrap();
            assert_eq!(found.unwrap().0, suite::versioned(thing, thing % 6));
        }
        assert!(
            kv.seek(Table::Inodes, &suite::versioned(600, 0), 8)
                .unwrap()
                .is_none()
        );
        assert_eq!(suite::entries(&kv, Table::Inodes, b"").len(), 600);
    }
}

#[test]
fn read_only_reads_the_log_and_refuses_to_write() {
    let dir = TempDir::new().unwrap();
    suite::put(&open(&dir), Table::Meta, b"a", b"1");
    let kv = RocksKv::open(dir.path(), true).unwrap();
    assert_eq!(kv.get(Table::Meta, b"a").unwrap(), Some(b"1".to_vec()));
    let mut batch = Batch::new();
    batch.put(Table::Meta, &b"b"[..], Vec::new());
    let refused = kv.write(&batch, Durability::Process);
    assert!(
        matches!(refused, Err(Error::ReadOnly { .. })),
        "{refused:?}"
    );
    assert!(matches!(kv.sync(), Err(Error::ReadOnly { .. })));
}

#[test]
fn read_only_creates_nothing() {
    let dir = TempDir::new().unwrap();
    let missing = RocksKv::open(&dir.path().join("db"), true);
    assert!(
        matches!(
            missing,
            Err(Error::Engine {
                no_space: false,
                ..
            })
        ),
        "{missing:?}"
    );
}

#[test]
fn a_second_writer_is_refused() {
    let dir = TempDir::new().unwrap();
    let _first = open(&dir);
    let second = RocksKv::open(dir.path(), false);
    assert!(
        matches!(second, Err(Error::Engine { step: "open", .. })),
        "{second:?}"
    );
}

#[test]
fn sizes_follow_the_content() {
    let dir = TempDir::new().unwrap();
    let kv = open(&dir);
    for run in 0..64u8 {
        suite::put(&kv, Table::Data, &[run], &[run; 65536]);
    }
    assert!(kv.live_bytes(Table::Data) >= 64 * 65536);
    kv.flush().unwrap();
    let all = kv.size_bytes(Table::Data, &[0], &[64]).unwrap();
    assert!((64 * 65536..80 * 65536).contains(&all), "{all}");
    assert_eq!(kv.size_bytes(Table::Data, &[64], &[0]).unwrap(), 0);
    assert!(kv.live_bytes(Table::Data) >= 64 * 65536);
}

#[test]
fn removed_runs_give_their_space_back() {
    let dir = TempDir::new().unwrap();
    let kv = open(&dir);
    for run in 0..64u8 {
        suite::put(&kv, Table::Data, &[run], &[run; 65536]);
    }
    kv.flush().unwrap();
    let mut batch = Batch::new();
    batch.delete_range(Table::Data, &[0][..], &[64][..]);
    kv.write(&batch, Durability::Process).unwrap();
    kv.flush().unwrap();
    kv.compact(Table::Data).unwrap();
    let left = kv.live_bytes(Table::Data);
    assert!(left < 4 << 20, "{left}");
}

#[test]
fn copies_of_the_files_open_on_their_own() {
    let dir = TempDir::new().unwrap();
    let kv = open(&dir);
    suite::put(&kv, Table::Meta, b"a", b"1");
    let copy = dir.path().join("copy");
    kv.checkpoint_files(&copy).unwrap();
    suite::put(&kv, Table::Meta, b"a", b"2");
    let copied = RocksKv::open(&copy, false).unwrap();
    assert_eq!(copied.get(Table::Meta, b"a").unwrap(), Some(b"1".to_vec()));
    assert!(matches!(
        kv.checkpoint_files(&copy),
        Err(Error::Engine { .. })
    ));
}

/// The bytes that a power cut may take are those after the last sync; what a kill of the process leaves
/// is everything. Copying the directory while the database is open shows what a kill leaves.
#[test]
fn unsynced_writes_are_in_the_log_of_a_killed_process() {
    let dir = TempDir::new().unwrap();
    let kv = open(&dir);
    suite::put(&kv, Table::Meta, b"a", b"1");
    suite::put(&kv, Table::Data, b"run", &[1; 4096]);
    let copy = TempDir::new().unwrap();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let after = open(&copy);
    assert_eq!(after.get(Table::Meta, b"a").unwrap(), Some(b"1".to_vec()));
    assert_eq!(after.get(Table::Data, b"run").unwrap(), Some(vec![1; 4096]));
}

#[test]
fn a_torn_log_loses_its_end_only() {
    let dir = TempDir::new().unwrap();
    let kv = open(&dir);
    for key in 0..100u8 {
        let mut batch = Batch::new();
        batch.put(Table::Meta, &[key][..], vec![key; 1000]);
        batch.put(Table::Layers, &[key][..], vec![key; 1000]);
        kv.write(&batch, Durability::Process).unwrap();
    }
    drop(kv);
    let log = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    let kv = open(&dir);
    let kept = suite::entries(&kv, Table::Meta, b"");
    assert!((1..100).contains(&kept.len()), "{}", kept.len());
    assert_eq!(
        kept,
        suite::entries(&kv, Table::Layers, b""),
        "half a batch came back"
    );
}

#[test]
fn errors_say_when_the_disk_is_full() {
    assert!(is_no_space(
        "IO error: No space left on device: While appending to file: 8.log"
    ));
    assert!(is_no_space("IO error: Space limit reached: "));
    assert!(is_no_space(
        "IO error: While pwrite: 8.log: Disk quota exceeded"
    ));
    assert!(!is_no_space(
        "IO error: While open a file: x.sst: Input/output error"
    ));
}
