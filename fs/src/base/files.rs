//! A bounded cache of open files, since every read of a block of the base needs one.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;

/// Descriptors kept open: few enough for the usual limit of 1024 a process.
const FILES_MAX: usize = 256;

/// Open files by path; the one not asked for longest makes room.
#[derive(Debug)]
pub(super) struct FileCache {
    /// Held for a lookup only, never over a system call but the closing of what makes room.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<Box<[u8]>, Entry>,
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    file: Arc<OwnedFd>,
    used: u64,
}

impl FileCache {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State::default()),
        }
    }

    pub(super) fn get(&self, path: &[u8]) -> Option<Arc<OwnedFd>> {
        let mut state = self.state.lock();
        state.clock += 1;
        let now = state.clock;
        let entry = state.files.get_mut(path)?;
        entry.used = now;
        Some(Arc::clone(&entry.file))
    }

    pub(super) fn put(&self, path: &[u8], file: &Arc<OwnedFd>) {
        let mut state = self.state.lock();
        state.clock += 1;
        let entry = Entry {
            file: Arc::clone(file),
            used: state.clock,
        };
        state.files.insert(path.into(), entry);
        if state.files.len() > FILES_MAX {
            // A walk over all: as cheap as the opening of a file that brought us here.
            let oldest = state.files.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(path) = oldest.map(|(path, _)| path.clone()) {
                state.files.remove(&path);
            }
        }
    }

    pub(super) fn remove(&self, path: &[u8]) {
        self.state.lock().files.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_makes_room() {
        let cache = FileCache::new();
        let file = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        let name = |i: usize| i.to_string().into_bytes();
        for i in 0..FILES_MAX {
            cache.put(&name(i), &file);
        }
        assert!(cache.get(&name(0)).is_some());
        cache.put(b"new", &file);
        assert!(cache.get(&name(0)).is_some());
        assert!(cache.get(&name(1)).is_none());
        assert!(cache.get(b"new").is_some());
        assert_eq!(Arc::strong_count(&file), FILES_MAX + 1);
        cache.remove(b"new");
        assert!(cache.get(b"new").is_none());
    }
}
