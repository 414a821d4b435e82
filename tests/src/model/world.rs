//! Branches and checkpoints of the model: whole trees, cloned.

use std::collections::BTreeMap;

use branchpoint_fs::id::CheckpointId;

use super::{NodeId, Tree};

/// A branch.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it looks like.
    pub tree: Tree,
}

/// All branches and checkpoints of a store.
#[derive(Clone, Debug)]
pub struct World {
    /// The branches by name.
    pub branches: BTreeMap<String, Line>,
    /// The checkpoints, oldest first.
    pub checkpoints: Vec<(CheckpointId, Tree)>,
    /// The branch on which operations work.
    pub current: String,
    next_node: u64,
}

impl World {
    /// Returns a world with one branch, `main`.
    pub fn new(tree: Tree) -> Self {
        let next_node = tree.ids().last().map_or(0, |id| id.0) + 1;
        Self {
            branches: BTreeMap::from([("main".to_owned(), Line { tree })]),
            checkpoints: Vec::new(),
            current: "main".to_owned(),
            next_node,
        }
    }

    /// Returns an id that no node has.
    pub fn fresh(&mut self) -> NodeId {
        self.next_node += 1;
        NodeId(self.next_node)
    }

    /// Returns the tree on which operations work.
    pub fn tree(&self) -> &Tree {
        &self.branches[&self.current].tree
    }

    /// Returns the tree on which operations work.
    pub fn tree_mut(&mut self) -> &mut Tree {
        &mut self
            .branches
            .get_mut(&self.current)
            .expect("the current branch exists")
            .tree
    }

    /// Returns the tree of a checkpoint.
    pub fn checkpoint(&self, id: CheckpointId) -> Option<&Tree> {
        self.checkpoints
            .iter()
            .find(|(known, _)| *known == id)
            .map(|(_, tree)| tree)
    }
}
