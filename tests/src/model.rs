//! The oracle: a file tree held in memory, so simple that it is right by reading.
//!
//! A branch or a checkpoint is a clone of the whole tree. Nothing in here is clever, shared or fast.

mod content;
mod entry;
mod load;
mod meta;
mod node;
mod world;

pub use node::{Body, Node, NodeId, Time};
pub use world::{Line, World};

use std::collections::BTreeMap;

use branchpoint_fs::attr::{FileKind, Timestamp};
use nix::errno::Errno;

use crate::act::{Act, Outcome};

/// The root directory of every tree.
pub const ROOT: NodeId = NodeId(0);

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// A file tree.
#[derive(Clone, Debug)]
pub struct Tree {
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    /// Nodes without a name that something still has open.
    pub(crate) pins: BTreeMap<NodeId, u64>,
}

impl Tree {
    /// Returns a tree that is only a root directory.
    pub fn new(now: Timestamp) -> Self {
        let root = Node::new(
            Body::Directory {
                entries: BTreeMap::new(),
                parent: ROOT,
            },
            0o755,
            now,
        );
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            pins: BTreeMap::new(),
        }
    }

    /// Returns the node, which must exist.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[&id]
    }

    /// Returns the node if it exists.
    pub fn find(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Returns all nodes, in the order in which they were made.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.keys().copied()
    }

    /// Returns the ids of the nodes that `choose` accepts.
    pub fn select(&self, choose: impl Fn(NodeId, &Node) -> bool) -> Vec<NodeId> {
        self.nodes
            .iter()
            .filter(|(id, node)| choose(**id, node))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Returns the nodes that something has open.
    pub fn pins(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.pins.keys().copied()
    }

    /// Returns the entries of a directory.
    pub fn entries(&self, dir: NodeId) -> Result<&BTreeMap<Vec<u8>, NodeId>, Errno> {
        match &self.node(dir).body {
            Body::Directory { entries, .. } => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(crate) fn entries_mut(&mut self, dir: NodeId) -> &mut BTreeMap<Vec<u8>, NodeId> {
        match &mut self.nodes.get_mut(&dir).expect("the directory exists").body {
            Body::Directory { entries, .. } => entries,
            _ => panic!("{dir:?} is not a directory"),
        }
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("the node exists")
    }

    /// Returns the link count that `stat` shows.
    pub fn nlink(&self, id: NodeId) -> u32 {
        let node = self.node(id);
        match &node.body {
            Body::Directory { .. } if node.names == 0 && id != ROOT => 0,
            Body::Directory { entries, .. } => {
                let dirs = entries
                    .values()
                    .filter(|e| self.node(**e).kind() == FileKind::Directory);
                2 + u32::try_from(dirs.count()).expect("few directories")
            }
            _ => node.names,
        }
    }

    /// Returns a path below the root to the node, `None` if it has no name.
    pub fn path(&self, id: NodeId) -> Option<Vec<u8>> {
        if id == ROOT {
            return Some(Vec::new());
        }
        for (dir, node) in &self.nodes {
            let Body::Directory { entries, .. } = &node.body else {
                continue;
            };
            if let Some((name, _)) = entries.iter().find(|(_, entry)| **entry == id) {
                let mut path = self.path(*dir)?;
                path.push(b'/');
                path.extend_from_slice(name);
                return Some(path);
            }
        }
        None
    }

    /// Returns whether `dir` is `ancestor` or lies below it.
    pub fn is_below(&self, dir: NodeId, ancestor: NodeId) -> bool {
        let mut at = dir;
        loop {
            if at == ancestor {
                return true;
            }
            match &self.node(at).body {
                Body::Directory { parent, .. } if at != ROOT => at = *parent,
                _ => return false,
            }
        }
    }

    /// Says that everything was read: nothing is known any more about times of access.
    pub fn forget_access_times(&mut self) {
        for node in self.nodes.values_mut() {
            node.atime = Time::Unknown;
        }
    }

    /// Says that nothing is known any more about the times of a node.
    pub fn forget_times(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        (node.atime, node.mtime) = (Time::Unknown, Time::Unknown);
    }

    /// Returns what the tree looks like to somebody who has nothing open in it.
    pub fn without_unnamed(&self) -> Self {
        let mut tree = self.clone();
        tree.pins.clear();
        let unnamed = tree.select(|id, node| node.names == 0 && id != ROOT);
        for id in unnamed {
            tree.nodes.remove(&id);
        }
        tree
    }

    /// Carries `act` out at the time `now`; a node that it makes gets the id `new`.
    pub fn apply(&mut self, act: &Act, new: NodeId, now: Timestamp) -> Result<Outcome, Errno> {
        match act {
            Act::Lookup { .. }
            | Act::Make { .. }
            | Act::Link { .. }
            | Act::Unlink { .. }
            | Act::Rmdir { .. }
            | Act::Rename { .. }
            | Act::List { .. }
            | Act::Readlink { .. } => self.apply_entry(act, new, now),
            Act::Read { .. }
            | Act::Write { .. }
            | Act::Append { .. }
            | Act::Truncate { .. }
            | Act::Allocate { .. }
            | Act::Copy { .. }
            | Act::Seek { .. } => self.apply_content(act, now),
            Act::Chmod { .. }
            | Act::Chown { .. }
            | Act::SetTimes { .. }
            | Act::SetXattr { .. }
            | Act::GetXattr { .. }
            | Act::ListXattrs { .. }
            | Act::RemoveXattr { .. } => self.apply_meta(act, now),
            Act::Pin { node } => {
                *self.pins.entry(*node).or_insert(0) += 1;
                Ok(Outcome::Done)
            }
            Act::Unpin { node } => {
                self.unpin(*node);
                Ok(Outcome::Done)
            }
        }
    }

    fn unpin(&mut self, node: NodeId) {
        if let Some(count) = self.pins.get_mut(&node) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&node);
                self.drop_if_gone(node);
            }
        }
    }

    pub(crate) fn drop_if_gone(&mut self, node: NodeId) {
        let gone = self.nodes.get(&node).is_some_and(|n| n.names == 0) && node != ROOT;
        if gone && !self.pins.contains_key(&node) {
            self.nodes.remove(&node);
        }
    }
}
