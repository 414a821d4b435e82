//! Reads a directory of the running system into a tree.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use branchpoint_fs::attr::{FileKind, Timestamp};

use super::node::{Body, Node, NodeId, Time};
use super::{ROOT, Tree};

impl Tree {
    /// Returns the tree below `dir`. Entries with the same device and inode become one node.
    pub fn load(dir: &Path) -> Self {
        let mut tree = Self::new(Timestamp { secs: 0, nanos: 0 });
        let mut seen = BTreeMap::new();
        let mut next = ROOT.0;
        load_dir(&mut tree, dir, ROOT, &mut seen, &mut next);
        tree
    }
}

fn load_dir(
    tree: &mut Tree,
    path: &Path,
    dir: NodeId,
    seen: &mut BTreeMap<(u64, u64), NodeId>,
    next: &mut u64,
) {
    let mut names: Vec<_> = fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    names.sort();
    for name in names {
        let child = path.join(&name);
        let meta = fs::symlink_metadata(&child).unwrap();
        let id = *seen.entry((meta.dev(), meta.ino())).or_insert_with(|| {
            *next += 1;
            let mut node = Node::new(body(&child, &meta, dir), 0, Timestamp::default());
            copy_attributes(&mut node, &meta);
            tree.nodes.insert(NodeId(*next), node);
            NodeId(*next)
        });
        tree.entries_mut(dir).insert(name.as_bytes().to_vec(), id);
        tree.node_mut(id).names += 1;
        if meta.is_dir() {
            load_dir(tree, &child, id, seen, next);
        }
    }
    let meta = fs::metadata(path).unwrap();
    copy_attributes(tree.node_mut(dir), &meta);
}

fn body(path: &Path, meta: &fs::Metadata, dir: NodeId) -> Body {
    let kind = FileKind::from_mode(meta.mode()).expect("a known kind");
    match kind {
        FileKind::Regular => Body::Regular(fs::read(path).unwrap()),
        FileKind::Directory => Body::Directory {
            entries: BTreeMap::new(),
            parent: dir,
        },
        FileKind::Symlink => {
            Body::Symlink(fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec())
        }
        kind => Body::Special {
            kind,
            rdev: u32::try_from(meta.rdev()).expect("small devices"),
        },
    }
}

fn copy_attributes(node: &mut Node, meta: &fs::Metadata) {
    node.perm = meta.mode() & 0o7777;
    node.uid = meta.uid();
    node.gid = meta.gid();
    node.mtime = Time::At(Timestamp {
        secs: meta.mtime(),
        nanos: u32::try_from(meta.mtime_nsec()).expect("less than a second"),
    });
}
