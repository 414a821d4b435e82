//! The bytes of contents: I8 and I9.

use crate::check::{Checker, Place};
use crate::id::{BLOCK_BYTES, BlockIndex, Ino, LayerId};
use crate::kv::{Key, Table};
use crate::layout::key;
use crate::layout::locator::{Locator, RUN_BLOCKS, RunOwner, RunPlace};

/// A run as it was read.
#[derive(Debug)]
pub(super) struct Run {
    owner: RunOwner,
    bytes: u64,
    /// CRC-32C of each block.
    checksums: Box<[u32]>,
    used: bool,
}

/// Runs looked at together: about 80 MiB.
pub(super) const WINDOW_RUNS: u64 = 1 << 19;

/// A stretch of table `data`, by its keys.
#[derive(Debug, Default)]
pub(super) struct Window {
    from: Key,
    /// Where the next one begins; [`None`] for the last.
    end: Option<Key>,
}

impl Window {
    fn holds(&self, run: &Key) -> bool {
        *run >= self.from && self.end.as_ref().is_none_or(|end| run < end)
    }
}

impl Checker<'_> {
    /// Reads the runs of the next stretch, in the order in which they lie on the disk.
    pub(super) fn next_runs(&mut self) {
        let from = self.window.end.take().unwrap_or_default();
        self.runs.clear();
        let mut count = 0;
        let mut end = None;
        self.each_from(Table::Data, &[], &from, &mut |checker, key, value| {
            checker.step("reading contents, in runs");
            if count >= checker.window_runs {
                end = Some(Key::from_slice(key));
                return false;
            }
            count += 1;
            checker.note_run(key, value);
            true
        });
        self.window = Window { from, end };
    }

    /// Looks at the stretches after the first, whose blocks were looked at with all other entries.
    pub(super) fn other_runs(&mut self) {
        self.unused_runs();
        while self.window.end.is_some() && self.interrupted.is_none() {
            self.next_runs();
            self.each(Table::Map, &[], &mut |checker, found, value| {
                checker.step("looking at blocks");
                if let Ok(layer) = key::layer_of(Table::Map, found)
                    && let Ok(locator) = Locator::decode(value)
                {
                    let thing = &found[..found.len() - key::LAYER_BYTES];
                    checker.run_at(thing, layer, &locator);
                }
            });
            self.unused_runs();
        }
    }

    fn note_run(&mut self, key: &[u8], value: &[u8]) {
        let parsed = key::parse_run(key);
        let Some((layer, object, first, sequence)) =
            self.read(parsed, "key of a run", Place::Nowhere)
        else {
            return;
        };
        let owner = RunOwner {
            layer,
            object,
            first,
        };
        let most = RUN_BLOCKS * BLOCK_BYTES;
        if key.len() != 32 || value.is_empty() || value.len() as u64 > most {
            let bytes = value.len();
            let detail = format!("table data, layer {layer}, inode {object}: {bytes} bytes");
            self.problem(
                "I1",
                "a run has a wrong length",
                detail,
                Place::Layer(layer),
            );
        }
        let block = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
        let checksums = value.chunks(block).map(crc32c::crc32c).collect();
        let bytes = value.len() as u64;
        self.report.counts.runs += 1;
        self.report.counts.content_bytes += bytes;
        self.greatest_sequence = self.greatest_sequence.max(sequence);
        self.runs.insert(
            sequence,
            Run {
                owner,
                bytes,
                checksums,
                used: false,
            },
        );
    }

    /// Checks where the bytes of one version of a block are.
    pub(super) fn locator(&mut self, thing: &[u8], layer: LayerId, locator: &Locator) {
        let Ok((ino, block)) = key::parse_block(thing) else {
            return;
        };
        let place = Place::Version(Table::Map, thing, layer);
        match locator {
            Locator::Hole | Locator::Inline(_) => {}
            Locator::Base(of, _) => match self.store.base_record(*of) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    let detail = format!("block {} of inode {ino}: base inode {of}", block.0);
                    let what = "a block lies in a file of the base that nobody knows";
                    self.problem("I16", what, detail, place);
                }
                Err(error) => {
                    self.problem("I1", "an entry is damaged", error.to_string(), place);
                }
            },
            Locator::Run(run) if block.0 < u64::from(run.index) => {
                let detail = format!("block {} of inode {ino} is {} of a run", block.0, run.index);
                self.problem("I8", "a run would begin before the file", detail, place);
            }
            Locator::Run(_) => self.run_at(thing, layer, locator),
            Locator::Shared(_, owner) => {
                let holder = self.holders.get(&owner.layer).copied();
                let holder = holder.unwrap_or(owner.layer);
                let pinned = self.layers.get(&holder).is_some_and(|record| record.pinned);
                if !self.is_dead(layer) && !pinned && !self.sees(layer, holder) {
                    let detail = format!(
                        "block {} of inode {ino}, layer {layer}, lies in layer {}",
                        block.0, owner.layer
                    );
                    self.problem("I9", "a shared block may be collected", detail, place);
                }
                self.run_at(thing, layer, locator);
            }
        }
    }

    /// Checks the run in which one version of a block lies, if it is in the present stretch.
    fn run_at(&mut self, thing: &[u8], layer: LayerId, locator: &Locator) {
        let Ok((object, block)) = key::parse_block(thing) else {
            return;
        };
        let (place, owner) = match locator {
            Locator::Run(place) => {
                let Some(first) = block.0.checked_sub(u64::from(place.index)) else {
                    return;
                };
                let owner = RunOwner {
                    layer,
                    object,
                    first: BlockIndex(first),
                };
                (place, owner)
            }
            Locator::Shared(place, owner) => (place, *owner),
            Locator::Hole | Locator::Inline(_) | Locator::Base(..) => return,
        };
        let run = key::run(owner.layer, owner.object, owner.first, place.sequence);
        if self.window.holds(&run) {
            self.run_of(thing, layer, place, owner);
        }
    }

    fn run_of(&mut self, thing: &[u8], layer: LayerId, place: &RunPlace, owner: RunOwner) {
        self.greatest_sequence = self.greatest_sequence.max(place.sequence);
        if !self.runs.contains_key(&place.sequence) {
            self.fetch(place, owner);
        }
        let found = match self.runs.get_mut(&place.sequence) {
            None => "its run is missing or cannot be read",
            Some(run) if run.owner != owner => "its run belongs to something else",
            Some(run) => {
                run.used = true;
                match run.checksums.get(usize::from(place.index)) {
                    None => "its run is too short",
                    Some(sum) if *sum != place.checksum => "its bytes do not fit their checksum",
                    Some(_) => return,
                }
            }
        };
        if self.is_dead(layer) {
            return;
        }
        let (ino, block) = key::parse_block(thing).unwrap_or((Ino(0), BlockIndex(0)));
        let detail = format!(
            "block {} of inode {ino}, written in layer {layer}: {found}",
            block.0
        );
        self.problem(
            "I8",
            "a block is damaged",
            detail,
            Place::Version(Table::Map, thing, layer),
        );
    }

    /// Reads one run that the scan has not shown: because it is not there, because it lies in a
    /// stretch that cannot be read on the whole, or because it was written since.
    fn fetch(&mut self, place: &RunPlace, owner: RunOwner) {
        let key = key::run(owner.layer, owner.object, owner.first, place.sequence);
        if let Ok(Some(value)) = self.kv.get(Table::Data, &key) {
            self.note_run(&key, &value);
        }
    }

    /// Counts what no entry points at.
    fn unused_runs(&mut self) {
        let counts = &mut self.report.counts;
        for run in self.runs.values().filter(|run| !run.used) {
            counts.unused_runs += 1;
            counts.unused_bytes += run.bytes;
        }
    }
}
