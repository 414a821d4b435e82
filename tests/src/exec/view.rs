//! Carries operations out on a view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use branchpoint_fs::attr::{Caller, FileKind, RenameMode, SetAttr};
use branchpoint_fs::error::Result;
use branchpoint_fs::id::Ino;
use branchpoint_fs::view::View;

use crate::act::{Act, Made, Outcome, pattern};
use crate::model::{NodeId, ROOT, Tree};

/// Which inode each node of the model is; the same in all branches and for the life of the store.
#[derive(Clone, Debug)]
pub struct Inodes {
    of_node: BTreeMap<NodeId, Ino>,
    of_ino: BTreeMap<Ino, NodeId>,
}

impl Default for Inodes {
    fn default() -> Self {
        let mut inodes = Self {
            of_node: BTreeMap::new(),
            of_ino: BTreeMap::new(),
        };
        inodes.learn(ROOT, Ino::ROOT).expect("nothing is known yet");
        inodes
    }
}

impl Inodes {
    /// Remembers that `node` is `ino`, or says what contradicts it.
    pub fn learn(&mut self, node: NodeId, ino: Ino) -> std::result::Result<(), String> {
        let known_ino = *self.of_node.entry(node).or_insert(ino);
        let known_node = *self.of_ino.entry(ino).or_insert(node);
        if known_ino != ino {
            return Err(format!(
                "{node:?} was inode {known_ino} and is now inode {ino}"
            ));
        }
        if known_node != node {
            return Err(format!(
                "inode {ino} is {known_node:?} and {node:?} at once"
            ));
        }
        Ok(())
    }

    /// Returns the inode of `node`, looking up the names on its path if it was never seen.
    pub fn find(&mut self, view: &View, tree: &Tree, node: NodeId) -> Result<Ino> {
        if let Some(ino) = self.of_node.get(&node) {
            return Ok(*ino);
        }
        let path = tree.path(node).expect("what was never seen has a name");
        let mut ino = Ino::ROOT;
        for name in path.split(|b| *b == b'/').skip(1) {
            ino = view.lookup(ino, name)?.ino;
        }
        self.learn(node, ino)
            .unwrap_or_else(|what| panic!("{what}"));
        Ok(ino)
    }

    fn node_of(&self, ino: Ino) -> Option<NodeId> {
        self.of_ino.get(&ino).copied()
    }
}

/// Carries `act` out on `view`. `tree` is the model before the operation; a node that the operation
/// makes is called `new`.
pub fn apply(
    view: &Arc<View>,
    inodes: &mut Inodes,
    tree: &Tree,
    act: &Act,
    new: NodeId,
) -> Result<Outcome> {
    let mut find = |node: &NodeId| inodes.find(view, tree, *node);
    Ok(match act {
        Act::Lookup { dir, name } => {
            let ino = find(dir)?;
            let attr = view.lookup(ino, name)?;
            // What was never seen is what the model says, and must stay so from now on.
            if let (None, Ok(Some(node))) = (inodes.node_of(attr.ino), tree.entry(*dir, name)) {
                inodes
                    .learn(node, attr.ino)
                    .unwrap_or_else(|what| panic!("{what}"));
            }
            let node = inodes
                .node_of(attr.ino)
                .unwrap_or_else(|| panic!("unknown {attr:?}"));
            Outcome::Found {
                node,
                kind: attr.kind,
            }
        }
        Act::Make {
            dir,
            name,
            what,
            perm,
            umask,
            uid,
            gid,
        } => {
            let caller = Caller {
                uid: *uid,
                gid: *gid,
            };
            let dir = find(dir)?;
            let attr = match what {
                Made::Regular => {
                    view.mknod(caller, dir, name, FileKind::Regular, *perm, *umask, 0)?
                }
                Made::Special { kind, rdev } => {
                    view.mknod(caller, dir, name, *kind, *perm, *umask, *rdev)?
                }
                Made::Directory => view.mkdir(caller, dir, name, *perm, *umask)?,
                Made::Symlink(target) => view.symlink(caller, dir, name, target)?,
            };
            inodes
                .learn(new, attr.ino)
                .unwrap_or_else(|what| panic!("{what}"));
            Outcome::Made(new)
        }
        Act::Link { node, dir, name } => {
            let (node, dir) = (find(node)?, find(dir)?);
            view.link(node, dir, name)?;
            Outcome::Done
        }
        Act::Unlink { dir, name } => {
            view.unlink(find(dir)?, name)?;
            Outcome::Done
        }
        Act::Rmdir { dir, name } => {
            view.rmdir(find(dir)?, name)?;
            Outcome::Done
        }
        Act::Rename {
            dir,
            name,
            to_dir,
            to_name,
            mode,
        } => {
            let (dir, to_dir) = (find(dir)?, find(to_dir)?);
            let before = view.lookup(dir, name).map(|attr| attr.ino);
            view.rename(Caller::ROOT, dir, name, to_dir, to_name, *mode)?;
            rename_outcome(view, inodes, (dir, name), before, *mode, new)?
        }
        Act::List { dir } => {
            let dir = find(dir)?;
            let mut names = BTreeSet::new();
            view.readdir(dir, 0, &mut |entry| names.insert(entry.name.clone()))?;
            Outcome::Names(names)
        }
        Act::Readlink { node } => Outcome::Bytes(view.readlink(find(node)?)?),
        _ => return apply_to_inode(view, &mut find, act),
    })
}

