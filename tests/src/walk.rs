//! Compares a whole view with a tree of the model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use branchpoint_fs::attr::{Attr, FileKind, Timestamp};
use branchpoint_fs::id::Ino;
use branchpoint_fs::view::View;

use crate::exec::view::Inodes;
use crate::model::{Body, NodeId, ROOT, Time, Tree};

/// Compares everything below the root, and what is open without a name; says the first difference.
pub fn compare(view: &Arc<View>, inodes: &mut Inodes, tree: &Tree) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    compare_node(view, inodes, tree, (ROOT, Ino::ROOT), b"/", &mut seen)?;
    for node in tree.pins() {
        // What has a name too was compared there, and reading it has moved its access time.
        if !seen.insert(node) {
            continue;
        }
        let ino = inodes
            .find(view, tree, node)
            .map_err(|e| format!("open {node:?}: {e}"))?;
        compare_one(view, tree, node, ino).map_err(|what| format!("open {node:?}: {what}"))?;
    }
    Ok(())
}

fn compare_node(
    view: &Arc<View>,
    inodes: &mut Inodes,
    tree: &Tree,
    (node, ino): (NodeId, Ino),
    path: &[u8],
    seen: &mut BTreeSet<NodeId>,
) -> Result<(), String> {
    let place = |what: String| format!("{} ({node:?}, inode {ino}): {what}", path.escape_ascii());
    inodes.learn(node, ino).map_err(place)?;
    // By a second name only that it is the same file; comparing has moved its access time.
    if !seen.insert(node) {
        return Ok(());
    }
    compare_one(view, tree, node, ino).map_err(place)?;
    let Body::Directory { entries, parent } = &tree.node(node).body else {
        return Ok(());
    };
    let parent = inodes
        .find(view, tree, *parent)
        .map_err(|e| place(e.to_string()))?;
    let listed = list(view, ino, parent).map_err(place)?;
    let names: Vec<&Vec<u8>> = listed.keys().collect();
    if !names.iter().copied().eq(entries.keys()) {
        let expected: Vec<_> = entries
            .keys()
            .map(|n| n.escape_ascii().to_string())
            .collect();
        let got: Vec<_> = names.iter().map(|n| n.escape_ascii().to_string()).collect();
        return Err(place(format!("lists {got:?}, expected {expected:?}")));
    }
    for (name, child) in entries {
        let attr = &listed[name];
        let found = view
            .lookup(ino, name)
            .map_err(|e| place(format!("lookup of {name:?}: {e}")))?;
        if found.ino != attr.ino {
            return Err(place(format!(
                "{name:?} is inode {} when listed, {} when looked up",
                attr.ino, found.ino
            )));
        }
        let path = [path, name, b"/"].concat();
        compare_node(view, inodes, tree, (*child, attr.ino), &path, seen)?;
    }
    Ok(())
}

/// Lists a directory in portions, so that the cookies are used.
fn list(view: &View, ino: Ino, parent: Ino) -> Result<BTreeMap<Vec<u8>, Attr>, String> {
    const PORTION: usize = 3;
    let mut entries = BTreeMap::new();
    let (mut cookie, mut dots) = (0, 0);
    loop {
        let mut left = PORTION;
        let mut twice = None;
        let result = view.readdir_plus(ino, cookie, &mut |entry, attr| {
            (cookie, left) = (entry.cookie, left - 1);
            match entry.name.as_slice() {
                b"." if entry.ino == ino => dots += 1,
                b".." if entry.ino == parent => dots += 1,
                _ => {
                    if entry.ino != attr.ino || entry.kind != attr.kind {
                        twice = Some(format!("{entry:?} does not fit {attr:?}"));
                    }
                    if entries.insert(entry.name.clone(), *attr).is_some() {
                        twice = Some(format!("{:?} is listed twice", entry.name));
                    }
                }
            }
            left > 0
        });
        result.map_err(|e| format!("readdir_plus: {e}"))?;
        if let Some(what) = twice {
            return Err(what);
        }
        if left > 0 {
            break;
        }
    }
    if dots != 2 {
        return Err(format!(
            "'.' and '..' are listed {dots} times or with wrong inodes"
        ));
    }
    Ok(entries)
}

