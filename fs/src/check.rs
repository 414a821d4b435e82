//! The checker: everything that must hold in a store, looked at on the disk.
//!
//! `docs/format.md` lists the invariants by the numbers that problems carry (I1 to I16). Damage never
//! stops a check: what cannot be read is reported, and the check goes on behind it.
//!
//! It looks at a snapshot, one moment of all tables: nothing waits for it, and nothing that is changed
//! meanwhile can look like damage. Only the collector waits, which removes layers.
//!
//! **Memory.** About 160 bytes for each of half a million runs: contents are checked in stretches of
//! so many, and the map of blocks is looked at once for each stretch. Beside that, what the changes of
//! the largest layer name, and the names and inodes of the base that were looked at.

mod base;
mod entries;
mod names;
mod records;
mod runs;
mod scan;
mod tree;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::LayerId;
use crate::kv::{Key, Kv, Table};
use crate::layout::record::{LayerRecord, LayerState};
use crate::progress::{Progress, Watch};
use crate::store::Store;
use crate::version::{self, Version};

use runs::{Run, Window};

/// Problems described one by one at most; more are only counted.
const PROBLEMS_MAX: usize = 1000;

/// Something that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The invariant that it breaks, by its number in `docs/format.md`.
    pub invariant: String,
    /// What is wrong, in general.
    pub what: String,
    /// Where, and what was found instead.
    pub detail: String,
    /// The layer in which it lies, if it lies in one.
    pub layer: Option<LayerId>,
    /// The branches and checkpoints that see it; the others can be used.
    pub breaks: Vec<String>,
}

/// A file of the base that is not as it was first seen. Nothing in the store is damaged by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// Its path below the base directory.
    pub path: String,
    /// What became of it.
    pub what: String,
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Layers, dead ones included.
    pub layers: u64,
    /// Branches.
    pub branches: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Versions of inodes, names, attributes and blocks.
    pub entries: u64,
    /// Changes.
    pub changes: u64,
    /// Runs of blocks.
    pub runs: u64,
    /// Bytes of runs, all read.
    pub content_bytes: u64,
    /// Runs to which no entry points: garbage, not a problem.
    pub unused_runs: u64,
    /// Their bytes.
    pub unused_bytes: u64,
    /// Inodes of the base.
    pub base_inodes: u64,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// What does not hold. Empty for a healthy store.
    pub problems: Vec<Problem>,
    /// Problems beyond those listed.
    pub problems_left_off: u64,
    /// Files of the base that changed, were replaced or are gone.
    pub drift: Vec<Drift>,
    /// How much was looked at.
    pub counts: Counts,
    /// How long it took.
    pub elapsed_us: u64,
}

impl CheckReport {
    /// Returns whether nothing is wrong with the store.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Looks at everything in a store and lists what is wrong with it.
///
/// # Errors
/// None for damage, which is what it looks for; those of starting at all;
/// [`Error::Interrupted`](crate::Error::Interrupted), or what else `progress` returns.
pub fn check(store: &Arc<Store>, progress: &mut Watch<'_>) -> Result<CheckReport> {
    let started = Instant::now();
    let _collecting = store.collecting.lock();
    let snapshot = store.kv().snapshot()?;
    let mut checker = Checker::new(store, &*snapshot, progress);
    checker.run();
    if let Some(error) = checker.interrupted {
        return Err(error);
    }
    let mut report = checker.report;
    report.elapsed_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    Ok(report)
}

/// Where a problem lies, which decides what it breaks.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// In nothing that a branch or checkpoint shows.
    Nowhere,
    /// Nobody can say: it may be in anything.
    Anywhere,
    /// In a branch or a checkpoint itself.
    Name(&'a str),
    /// In a layer: all that descends from it sees it.
    Layer(LayerId),
    /// In the version of a thing that a layer wrote: whoever has no newer one sees it.
    Version(Table, &'a [u8], LayerId),
}

/// A check under way.
struct Checker<'a> {
    store: &'a Store,
    /// The tables at the moment that is looked at.
    kv: &'a dyn Kv,
    progress: &'a mut Watch<'a>,
    /// Why to end early.
    interrupted: Option<Error>,
    report: CheckReport,
    /// What people call the layers that must be readable.
    named: Vec<(String, LayerId)>,
    /// The records of layers on the disk.
    layers: BTreeMap<LayerId, LayerRecord>,
    /// Which layer adopted the runs of a layer that was folded.
    holders: HashMap<LayerId, LayerId>,
    /// A layer whose entries the collector was moving into another, and that one.
    folding: Option<(LayerId, LayerId)>,
    /// The runs of the stretch that is looked at.
    runs: HashMap<u64, Run>,
    window: Window,
    /// How many runs make a stretch.
    window_runs: u64,
    /// What the root layer holds; it has no changes, for it takes in the base bit by bit.
    root_names: Vec<Key>,
    root_inodes: Vec<Key>,
    root_links: Vec<Key>,
    greatest_ino: u64,
    greatest_sequence: u64,
    /// Problems that may break anything. What there is to break is known only in the end.
    anywhere: Vec<usize>,
    done: u64,
}

impl<'a> Checker<'a> {
    fn new(store: &'a Store, kv: &'a dyn Kv, progress: &'a mut Watch<'a>) -> Self {
        Self {
            store,
            kv,
            progress,
            interrupted: None,
            report: CheckReport::default(),
            named: Vec::new(),
            layers: BTreeMap::new(),
            holders: HashMap::new(),
            folding: None,
            runs: HashMap::new(),
            window: Window::default(),
            window_runs: runs::WINDOW_RUNS,
            root_names: Vec::new(),
            root_inodes: Vec::new(),
            root_links: Vec::new(),
            greatest_ino: 0,
            greatest_sequence: 0,
            anywhere: Vec::new(),
            done: 0,
        }
    }

