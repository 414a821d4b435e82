//! The views of a store: one of each branch's head, any number of frozen layers.

use std::sync::{Arc, Weak};

use crate::error::{Error, Result};
use crate::id::LayerId;
use crate::layout::record::LayerState;
use crate::store::Store;
use crate::view::View;

impl Store {
    /// Returns the one view of a branch's head, shared while anybody holds it: two would not see
    /// each other's changes in their caches.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], [`Error::BadLayer`] if its head is damaged, and those of the engine.
    pub fn view(self: &Arc<Self>, branch: &str) -> Result<Arc<View>> {
        let _structure = self.structure.lock();
        if let Some(view) = self.open_view(branch) {
            return Ok(view);
        }
        let record = self.branch_record(branch)?;
        self.require_open(record.head)?;
        let name = Some(branch.to_owned());
        let view = Arc::new(View::new(Arc::clone(self), record.head, name, false));
        // Nobody held this head, so what is unnamed in it was left behind by a crash, or is held
        // through the view from which a mount comes to this one.
        let others: Vec<Arc<View>> = {
            let views = self.views.lock();
            views.values().filter_map(Weak::upgrade).collect()
        };
        view.remove_orphans(&others)?;
        self.views
            .lock()
            .insert(branch.to_owned(), Arc::downgrade(&view));
        Ok(view)
    }

    /// Returns a read-only view of a frozen layer.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the layer is open: its one view is its branch's.
    /// [`Error::BadLayer`] if there is no such layer.
    pub fn view_at(self: &Arc<Self>, layer: LayerId) -> Result<Arc<View>> {
        // The collector gives layers up under the same lock: none that is shown, and what it gave up
        // is not shown any more.
        let _structure = self.structure.lock();
        self.locked_view_at(layer)
    }

    /// As [`Store::view_at`]; the caller holds `structure`.
    pub(super) fn locked_view_at(self: &Arc<Self>, layer: LayerId) -> Result<Arc<View>> {
        let state = self.layer_table().get(layer)?.state;
        if self.folding.lock().contains(&layer) {
            return Err(Error::BadLayer {
                layer,
                what: "nothing names it any more and it is being folded",
            });
        }
        match state {
            LayerState::Frozen => Ok(Arc::new(View::new(Arc::clone(self), layer, None, true))),
            LayerState::Open => Err(Error::BadInput {
                what: format!(
                    "layer {layer} is still being written: look at its branch, or take a \
                     checkpoint and look at that"
                ),
            }),
            LayerState::Dead => Err(Error::BadLayer {
                layer,
                what: "it was given up and is being removed",
            }),
        }
    }

    /// Returns the view of a branch's head if there is one.
    pub(super) fn open_view(&self, branch: &str) -> Option<Arc<View>> {
        self.views.lock().get(branch)?.upgrade()
    }
}