fn rename_outcome(
    view: &View,
    inodes: &mut Inodes,
    (dir, name): (Ino, &[u8]),
    before: Result<Ino>,
    mode: RenameMode,
    new: NodeId,
) -> Result<Outcome> {
    if mode != RenameMode::Whiteout {
        return Ok(Outcome::Done);
    }
    let after = view.lookup(dir, name)?.ino;
    if before.is_ok_and(|before| before == after) {
        return Ok(Outcome::Done);
    }
    inodes
        .learn(new, after)
        .unwrap_or_else(|what| panic!("{what}"));
    Ok(Outcome::Made(new))
}

fn apply_to_inode(
    view: &Arc<View>,
    find: &mut dyn FnMut(&NodeId) -> Result<Ino>,
    act: &Act,
) -> Result<Outcome> {
    let root = Caller::ROOT;
    Ok(match act {
        Act::Read { node, offset, len } => {
            let mut bytes = Vec::new();
            let size = u32::try_from(*len).expect("short reads");
            view.read(find(node)?, *offset, size, &mut bytes)?;
            Outcome::Bytes(bytes)
        }
        Act::Write {
            node,
            offset,
            len,
            seed,
            kill,
        } => {
            let data = pattern(*seed, usize::try_from(*len).expect("short writes"));
            view.write(find(node)?, *offset, &data, *kill)?;
            Outcome::Done
        }
        Act::Append { node, len, seed } => {
            let data = pattern(*seed, usize::try_from(*len).expect("short writes"));
            view.append(find(node)?, &data)?;
            Outcome::Done
        }
        Act::Truncate { caller, node, size } => {
            let change = SetAttr {
                size: Some(*size),
                ..SetAttr::default()
            };
            view.setattr(*caller, find(node)?, &change)?;
            Outcome::Done
        }
        Act::Allocate {
            node,
            mode,
            offset,
            len,
        } => {
            view.allocate(find(node)?, *mode, *offset, *len)?;
            Outcome::Done
        }
        Act::Copy {
            from,
            from_offset,
            to,
            to_offset,
            len,
        } => {
            let (from, to) = (find(from)?, find(to)?);
            Outcome::Count(view.copy_range(from, *from_offset, to, *to_offset, *len)?)
        }
        Act::Seek { node, offset, to } => Outcome::Offset(view.seek(find(node)?, *offset, *to)?),
        Act::Chmod { node, perm } => {
            let change = SetAttr {
                perm: Some(*perm),
                ..SetAttr::default()
            };
            view.setattr(root, find(node)?, &change)?;
            Outcome::Done
        }
        Act::Chown { node, uid, gid } => {
            let change = SetAttr {
                uid: *uid,
                gid: *gid,
                ..SetAttr::default()
            };
            view.setattr(root, find(node)?, &change)?;
            Outcome::Done
        }
        Act::SetTimes { node, atime, mtime } => {
            let change = SetAttr {
                atime: *atime,
                mtime: *mtime,
                ..SetAttr::default()
            };
            view.setattr(root, find(node)?, &change)?;
            Outcome::Done
        }
        Act::SetXattr {
            node,
            name,
            value,
            mode,
        } => {
            view.setxattr(root, find(node)?, name, value, *mode)?;
            Outcome::Done
        }
        Act::GetXattr { node, name } => Outcome::Bytes(view.getxattr(find(node)?, name)?),
        Act::ListXattrs { node } => {
            Outcome::Names(view.listxattr(find(node)?)?.into_iter().collect())
        }
        Act::RemoveXattr { node, name } => {
            view.removexattr(find(node)?, name)?;
            Outcome::Done
        }
        Act::Pin { node } => {
            view.remember(find(node)?, 1);
            Outcome::Done
        }
        Act::Unpin { node } => {
            view.forget(find(node)?, 1);
            Outcome::Done
        }
        _ => unreachable!("an operation on names: {act:?}"),
    })
}