fn compare_one(view: &View, tree: &Tree, id: NodeId, ino: Ino) -> Result<(), String> {
    let node = tree.node(id);
    let attr = view.getattr(ino).map_err(|e| format!("getattr: {e}"))?;
    let (rdev, size) = match &node.body {
        Body::Special { rdev, .. } => (*rdev, None),
        Body::Directory { .. } => (0, None),
        Body::Symlink(target) => (0, Some(target.len())),
        Body::Regular(bytes) => (0, Some(bytes.len())),
    };
    let expected = (
        node.kind(),
        node.perm,
        node.uid,
        node.gid,
        tree.nlink(id),
        rdev,
    );
    let got = (
        attr.kind, attr.perm, attr.uid, attr.gid, attr.nlink, attr.rdev,
    );
    if expected != got {
        return Err(format!(
            "(kind, mode, owner, group, links, device) are {got:?}, expected {expected:?}"
        ));
    }
    if size.is_some_and(|size| u64::try_from(size).ok() != Some(attr.size)) {
        return Err(format!("size is {}, expected {size:?}", attr.size));
    }
    // An earlier comparison may have read the file, and reading moves a time of access that is
    // older than the last change (relatime): then it lies in the last hour.
    let moved_by_reading = attr.atime.secs > Timestamp::now().secs - 3600;
    if !moved_by_reading {
        compare_time("atime", node.atime, attr.atime)?;
    }
    compare_time("mtime", node.mtime, attr.mtime)?;
    compare_xattrs(view, node, ino)?;
    match &node.body {
        Body::Symlink(target) => {
            let got = view.readlink(ino).map_err(|e| format!("readlink: {e}"))?;
            if got != *target {
                return Err(format!("target is {got:?}, expected {target:?}"));
            }
        }
        Body::Regular(bytes) => compare_bytes(view, ino, bytes)?,
        _ => {}
    }
    Ok(())
}

fn compare_time(which: &str, expected: Time, got: Timestamp) -> Result<(), String> {
    let agree = match expected {
        Time::At(at) => at == got,
        Time::Since(since) => since <= got && got <= Timestamp::now(),
        Time::Unknown => true,
    };
    if agree {
        Ok(())
    } else {
        Err(format!("{which} is {got:?}, expected {expected:?}"))
    }
}

fn compare_xattrs(view: &View, node: &crate::model::Node, ino: Ino) -> Result<(), String> {
    if !matches!(node.kind(), FileKind::Regular | FileKind::Directory) {
        return Ok(());
    }
    let mut got = BTreeMap::new();
    for name in view.listxattr(ino).map_err(|e| format!("listxattr: {e}"))? {
        let value = view
            .getxattr(ino, &name)
            .map_err(|e| format!("getxattr {name:?}: {e}"))?;
        got.insert(name, value);
    }
    if got != node.xattrs {
        return Err(format!("xattrs are {got:?}, expected {:?}", node.xattrs));
    }
    Ok(())
}

fn compare_bytes(view: &View, ino: Ino, expected: &[u8]) -> Result<(), String> {
    let size = u32::try_from(expected.len() + 10).expect("files of the model are small");
    let mut got = Vec::new();
    view.read(ino, 0, size, &mut got)
        .map_err(|e| format!("read: {e}"))?;
    if got.len() != expected.len() {
        return Err(format!(
            "{} bytes were read, expected {}",
            got.len(),
            expected.len()
        ));
    }
    match got
        .iter()
        .zip(expected)
        .position(|(got, expected)| got != expected)
    {
        None => Ok(()),
        Some(at) => Err(format!(
            "byte {at} (block {}) of {} is {:#x}, expected {:#x}",
            at / 4096,
            expected.len(),
            got[at],
            expected[at]
        )),
    }
}
