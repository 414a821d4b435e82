//! Where the content of memory goes: outside of the image, as blocks of a layer.

use std::collections::BTreeMap;
use std::io;

use parking_lot::RwLock;

use super::space::{ObjectId, PAGE};

/// Keeps pages by object and page number. Called from several threads at once.
pub trait MemoryStore: Send + Sync {
    /// Keeps whole pages from `first_page` on.
    ///
    /// # Errors
    /// Whatever keeps the bytes from being stored; the checkpoint then fails.
    fn put(&self, object: ObjectId, first_page: u64, bytes: &[u8]) -> io::Result<()>;

    /// Fills `into`, whole pages, with what was kept from `first_page` on. A page that was never
    /// kept reads as zeros.
    ///
    /// # Errors
    /// Whatever keeps the bytes from being read, a failed checksum included.
    fn get(&self, object: ObjectId, first_page: u64, into: &mut [u8]) -> io::Result<()>;
}

/// Keeps pages in memory, in the runs in which they came.
#[derive(Debug, Default)]
pub struct InMemory {
    runs: RwLock<BTreeMap<FirstPage, Box<[u8]>>>,
}

/// The first page of a run.
type FirstPage = (ObjectId, u64);

/// What [`InMemory::each`] calls.
pub type Visit<'a, E> = dyn FnMut(ObjectId, u64, &[u8]) -> Result<(), E> + 'a;

impl InMemory {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Visits what is kept: the object, its first page, and the bytes from there on.
    ///
    /// # Errors
    /// The first one of `visit`.
    pub fn each<E>(&self, visit: &mut Visit<'_, E>) -> Result<(), E> {
        for ((object, first_page), bytes) in self.runs.read().iter() {
            visit(*object, *first_page, bytes)?;
        }
        Ok(())
    }

    /// How many bytes are kept.
    pub fn bytes(&self) -> u64 {
        self.runs.read().values().map(|run| run.len() as u64).sum()
    }
}

impl MemoryStore for InMemory {
    fn put(&self, object: ObjectId, first_page: u64, bytes: &[u8]) -> io::Result<()> {
        if !(bytes.len() as u64).is_multiple_of(PAGE) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.runs.write().insert((object, first_page), bytes.into());
        Ok(())
    }

    fn get(&self, object: ObjectId, first_page: u64, into: &mut [u8]) -> io::Result<()> {
        into.fill(0);
        let first = first_page * PAGE;
        let behind = first + into.len() as u64;
        let runs = self.runs.read();
        let below = runs.range(..(object, first_page)).next_back();
        let within = runs.range((object, first_page)..(object, behind.div_ceil(PAGE)));
        for ((owner, page), run) in below.into_iter().chain(within) {
            let (start, end) = (page * PAGE, page * PAGE + run.len() as u64);
            let (from, to) = (start.max(first), end.min(behind));
            if *owner != object || from >= to {
                continue;
            }
            let take = |base: u64| -> Option<std::ops::Range<usize>> {
                Some(usize::try_from(from - base).ok()?..usize::try_from(to - base).ok()?)
            };
            let parts = take(first).zip(take(start));
            let (into_range, run_range) = parts.ok_or(io::ErrorKind::InvalidData)?;
            into[into_range].copy_from_slice(&run[run_range]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_of_any_run_comes_back_and_the_rest_is_zero() {
        let store = InMemory::new();
        let bytes: Vec<u8> = (0..4u8).flat_map(|page| vec![page + 1; 4096]).collect();
        store.put(ObjectId(1), 10, &bytes).unwrap();
        store.put(ObjectId(1), 14, &bytes[..4096]).unwrap();
        store.put(ObjectId(2), 12, &bytes).unwrap();
        let mut into = vec![9; 8 * 4096];
        store.get(ObjectId(1), 9, &mut into).unwrap();
        let pages: Vec<u8> = into.chunks(4096).map(|page| page[4095]).collect();
        assert_eq!(pages, [0, 1, 2, 3, 4, 1, 0, 0]);
        let mut into = vec![9; 2 * 4096];
        store.get(ObjectId(1), 12, &mut into).unwrap();
        assert_eq!((into[0], into[8191]), (3, 4));
        assert!(store.put(ObjectId(1), 0, &[0; 5]).is_err());
        assert_eq!(store.bytes(), 9 * 4096);
        let mut seen = Vec::new();
        let done: Result<(), ()> = store.each(&mut |object, page, bytes| {
            seen.push((object.0, page, bytes.len() / 4096));
            Ok(())
        });
        assert_eq!(done, Ok(()));
        assert_eq!(seen, [(1, 10, 4), (1, 14, 1), (2, 12, 4)]);
    }
}
