//! Counters that never give a number twice, whatever crashes.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::kv::{Batch, Durability, Kv, Table};
use crate::store::Store;

/// A counter whose upper bound is written ahead in steps, so that most numbers cost no write. A
/// crash loses the rest of a step, nothing else.
#[derive(Debug)]
pub(super) struct Counter {
    key: &'static str,
    step: u64,
    next: AtomicU64,
    /// Numbers below are reserved on disk.
    reserved: AtomicU64,
    reserving: Mutex<()>,
}

impl Counter {
    pub(super) fn load(kv: &dyn Kv, key: &'static str, step: u64) -> Result<Self> {
        let value = kv.get(Table::Meta, key.as_bytes())?;
        let bytes: Option<[u8; 8]> = value.as_deref().and_then(|value| value.try_into().ok());
        let Some(bytes) = bytes else {
            return Err(Error::BadEntry {
                table: "meta",
                what: format!("counter {key}"),
            });
        };
        let first = u64::from_le_bytes(bytes);
        let (next, reserved) = (AtomicU64::new(first), AtomicU64::new(first));
        Ok(Self {
            key,
            step,
            next,
            reserved,
            reserving: Mutex::new(()),
        })
    }

    /// Makes the first value part of the batch that creates a store.
    pub(super) fn init(batch: &mut Batch, key: &str, first: u64) {
        batch.put(Table::Meta, key.as_bytes(), first.to_le_bytes().to_vec());
    }

    pub(super) fn next(&self, store: &Store) -> Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.reserved.load(Ordering::Acquire) {
            let _reserving = self.reserving.lock();
            if number >= self.reserved.load(Ordering::Acquire) {
                let bound = number + self.step;
                let mut batch = Batch::new();
                Self::init(&mut batch, self.key, bound);
                store.write(&batch, Durability::Process)?;
                self.reserved.store(bound, Ordering::Release);
            }
        }
        Ok(number)
    }

    /// Returns the number that will be given next: greater than all given so far.
    pub(super) fn end(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }
}
