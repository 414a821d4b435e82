//! Operations on names, in the order of checks of Linux.

use std::collections::{BTreeMap, BTreeSet};

use branchpoint_fs::attr::{FileKind, RenameMode, Timestamp};
use nix::errno::Errno;

use super::node::{Body, Node, NodeId, Time};
use super::{NAME_BYTES_MAX, Tree};
use crate::act::{Act, Made, Outcome};

impl Tree {
    pub(super) fn apply_entry(
        &mut self,
        act: &Act,
        new: NodeId,
        now: Timestamp,
    ) -> Result<Outcome, Errno> {
        match act {
            Act::Lookup { dir, name } => {
                let node = self.entry(*dir, name)?.ok_or(Errno::ENOENT)?;
                Ok(Outcome::Found {
                    node,
                    kind: self.node(node).kind(),
                })
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
                if self.entry(*dir, name)?.is_some() {
                    return Err(Errno::EEXIST);
                }
                let mut node = Node::new(body(what, *dir), perm & !umask, now);
                node.uid = *uid;
                node.gid = *gid;
                self.inherit_group(*dir, &mut node);
                if matches!(node.body, Body::Symlink(_)) {
                    node.perm = 0o777;
                }
                self.nodes.insert(new, node);
                self.attach(*dir, name, new, now);
                Ok(Outcome::Made(new))
            }
            Act::Link { node, dir, name } => {
                if self.entry(*dir, name)?.is_some() {
                    return Err(Errno::EEXIST);
                }
                if self.node(*node).kind() == FileKind::Directory {
                    return Err(Errno::EPERM);
                }
                self.attach(*dir, name, *node, now);
                Ok(Outcome::Done)
            }
            Act::Unlink { dir, name } => {
                let node = self.entry(*dir, name)?.ok_or(Errno::ENOENT)?;
                if self.node(node).kind() == FileKind::Directory {
                    return Err(Errno::EISDIR);
                }
                self.detach(*dir, name, now);
                Ok(Outcome::Done)
            }
            Act::Rmdir { dir, name } => {
                let node = self.entry(*dir, name)?.ok_or(Errno::ENOENT)?;
                if !self.entries(node)?.is_empty() {
                    return Err(Errno::ENOTEMPTY);
                }
                self.detach(*dir, name, now);
                Ok(Outcome::Done)
            }
            Act::Rename {
                dir,
                name,
                to_dir,
                to_name,
                mode,
            } => self.rename((*dir, name), (*to_dir, to_name), *mode, new, now),
            Act::List { dir } => {
                self.node_mut(*dir).atime = Time::Unknown;
                let mut names: BTreeSet<Vec<u8>> = self.entries(*dir)?.keys().cloned().collect();
                names.insert(b".".to_vec());
                names.insert(b"..".to_vec());
                Ok(Outcome::Names(names))
            }
            Act::Readlink { node } => {
                self.node_mut(*node).atime = Time::Unknown;
                match &self.node(*node).body {
                    Body::Symlink(target) => Ok(Outcome::Bytes(target.clone())),
                    _ => Err(Errno::EINVAL),
                }
            }
            _ => unreachable!("not an operation on names: {act:?}"),
        }
    }

