//! Engines that fail on purpose, for the tests of everything above.
//!
//! - [`FaultyKv`] wraps any engine and makes its N-th operation fail, alone or with all that follow.
//! - [`CrashKv`] remembers what was synced, and can show every state that a power cut may leave.
//!
//! A crash test wraps the second in the first: cut at operation N, for each N until nothing is cut any
//! more, then for each image that the cut may have left, open a store on it and look.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use super::memory::MemoryKv;
use super::{Batch, Durability, Key, Kv, Table, Visitor};
use crate::error::{Error, Result};

/// What the engine says when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An input/output error.
    Io,
    /// The disk is full.
    NoSpace,
}

/// Which operation fails. Numbers start at 1 and count from the making of the [`FaultyKv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The N-th [`Kv::write`].
    Write(u64),
    /// The N-th [`Kv::sync`].
    Sync(u64),
    /// The N-th of writes and syncs together.
    Operation(u64),
}

/// What happens after the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// All goes on as if nothing had been.
    GoOn,
    /// Every later operation fails too, reads as well: the process is dead or the disk gone.
    Cut,
}

/// One scripted failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which operation fails.
    pub at: At,
    /// What it says.
    pub fault: Fault,
    /// What happens after it.
    pub then: Then,
}

/// A [`Kv`] that fails where its plan says so. A failed write or sync does not reach the inner engine.
#[derive(Debug)]
pub struct FaultyKv<K> {
    inner: K,
    /// Held over each write and sync with the inner engine's part of it, so that the count is the order.
    script: Mutex<Script>,
    /// Whether everything fails from now on; a copy of the script's outcome that reads can look at.
    cut: RwLock<Option<Fault>>,
}

#[derive(Debug)]
struct Script {
    plan: Option<Plan>,
    writes: u64,
    syncs: u64,
    fired: bool,
}

impl<K: Kv> FaultyKv<K> {
    /// Returns `inner` with one failure planned, or none.
    pub fn new(inner: K, plan: Option<Plan>) -> Self {
        let script = Script {
            plan,
            writes: 0,
            syncs: 0,
            fired: false,
        };
        Self {
            inner,
            script: Mutex::new(script),
            cut: RwLock::new(None),
        }
    }

    /// Returns `inner`, cut off at the N-th of its writes and syncs.
    pub fn cut_at(inner: K, operation: u64) -> Self {
        let at = At::Operation(operation);
        Self::new(
            inner,
            Some(Plan {
                at,
                fault: Fault::Io,
                then: Then::Cut,
            }),
        )
    }

    /// Replaces the plan. What has fired stays fired, and a cut stays cut.
    pub fn set_plan(&self, plan: Option<Plan>) {
        self.script.lock().plan = plan;
    }

    /// Returns how many writes there were, the failed ones included.
    pub fn writes(&self) -> u64 {
        self.script.lock().writes
    }

    /// Returns how many syncs there were, the failed ones included.
    pub fn syncs(&self) -> u64 {
        self.script.lock().syncs
    }

    /// Returns whether a planned failure has happened. A loop over all N ends when it has not.
    pub fn fired(&self) -> bool {
        self.script.lock().fired
    }

    /// Returns the engine inside, which never fails.
    pub fn inner(&self) -> &K {
        &self.inner
    }

    /// Returns the engine inside.
    pub fn into_inner(self) -> K {
        self.inner
    }

    fn reads(&self, step: &'static str) -> Result<()> {
        match *self.cut.read() {
            Some(fault) => Err(failure(fault, step)),
            None => Ok(()),
        }
    }

    /// Counts one operation and fails if it is its turn; else does it.
    fn change(
        &self,
        step: &'static str,
        count: impl FnOnce(&mut Script),
        hits: impl FnOnce(&Script, At) -> bool,
        operation: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut script = self.script.lock();
        count(&mut script);
        self.reads(step)?;
        if let Some(plan) = script.plan.filter(|plan| hits(&script, plan.at)) {
            script.fired = true;
            if plan.then == Then::Cut {
                *self.cut.write() = Some(plan.fault);
            }
            return Err(failure(plan.fault, step));
        }
        operation()
    }
}

impl Script {
    fn operations(&self) -> u64 {
        self.writes + self.syncs
    }
}

fn failure(fault: Fault, step: &'static str) -> Error {
    match fault {
        Fault::Io => Error::Engine {
            step,
            message: "IO error: failed as planned: Input/output error".to_owned(),
            no_space: false,
        },
        Fault::NoSpace => Error::Engine {
            step,
            message: "IO error: failed as planned: No space left on device".to_owned(),
            no_space: true,
        },
    }
}

