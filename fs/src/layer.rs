//! The forest of layers in memory, and the one question that every lookup asks of it.

use std::collections::{HashMap, HashSet};

use crate::error::{Error, Result};
use crate::id::LayerId;
use crate::layout::record::{LayerRecord, LayerState};

#[derive(Clone, Debug)]
struct Node {
    record: LayerRecord,
    depth: u64,
    /// An ancestor further up, chosen so that any ancestor is reached in O(log depth) steps: the
    /// skew-binary jump pointers of Myers, which need one pointer a node and nothing at a distance.
    jump: LayerId,
}

/// All layers of a store.
#[derive(Debug, Default)]
pub struct LayerTable {
    nodes: HashMap<LayerId, Node>,
    /// Which layer holds the runs of a layer that was folded.
    holders: HashMap<LayerId, LayerId>,
}

impl LayerTable {
    /// Adds a layer. Its parent must be in already.
    ///
    /// # Errors
    /// [`Error::BadLayer`] if the parent is missing or not older.
    pub fn insert(&mut self, id: LayerId, record: LayerRecord) -> Result<()> {
        let (depth, jump) = match record.parent {
            None => (0, id),
            Some(parent_id) => {
                if parent_id >= id {
                    return Err(Error::BadLayer {
                        layer: id,
                        what: "its parent is not older",
                    });
                }
                let parent = self.nodes.get(&parent_id).ok_or(Error::BadLayer {
                    layer: id,
                    what: "its parent does not exist",
                })?;
                let jump = self.jump_for_child(parent_id, parent);
                (parent.depth + 1, jump)
            }
        };
        let node = Node {
            record,
            depth,
            jump,
        };
        self.disown(id);
        self.own(id, &node.record.adopted);
        self.nodes.insert(id, node);
        Ok(())
    }

    fn own(&mut self, holder: LayerId, adopted: &[LayerId]) {
        self.holders
            .extend(adopted.iter().map(|layer| (*layer, holder)));
    }

    fn disown(&mut self, holder: LayerId) {
        for layer in self
            .nodes
            .get(&holder)
            .map_or(&[][..], |node| &node.record.adopted)
        {
            if self.holders.get(layer) == Some(&holder) {
                self.holders.remove(layer);
            }
        }
    }

    /// Returns the layer that holds the runs of `layer`: itself, or the one that it was folded into.
    pub fn holder(&self, layer: LayerId) -> LayerId {
        self.holders.get(&layer).copied().unwrap_or(layer)
    }

    fn jump_for_child(&self, parent_id: LayerId, parent: &Node) -> LayerId {
        let (Some(one), depth) = (self.nodes.get(&parent.jump), parent.depth) else {
            return parent_id;
        };
        match self.nodes.get(&one.jump) {
            Some(two) if depth - one.depth == one.depth - two.depth => one.jump,
            _ => parent_id,
        }
    }

    /// Returns a layer's record.
    ///
    /// # Errors
    /// [`Error::BadLayer`] if there is no such layer.
    pub fn get(&self, id: LayerId) -> Result<&LayerRecord> {
        self.nodes
            .get(&id)
            .map(|node| &node.record)
            .ok_or(Error::BadLayer {
                layer: id,
                what: "it does not exist",
            })
    }