    /// Returns what `name` means in `dir`.
    pub fn entry(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>, Errno> {
        let entries = self.entries(dir)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        Ok(entries.get(name).copied())
    }

    fn inherit_group(&self, dir: NodeId, node: &mut Node) {
        let parent = self.node(dir);
        if parent.perm & libc::S_ISGID != 0 {
            node.gid = parent.gid;
            if node.kind() == FileKind::Directory {
                node.perm |= libc::S_ISGID;
            }
        }
    }

    fn attach(&mut self, dir: NodeId, name: &[u8], node: NodeId, now: Timestamp) {
        self.entries_mut(dir).insert(name.to_vec(), node);
        self.node_mut(node).names += 1;
        if let Body::Directory { parent, .. } = &mut self.node_mut(node).body {
            *parent = dir;
        }
        self.node_mut(dir).mtime = Time::Since(now);
    }

    fn detach(&mut self, dir: NodeId, name: &[u8], now: Timestamp) {
        let node = self.entries_mut(dir).remove(name).expect("the name exists");
        self.node_mut(node).names -= 1;
        self.node_mut(dir).mtime = Time::Since(now);
        self.drop_if_gone(node);
    }

    fn rename(
        &mut self,
        (dir, name): (NodeId, &[u8]),
        (to_dir, to_name): (NodeId, &[u8]),
        mode: RenameMode,
        new: NodeId,
        now: Timestamp,
    ) -> Result<Outcome, Errno> {
        let source = self.entry(dir, name)?.ok_or(Errno::ENOENT)?;
        let target = self.entry(to_dir, to_name)?;
        let exchange = mode == RenameMode::Exchange;
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EEXIST),
            (RenameMode::Exchange, None) => return Err(Errno::ENOENT),
            _ => {}
        }
        if dir != to_dir && self.is_below(to_dir, source) {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = target.filter(|_| dir != to_dir)
            && self.is_below(dir, target)
        {
            return Err(if exchange {
                Errno::EINVAL
            } else {
                Errno::ENOTEMPTY
            });
        }
        if target == Some(source) {
            return Ok(Outcome::Done);
        }
        if exchange {
            let target = target.expect("checked above");
            self.exchange((dir, name, source), (to_dir, to_name, target), now);
            return Ok(Outcome::Done);
        }
        if let Some(target) = target {
            self.check_replace(source, target)?;
            self.detach(to_dir, to_name, now);
        }
        self.attach(to_dir, to_name, source, now);
        self.detach(dir, name, now);
        if mode == RenameMode::Whiteout {
            let body = Body::Special {
                kind: FileKind::CharDevice,
                rdev: 0,
            };
            let mut whiteout = Node::new(body, 0, now);
            self.inherit_group(dir, &mut whiteout);
            self.nodes.insert(new, whiteout);
            self.attach(dir, name, new, now);
            return Ok(Outcome::Made(new));
        }
        Ok(Outcome::Done)
    }

    /// Returns every reason for which a rename fails. The kernel checks some of them before it asks a
    /// filesystem, so of several reasons a filesystem itself may give any.
    pub fn rename_faults(&self, act: &Act) -> Vec<Errno> {
        let Act::Rename {
            dir,
            name,
            to_dir,
            to_name,
            mode,
        } = act
        else {
            return Vec::new();
        };
        let mut faults = Vec::new();
        let (source, target) = (self.entry(*dir, name), self.entry(*to_dir, to_name));
        faults.extend(source.err());
        faults.extend(target.err());
        let (source, target) = (source.ok().flatten(), target.ok().flatten());
        let exchange = *mode == RenameMode::Exchange;
        if source.is_none() || (exchange && target.is_none()) {
            faults.push(Errno::ENOENT);
        }
        if target.is_some() && *mode == RenameMode::NoReplace {
            faults.push(Errno::EEXIST);
        }
        if source.is_some_and(|source| self.is_below(*to_dir, source)) {
            faults.push(Errno::EINVAL);
        }
        if let Some(target) = target {
            if self.is_below(*dir, target) {
                faults.push(if exchange {
                    Errno::EINVAL
                } else {
                    Errno::ENOTEMPTY
                });
            }
            let replace = source.map_or(Ok(()), |source| self.check_replace(source, target));
            faults.extend(replace.err().filter(|_| !exchange));
        }
        faults
    }

    fn check_replace(&self, source: NodeId, target: NodeId) -> Result<(), Errno> {
        let source_is_dir = self.node(source).kind() == FileKind::Directory;
        let target_is_dir = self.node(target).kind() == FileKind::Directory;
        match (source_is_dir, target_is_dir) {
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            (true, true) if !self.entries(target)?.is_empty() => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    fn exchange(&mut self, a: (NodeId, &[u8], NodeId), b: (NodeId, &[u8], NodeId), now: Timestamp) {
        self.entries_mut(a.0).insert(a.1.to_vec(), b.2);
        self.entries_mut(b.0).insert(b.1.to_vec(), a.2);
        for (node, dir) in [(a.2, b.0), (b.2, a.0)] {
            if let Body::Directory { parent, .. } = &mut self.node_mut(node).body {
                *parent = dir;
            }
            self.node_mut(dir).mtime = Time::Since(now);
        }
    }
}

fn body(what: &Made, dir: NodeId) -> Body {
    match what {
        Made::Regular => Body::Regular(Vec::new()),
        Made::Directory => Body::Directory {
            entries: BTreeMap::new(),
            parent: dir,
        },
        Made::Symlink(target) => Body::Symlink(target.clone()),
        Made::Special { kind, rdev } => Body::Special {
            kind: *kind,
            rdev: *rdev,
        },
    }
}
