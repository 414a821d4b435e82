//! Keeping a layer while a view shows it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::id::LayerId;
use crate::store::Store;

/// Counts one view of a layer for as long as it lives. The layer of a view whose place another one
/// has taken stays counted: what differs between the two is found by its changes.
#[derive(Debug)]
pub(super) struct Shown {
    store: Arc<Store>,
    layer: Mutex<LayerId>,
}

impl Shown {
    pub(super) fn new(store: Arc<Store>, layer: LayerId) -> Self {
        *store.shown.lock().entry(layer).or_insert(0) += 1;
        Self {
            store,
            layer: Mutex::new(layer),
        }
    }

    /// Counts `to` from now on.
    pub(super) fn advance(&self, to: LayerId) {
        let mut layer = self.layer.lock();
        let mut shown = self.store.shown.lock();
        *shown.entry(to).or_insert(0) += 1;
        release(&mut shown, *layer);
        *layer = to;
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        release(&mut self.store.shown.lock(), *self.layer.get_mut());
    }
}

fn release(shown: &mut std::collections::HashMap<LayerId, usize>, layer: LayerId) {
    match shown.get_mut(&layer) {
        Some(count) if *count > 1 => *count -= 1,
        _ => {
            shown.remove(&layer);
        }
    }
}
