//! Layers, branches, checkpoints, counters: I1 to I5.

use std::collections::{HashMap, HashSet};

use crate::check::{Checker, Place};
use crate::collect::fold;
use crate::id::{CheckpointId, LayerId};
use crate::kv::Table;
use crate::layout::key;
use crate::layout::record::{
    BranchRecord, CheckpointRecord, ConfigRecord, LayerRecord, LayerState,
};

impl Checker<'_> {
    /// Reads the records that say which layers matter, and checks branches and checkpoints (I3, I4).
    pub(super) fn records(&mut self) {
        let mut branches: Vec<(String, BranchRecord)> = Vec::new();
        self.each(Table::Branches, &[], &mut |checker, key, value| {
            let name = String::from_utf8_lossy(key).into_owned();
            let record = BranchRecord::decode(value);
            if let Some(record) = checker.read(record, &format!("branch '{name}'"), Place::Nowhere)
            {
                checker.named.push((name.clone(), record.head));
                branches.push((name, record));
            }
        });
        let mut checkpoints: HashMap<CheckpointId, CheckpointRecord> = HashMap::new();
        self.each(Table::Checkpoints, &[], &mut |checker, key, value| {
            let id = key::parse_id(Table::Checkpoints, key).map(CheckpointId);
            let record = CheckpointRecord::decode(value);
            if let Some(id) = checker.read(id, "key of a checkpoint", Place::Nowhere)
                && let Some(record) =
                    checker.read(record, &format!("checkpoint {id}"), Place::Nowhere)
            {
                checker.named.push((id.to_string(), record.layer));
                checkpoints.insert(id, record);
            }
        });
        self.each(Table::Layers, &[], &mut |checker, key, value| {
            let id = key::parse_id(Table::Layers, key).map(LayerId);
            let record = LayerRecord::decode(value);
            if let Some(id) = checker.read(id, "key of a layer", Place::Anywhere)
                && let Some(record) = checker.read(record, &format!("layer {id}"), Place::Layer(id))
            {
                let adopted = record.adopted.iter();
                checker.holders.extend(adopted.map(|layer| (*layer, id)));
                checker.layers.insert(id, record);
            }
        });
        let folding = fold::interrupted(self.store);
        self.folding = self
            .read(folding, "what was being folded", Place::Anywhere)
            .flatten()
            .filter(|(layer, into)| {
                [layer, into]
                    .iter()
                    .all(|id| self.layers.contains_key(id) && !self.is_dead(**id))
            });
        self.report.counts.layers = self.layers.len() as u64;
        self.report.counts.branches = branches.len() as u64;
        self.report.counts.checkpoints = checkpoints.len() as u64;
        let config = self
            .get(Table::Meta, b"config", Place::Anywhere)
            .unwrap_or_default();
        self.read(
            ConfigRecord::decode(&config),
            "the configuration",
            Place::Anywhere,
        );
        self.branches(&branches, &checkpoints);
        self.checkpoints(&checkpoints);
    }

    fn branches(
        &mut self,
        branches: &[(String, BranchRecord)],
        checkpoints: &HashMap<CheckpointId, CheckpointRecord>,
    ) {
        if branches.is_empty() {
            self.problem("I3", "a store has no branch", String::new(), Place::Nowhere);
        }
        let mut heads = HashSet::new();
        for (name, record) in branches {
            let (head, place) = (record.head, Place::Name(name));
            let state = self.layers.get(&head).map(|layer| layer.state);
            if state != Some(LayerState::Open) {
                let detail = format!("branch '{name}': layer {head} is {}", described(state));
                self.problem(
                    "I3",
                    "the head of a branch is not an open layer",
                    detail,
                    place,
                );
            }
            if !heads.insert(head) {
                let detail = format!("branch '{name}': layer {head}");
                self.problem(
                    "I3",
                    "the head of a branch is another one's too",
                    detail,
                    place,
                );
            }
            let Some(id) = record.checkpoint else {
                continue;
            };
            match checkpoints.get(&id) {
                None => {
                    let detail = format!("branch '{name}': checkpoint {id}");
                    self.problem("I3", "the checkpoint of a branch is missing", detail, place);
                }
                Some(checkpoint) if !self.sees(head, checkpoint.layer) => {
                    let layer = checkpoint.layer;
                    let detail = format!("branch '{name}': checkpoint {id}, layer {layer}");
                    let what = "the checkpoint of a branch does not lie behind its head";
                    self.problem("I3", what, detail, place);
                }
                Some(_) => {}
            }
        }
    }

    fn checkpoints(&mut self, checkpoints: &HashMap<CheckpointId, CheckpointRecord>) {
        let mut sorted: Vec<_> = checkpoints.iter().collect();
        sorted.sort_unstable_by_key(|(id, _)| **id);
        for (id, record) in sorted {
            let name = id.to_string();
            let place = Place::Name(&name);
            let state = self.layers.get(&record.layer).map(|layer| layer.state);
            if state != Some(LayerState::Frozen) {
                let layer = record.layer;
                let detail = format!("checkpoint {id}: layer {layer} is {}", described(state));
                self.problem(
                    "I4",
                    "the layer of a checkpoint is not frozen",
                    detail,
                    place,
                );
            }
            let Some(parent) = record.parent else {
                continue;
            };
            match checkpoints.get(&parent) {
                None => {
                    let detail = format!("checkpoint {id}: {parent}");
                    self.problem("I4", "the parent of a checkpoint is missing", detail, place);
                }
                Some(before) if !self.sees(record.layer, before.layer) => {
                    let detail = format!("checkpoint {id}: {parent}, layer {}", before.layer);
                    let what = "the parent of a checkpoint does not lie behind it";
                    self.problem("I4", what, detail, place);
                }
                Some(_) => {}
            }
        }
    }

    /// Checks the forest of layers (I2).
    pub(super) fn forest(&mut self) {
        let layers = self.layers.clone();
        for (id, record) in &layers {
            let place = Place::Layer(*id);
            let Some(parent) = record.parent else {
                if *id != LayerId::ROOT {
                    let detail = format!("layer {id}");
                    self.problem("I2", "a layer has no parent", detail, place);
                }
                continue;
            };
            let above = layers.get(&parent);
            if parent >= *id || above.is_none() {
                let detail = format!("layer {id}: parent {parent}");
                self.problem(
                    "I2",
                    "the parent of a layer is missing or younger",
                    detail,
                    place,
                );
                continue;
            }
            let state = above.map(|above| above.state);
            let allowed = match record.state {
                LayerState::Dead => state != Some(LayerState::Open),
                LayerState::Open | LayerState::Frozen => state == Some(LayerState::Frozen),
            };
            if !allowed {
                let detail = format!("layer {id}: parent {parent} is {}", described(state));
                self.problem("I2", "the parent of a layer is not frozen", detail, place);
            }
        }
        match layers.get(&LayerId::ROOT) {
            Some(root) if root.state == LayerState::Frozen && root.parent.is_none() => {}
            _ => {
                let detail = String::new();
                self.problem(
                    "I2",
                    "the root layer is missing or damaged",
                    detail,
                    Place::Anywhere,
                );
            }
        }
    }

    /// Checks that no counter would give a number again (I5).
    pub(super) fn counters(&mut self) {
        let greatest_layer = self.layers.keys().next_back().map_or(0, |id| id.0);
        let seen = [
            ("next_ino", self.greatest_ino),
            ("next_layer", greatest_layer),
            ("next_sequence", self.greatest_sequence),
        ];
        for (counter, greatest) in seen {
            let number = self.meta_number(counter);
            let number = self.read(number, counter, Place::Anywhere).flatten();
            if number.is_none_or(|number| number <= greatest) {
                let detail = format!("{counter} is {number:?}, but {greatest} is in use");
                self.problem(
                    "I5",
                    "a counter would give a number again",
                    detail,
                    Place::Nowhere,
                );
            }
        }
    }
}

fn described(state: Option<LayerState>) -> &'static str {
    match state {
        None => "missing",
        Some(LayerState::Open) => "open",
        Some(LayerState::Frozen) => "frozen",
        Some(LayerState::Dead) => "given up",
    }
}