    /// Changes a layer's record in place; its parent must stay.
    ///
    /// # Errors
    /// [`Error::BadLayer`] if there is no such layer.
    pub fn update(&mut self, id: LayerId, change: impl FnOnce(&mut LayerRecord)) -> Result<()> {
        let mut record = self.get(id)?.clone();
        let parent = record.parent;
        change(&mut record);
        debug_assert_eq!(parent, record.parent);
        self.disown(id);
        self.own(id, &record.adopted);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.record = record;
        }
        Ok(())
    }

    /// Removes a layer that has no children.
    pub fn remove(&mut self, id: LayerId) {
        self.disown(id);
        self.nodes.remove(&id);
    }

    /// Returns what descends from a layer, parents first.
    pub fn descendants(&self, of: LayerId) -> Vec<LayerId> {
        let younger = self.nodes.keys().copied().filter(|id| *id > of);
        let mut found: Vec<LayerId> = younger.filter(|id| self.sees(*id, of)).collect();
        found.sort_unstable();
        found
    }

    /// Takes out `folded`, a line of layers without other children than each other and `into`, which
    /// gets `record`. `descendants` are those of `into`, as [`LayerTable::descendants`] returns them.
    ///
    /// # Errors
    /// [`Error::BadLayer`] if a layer or its parent does not exist.
    pub fn fold(
        &mut self,
        folded: &[LayerId],
        into: LayerId,
        record: LayerRecord,
        descendants: &[LayerId],
    ) -> Result<()> {
        for layer in folded {
            self.remove(*layer);
        }
        self.insert(into, record)?;
        // Depths and jumps follow from those of the parent.
        for layer in descendants {
            let record = self.get(*layer)?.clone();
            self.insert(*layer, record)?;
        }
        Ok(())
    }

    /// Returns all layers in no order.
    pub fn iter(&self) -> impl Iterator<Item = (LayerId, &LayerRecord)> {
        self.nodes.iter().map(|(id, node)| (*id, &node.record))
    }

    /// Returns how many layers there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of ancestors of a layer.
    pub fn depth(&self, id: LayerId) -> Option<u64> {
        self.nodes.get(&id).map(|node| node.depth)
    }

    /// Returns the greatest of `head` and its ancestors that is at most `bound`, in O(log depth).
    ///
    /// This answers both questions of a lookup: a version written in `bound` is visible from `head`
    /// iff the answer is `bound`, and if it is not, the answer is where to look next.
    pub fn floor_ancestor(&self, head: LayerId, bound: LayerId) -> Option<LayerId> {
        let mut at = head;
        while at > bound {
            let node = self.nodes.get(&at)?;
            at = if node.jump >= bound && node.jump < at {
                node.jump
            } else {
                node.record.parent?
            };
        }
        Some(at)
    }

    /// Returns whether what is written in `layer` can be seen from `head`.
    pub fn sees(&self, head: LayerId, layer: LayerId) -> bool {
        layer <= head && self.floor_ancestor(head, layer) == Some(layer)
    }

    /// Returns the youngest layer that both can see; trees of one store always have one.
    pub fn common_ancestor(&self, a: LayerId, b: LayerId) -> Option<LayerId> {
        let (mut a, mut b) = (a, b);
        while a != b {
            if a > b {
                a = self.floor_ancestor(a, b)?;
            } else {
                b = self.floor_ancestor(b, a)?;
            }
        }
        Some(a)
    }

    /// Returns the youngest layer whose changes both `a` and `b` have, because they descend from it or
    /// because it was merged into what they descend from.
    pub fn merge_base(&self, a: LayerId, b: LayerId) -> Option<LayerId> {
        let reached = self.reached(a);
        let both = self
            .reached(b)
            .into_iter()
            .filter(|id| reached.contains(id));
        // An ancestor is older, so none of the others can have the youngest behind it.
        both.max()
    }

    /// Returns a layer, its ancestors, what was merged into any of them, and so on.
    fn reached(&self, from: LayerId) -> HashSet<LayerId> {
        let mut reached = HashSet::new();
        let mut todo = vec![from];
        while let Some(id) = todo.pop() {
            let Some(node) = self.nodes.get(&id) else {
                continue;
            };
            if node.record.state != LayerState::Dead && reached.insert(id) {
                todo.extend(node.record.parent);
                todo.extend(&node.record.merged);
            }
        }
        reached
    }

    /// Returns `from` and its ancestors down to but without `until`, youngest first.
    pub fn line(&self, from: LayerId, until: Option<LayerId>) -> Vec<LayerId> {
        let mut line = Vec::new();
        let mut at = Some(from);
        while let Some(id) = at
            && at != until
        {
            line.push(id);
            at = self.nodes.get(&id).and_then(|node| node.record.parent);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(parent: Option<u64>) -> LayerRecord {
        LayerRecord {
            parent: parent.map(LayerId),
            state: LayerState::Frozen,
            pinned: false,
            created_us: 0,
            adopted: Vec::new(),
            merged: Vec::new(),
        }
    }

    /// A forest in which each layer's parent is some older one, chosen by a small generator.
    fn forest(count: u64, seed: u64) -> LayerTable {
        let mut table = LayerTable::default();
        table.insert(LayerId(1), record(None)).unwrap();
        let mut state = seed;
        for id in 2..=count {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let parent = if state >> 60 < 12 {
                id - 1
            } else {
                1 + (state >> 33) % (id - 1)
            };
            table.insert(LayerId(id), record(Some(parent))).unwrap();
        }
        table
    }

    #[test]
    fn floor_ancestor_agrees_with_walking() {
        for seed in 0..8 {
            let table = forest(400, seed);
            for head in (1..=400).step_by(7) {
                let line = table.line(LayerId(head), None);
                for bound in 1..=400 {
                    let walked = line.iter().copied().find(|id| id.0 <= bound);
                    assert_eq!(table.floor_ancestor(LayerId(head), LayerId(bound)), walked);
                }
            }
        }
    }

    #[test]
    fn common_ancestor_agrees_with_walking() {
        let table = forest(300, 3);
        for a in (1..=300).step_by(11) {
            let line = table.line(LayerId(a), None);
            for b in (1..=300).step_by(13) {
                let other = table.line(LayerId(b), None);
                let walked = line.iter().copied().find(|id| other.contains(id));
                assert_eq!(table.common_ancestor(LayerId(a), LayerId(b)), walked);
            }
        }
    }

    #[test]
    fn a_deep_chain_is_climbed_in_few_steps() {
        let mut table = LayerTable::default();
        table.insert(LayerId(1), record(None)).unwrap();
        for id in 2..=100_000 {
            table.insert(LayerId(id), record(Some(id - 1))).unwrap();
        }
        let mut at = LayerId(100_000);
        let mut steps = 0;
        while at > LayerId(17) {
            let node = &table.nodes[&at];
            let jumps = node.jump > LayerId(17) && node.jump < at;
            at = if jumps {
                node.jump
            } else {
                node.record.parent.unwrap()
            };
            steps += 1;
        }
        assert!(steps < 60, "{steps} steps");
    }

    #[test]
    fn folding_layers_leaves_the_ancestry_of_the_others() {
        for seed in 0..6 {
            let mut table = forest(300, seed);
            loop {
                let mut children: HashMap<LayerId, Vec<LayerId>> = HashMap::new();
                for (id, record) in table.iter() {
                    if let Some(parent) = record.parent {
                        children.entry(parent).or_default().push(id);
                    }
                }
                let mut single = children.iter().filter_map(|(id, all)| match all[..] {
                    [child] if id.0 > 1 && id.0 % 5 != 0 => Some((*id, child)),
                    _ => None,
                });
                let Some((layer, child)) = single.next() else {
                    break;
                };
                let mut record = table.get(child).unwrap().clone();
                record.parent = table.get(layer).unwrap().parent;
                record.adopted.push(layer);
                let descendants = table.descendants(child);
                table.fold(&[layer], child, record, &descendants).unwrap();
                assert_eq!(table.holder(layer), child);
                assert!(table.get(layer).is_err());
            }
            let ids: Vec<LayerId> = table.iter().map(|(id, _)| id).collect();
            assert!(ids.len() < 250);
            for head in ids {
                let line = table.line(head, None);
                assert_eq!(table.depth(head), Some(line.len() as u64 - 1));
                for bound in (1..=300).step_by(3) {
                    let walked = line.iter().copied().find(|id| id.0 <= bound);
                    assert_eq!(table.floor_ancestor(head, LayerId(bound)), walked);
                }
            }
        }
    }

    #[test]
    fn damaged_parents_are_refused() {
        let mut table = forest(3, 1);
        assert!(table.insert(LayerId(9), record(Some(8))).is_err());
        assert!(table.insert(LayerId(9), record(Some(9))).is_err());
        assert!(table.get(LayerId(77)).is_err());
    }
}