impl<K: Kv> Kv for FaultyKv<K> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.reads("read")?;
        self.inner.get(table, key)
    }

    fn get_many(&self, table: Table, keys: &[Key]) -> Result<Vec<Option<Vec<u8>>>> {
        self.reads("read")?;
        self.inner.get_many(table, keys)
    }

    fn seek(
        &self,
        table: Table,
        from: &[u8],
        prefix_bytes: usize,
    ) -> Result<Option<(Key, Vec<u8>)>> {
        self.reads("seek")?;
        self.inner.seek(table, from, prefix_bytes)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visitor<'_>) -> Result<()> {
        self.reads("scan")?;
        self.inner.scan(table, from, visit)
    }

    fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.change(
            "write",
            |script| script.writes += 1,
            |script, at| match at {
                At::Write(n) => n == script.writes,
                At::Operation(n) => n == script.operations(),
                At::Sync(_) => false,
            },
            || self.inner.write(batch, durability),
        )
    }

    fn sync(&self) -> Result<()> {
        self.change(
            "sync its log",
            |script| script.syncs += 1,
            |script, at| match at {
                At::Sync(n) => n == script.syncs,
                At::Operation(n) => n == script.operations(),
                At::Write(_) => false,
            },
            || self.inner.sync(),
        )
    }

    fn size_bytes(&self, table: Table, from: &[u8], to: &[u8]) -> Result<u64> {
        self.reads("measure a range")?;
        self.inner.size_bytes(table, from, to)
    }

    fn snapshot(&self) -> Result<Box<dyn Kv + '_>> {
        self.reads("take a snapshot")?;
        self.inner.snapshot()
    }
}

/// A [`Kv`] in memory that knows what is on its imaginary disk.
///
/// There is one log, so a power cut keeps everything up to the last sync and, of the batches written
/// since, any number from the first on: never a later one without an earlier one, never half of one.
#[derive(Debug, Default)]
pub struct CrashKv {
    live: MemoryKv,
    /// Held over each write and sync, so that the order of the log is the order of the live state.
    disk: Mutex<Disk>,
    syncs: AtomicU64,
}

#[derive(Debug, Default)]
struct Disk {
    durable: MemoryKv,
    unsynced: Vec<Batch>,
}

impl CrashKv {
    /// Returns an empty engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an engine on what is on the disk already.
    pub fn on(image: MemoryKv) -> Self {
        let disk = Disk {
            durable: image.clone(),
            unsynced: Vec::new(),
        };
        Self {
            live: image,
            disk: Mutex::new(disk),
            syncs: AtomicU64::new(0),
        }
    }

    /// Returns how many batches a power cut may take.
    pub fn unsynced(&self) -> usize {
        self.disk.lock().unsynced.len()
    }

    /// Returns how often the log was synced, by [`Kv::sync`] or by a durable write.
    pub fn synced(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Returns what a kill of the process leaves: everything.
    pub fn live_image(&self) -> MemoryKv {
        self.live.clone()
    }

    /// Returns what a power cut leaves that keeps `kept` of the unsynced batches (all, if there are fewer).
    ///
    /// # Errors
    /// None in practice: the image is in memory.
    pub fn image(&self, kept: usize) -> Result<MemoryKv> {
        let disk = self.disk.lock();
        let image = disk.durable.clone();
        for batch in disk.unsynced.iter().take(kept) {
            image.write(batch, Durability::Process)?;
        }
        Ok(image)
    }

    fn synced_now(&self, disk: &mut Disk) {
        disk.durable = self.live.clone();
        disk.unsynced.clear();
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }
}

impl Kv for CrashKv {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.live.get(table, key)
    }

    fn seek(
        &self,
        table: Table,
        from: &[u8],
        prefix_bytes: usize,
    ) -> Result<Option<(Key, Vec<u8>)>> {
        self.live.seek(table, from, prefix_bytes)
    }

    fn scan(&self, table: Table, from: &[u8], visit: &mut Visitor<'_>) -> Result<()> {
        self.live.scan(table, from, visit)
    }

    fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        let mut disk = self.disk.lock();
        self.live.write(batch, durability)?;
        match durability {
            Durability::Process => disk.unsynced.push(batch.clone()),
            Durability::Disk => self.synced_now(&mut disk),
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.synced_now(&mut self.disk.lock());
        Ok(())
    }

    fn size_bytes(&self, table: Table, from: &[u8], to: &[u8]) -> Result<u64> {
        self.live.size_bytes(table, from, to)
    }

    fn snapshot(&self) -> Result<Box<dyn Kv + '_>> {
        self.live.snapshot()
    }
}

#[cfg(test)]
mod tests;