    fn run(&mut self) {
        self.records();
        self.forest();
        self.next_runs();
        self.all_entries();
        self.other_runs();
        self.all_changes();
        self.all_layers();
        self.base();
        self.counters();
        for at in std::mem::take(&mut self.anywhere) {
            self.report.problems[at].breaks = self.breaks(Place::Anywhere);
        }
    }

    fn step(&mut self, what: &'static str) {
        self.done += 1;
        if self.done.is_multiple_of(1024) && self.interrupted.is_none() {
            let step = Progress {
                done: self.done,
                total: None,
                what,
            };
            self.interrupted = (self.progress)(step).err();
        }
    }

    /// Returns the newest version of `thing` that `head` can see.
    fn newest(&self, table: Table, thing: &[u8], head: LayerId) -> Result<Option<Version>> {
        version::newest(self.kv, &self.store.layers, table, thing, head)
    }

    /// Returns whether a layer is one that the collector is taking apart.
    fn is_dead(&self, layer: LayerId) -> bool {
        self.layers
            .get(&layer)
            .is_some_and(|record| record.state == LayerState::Dead)
    }

    fn sees(&self, head: LayerId, layer: LayerId) -> bool {
        self.store.layer_table().sees(head, layer)
    }

    /// Notes a problem.
    fn problem(&mut self, invariant: &str, what: &str, detail: String, place: Place<'_>) {
        if self.report.problems.len() >= PROBLEMS_MAX {
            self.report.problems_left_off += 1;
            return;
        }
        let layer = match place {
            Place::Nowhere | Place::Anywhere | Place::Name(_) => None,
            Place::Layer(layer) | Place::Version(_, _, layer) => Some(layer),
        };
        let breaks = self.breaks(place);
        if matches!(place, Place::Anywhere) {
            self.anywhere.push(self.report.problems.len());
        }
        let (invariant, what) = (invariant.to_owned(), what.to_owned());
        self.report.problems.push(Problem {
            invariant,
            what,
            detail,
            layer,
            breaks,
        });
    }

    fn breaks(&self, place: Place<'_>) -> Vec<String> {
        let sees = |(name, head): &(String, LayerId)| match place {
            Place::Nowhere => false,
            Place::Anywhere => true,
            Place::Name(broken) => broken == name,
            Place::Layer(layer) => self.sees(*head, layer),
            Place::Version(table, thing, layer) => {
                self.sees(*head, layer)
                    && match self.newest(table, thing, *head) {
                        Ok(found) => found.is_none_or(|(newest, _)| newest == layer),
                        Err(_) => true,
                    }
            }
        };
        self.named
            .iter()
            .filter(|named| sees(named))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Returns what was read; notes a problem if it could not be.
    fn read<T>(&mut self, read: Result<T>, what: &str, place: Place<'_>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(error) => {
                self.problem(
                    "I1",
                    "an entry is damaged",
                    format!("{what}: {error}"),
                    place,
                );
                None
            }
        }
    }

    /// Returns a key's value. Both the absence of one and damage are [`None`]; damage is noted.
    fn get(&mut self, table: Table, key: &[u8], place: Place<'_>) -> Option<Vec<u8>> {
        let found = self.kv.get(table, key);
        self.read(found, table.name(), place).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{Caller, FileKind};
    use crate::id::Ino;
    use crate::kv::memory::MemoryKv;
    use crate::kv::{Batch, Durability, Step};
    use crate::store::StoreOptions;

    /// Whatever the length of the stretches, all runs are looked at, each once.
    #[test]
    fn stretches_of_runs_make_no_difference() {
        let dir = tempfile::tempdir().unwrap();
        let kv = Arc::new(MemoryKv::new());
        Store::create_in(&*kv, &StoreOptions::default()).unwrap();
        let store = Store::open_in(dir.path(), Box::new(Arc::clone(&kv))).unwrap();
        let view = store.view("main").unwrap();
        for name in b'a'..b'k' {
            let made = view.mknod(
                Caller::ROOT,
                Ino::ROOT,
                &[name],
                FileKind::Regular,
                0o644,
                0,
                0,
            );
            let ino = made.unwrap().ino;
            view.write(ino, 0, &[name; 9000], false).unwrap();
            store.checkpoint("main", None, false).unwrap();
            view.write(ino, 4096, &[name; 4096], false).unwrap();
            view.write(ino, 0, &[name; 4096], false).unwrap();
            view.write(ino, 0, &[name + 1; 4096], false).unwrap();
        }
        let look = |window_runs: u64| {
            let mut quiet = |_| Ok(());
            let mut checker = Checker::new(&store, store.kv(), &mut quiet);
            checker.window_runs = window_runs;
            checker.run();
            checker.report
        };
        let whole = look(1000);
        assert!(whole.is_clean() && whole.counts.runs > 20, "{whole:?}");
        for window_runs in [1, 3, 7, whole.counts.runs] {
            assert_eq!(look(window_runs), whole, "{window_runs}");
        }
        let mut last = None;
        kv.scan(Table::Data, &[], &mut |key, value| {
            last = Some((Key::from_slice(key), value.to_vec()));
            Ok(Step::Next)
        })
        .unwrap();
        let (key, mut value) = last.unwrap();
        value[0] ^= 1;
        let mut batch = Batch::new();
        batch.put(Table::Data, key, value);
        kv.write(&batch, Durability::Process).unwrap();
        let whole = look(1000);
        assert_eq!(whole.problems.len(), 1, "{whole:?}");
        for window_runs in [1, 3, 7] {
            assert_eq!(look(window_runs), whole, "{window_runs}");
        }
    }
}
