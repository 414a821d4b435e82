//! A lock for each branch name, so that operations on one branch follow each other while those on
//! different branches run side by side.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The locks. One that nobody uses is dropped, so the table is as large as the work in progress.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    names: Mutex<HashMap<String, Arc<Mutex<()>>>>,
}

impl Locks {
    /// Runs `work` while nothing else runs that was given one of `names`.
    pub(crate) fn with<R>(&self, names: &[&str], work: impl FnOnce() -> R) -> R {
        let mut sorted = names.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let locks: Vec<Arc<Mutex<()>>> = {
            let mut table = self.names.lock();
            sorted
                .iter()
                .map(|name| Arc::clone(table.entry((*name).to_owned()).or_default()))
                .collect()
        };
        let guards: Vec<_> = locks.iter().map(|lock| lock.lock()).collect();
        let result = work();
        drop(guards);
        drop(locks);
        let mut table = self.names.lock();
        for name in sorted {
            if table
                .get(name)
                .is_some_and(|lock| Arc::strong_count(lock) == 1)
            {
                table.remove(name);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_name_is_worked_on_by_one_thread() {
        let locks = Locks::default();
        let inside = AtomicUsize::new(0);
        thread::scope(|scope| {
            for number in 0..8 {
                let names = if number % 2 == 0 {
                    ["a", "b"]
                } else {
                    ["b", "a"]
                };
                let (locks, inside) = (&locks, &inside);
                scope.spawn(move || {
                    for _ in 0..20 {
                        locks.with(&names, || {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            thread::sleep(Duration::from_micros(50));
                            inside.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        assert!(locks.names.lock().is_empty());
    }

    #[test]
    fn different_names_run_side_by_side() {
        let locks = Locks::default();
        let barrier = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            for name in ["a", "b"] {
                let (locks, barrier) = (&locks, &barrier);
                scope.spawn(move || locks.with(&[name], || barrier.wait()));
            }
        });
    }
}
