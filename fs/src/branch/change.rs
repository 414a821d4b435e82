//! Changes of branches, checkpoints and layers, collected and then made as one atomic batch.

use crate::error::{Error, Result};
use crate::id::{CheckpointId, LayerId};
use crate::kv::{Batch, Durability, Table};
use crate::layout::key;
use crate::layout::record::{BranchRecord, CheckpointRecord, LayerRecord, LayerState};
use crate::store::{Store, open_layer};

/// Changes collected so far. Whoever makes one holds `store.structure`, and keeps the gate of the
/// branch's view closed from before [`Change::settle`] until after [`Change::commit`].
pub(super) struct Change<'a> {
    store: &'a Store,
    batch: Batch,
    frozen: Option<LayerId>,
    opened: Vec<(LayerId, LayerRecord)>,
    merged: Option<(LayerId, Vec<LayerId>)>,
}

/// Where a line stands after [`Change::settle`].
#[derive(Clone, Copy)]
pub(super) struct Settled {
    /// The frozen layer that holds all that the line is so far.
    pub(super) frozen: LayerId,
    /// The open layer in which it goes on.
    pub(super) head: LayerId,
}

impl<'a> Change<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Self {
            store,
            batch: Batch::new(),
            frozen: None,
            opened: Vec::new(),
            merged: None,
        }
    }

    /// Freezes `head` and lets the line go on in a new layer. A head in which nothing was written
    /// stays: its parent is what there is to freeze. So polling costs no layers.
    pub(super) fn settle(&mut self, head: LayerId) -> Result<Settled> {
        let record = self.store.require_open(head)?;
        // That something was merged into it counts, even if it had everything already.
        if record.merged.is_empty() && self.store.layer_is_empty(head)? {
            let parent = record.parent.ok_or(Error::BadLayer {
                layer: head,
                what: "it is a branch's head and has no parent",
            })?;
            return Ok(Settled {
                frozen: parent,
                head,
            });
        }
        self.settle_anyway(head)
    }

    /// Freezes `head` and lets the line go on in a new layer, whether anything was written in it or not.
    pub(super) fn settle_anyway(&mut self, head: LayerId) -> Result<Settled> {
        let mut record = self.store.require_open(head)?;
        record.state = LayerState::Frozen;
        Store::put_layer(&mut self.batch, head, &record);
        self.frozen = Some(head);
        Ok(Settled {
            frozen: head,
            head: self.open_on(head)?,
        })
    }

    /// Makes a new open layer on `parent`, which is frozen or about to be.
    pub(super) fn open_on(&mut self, parent: LayerId) -> Result<LayerId> {
        let state = self.store.layer_table().get(parent)?.state;
        if state != LayerState::Frozen && self.frozen != Some(parent) {
            return Err(Error::BadLayer {
                layer: parent,
                what: "it is not frozen",
            });
        }
        let id = self.store.new_layer_id()?;
        let record = open_layer(parent);
        Store::put_layer(&mut self.batch, id, &record);
        self.opened.push((id, record));
        Ok(id)
    }

    /// Notes what was merged into a layer.
    pub(super) fn put_merged(&mut self, layer: LayerId, merged: LayerId) -> Result<()> {
        let mut record = self.store.layer_table().get(layer)?.clone();
        record.merged.push(merged);
        Store::put_layer(&mut self.batch, layer, &record);
        self.merged = Some((layer, record.merged));
        Ok(())
    }

    pub(super) fn put_branch(&mut self, name: &str, record: &BranchRecord) {
        self.batch
            .put(Table::Branches, name.as_bytes(), record.encode());
    }

    pub(super) fn delete_branch(&mut self, name: &str) {
        self.batch.delete(Table::Branches, name.as_bytes());
    }

    pub(super) fn put_checkpoint(&mut self, id: CheckpointId, record: &CheckpointRecord) {
        self.batch
            .put(Table::Checkpoints, key::checkpoint(id), record.encode());
    }

    pub(super) fn delete_checkpoint(&mut self, id: CheckpointId) {
        self.batch.delete(Table::Checkpoints, key::checkpoint(id));
    }

    /// Writes everything, atomically, and then shows it in the table of layers.
    pub(super) fn commit(self, durability: Durability) -> Result<()> {
        self.store.write(&self.batch, durability)?;
        let mut layers = self.store.layers.write();
        if let Some(id) = self.frozen {
            layers.update(id, |record| record.state = LayerState::Frozen)?;
        }
        for (id, record) in self.opened {
            layers.insert(id, record)?;
        }
        if let Some((id, merged)) = self.merged {
            layers.update(id, |record| record.merged = merged)?;
        }
        Ok(())
    }
}

impl Store {
    /// Returns the record of a branch's head, which must be open.
    pub(super) fn require_open(&self, head: LayerId) -> Result<LayerRecord> {
        let record = self.layer_table().get(head)?.clone();
        match record.state {
            LayerState::Open => Ok(record),
            LayerState::Frozen | LayerState::Dead => Err(Error::BadLayer {
                layer: head,
                what: "it is a branch's head but not open",
            }),
        }
    }
}
