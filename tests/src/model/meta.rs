//! Operations on attributes and extended attributes.

use branchpoint_fs::attr::{FileKind, SetTime, Timestamp, XattrMode};
use nix::errno::Errno;

use super::Tree;
use super::node::Time;
use crate::act::{Act, Outcome};

impl Tree {
    pub(super) fn apply_meta(&mut self, act: &Act, now: Timestamp) -> Result<Outcome, Errno> {
        match act {
            Act::Chmod { node, perm } => {
                self.node_mut(*node).perm = perm & 0o7777;
                Ok(Outcome::Done)
            }
            Act::Chown { node, uid, gid } => {
                let file = self.node_mut(*node);
                file.uid = uid.unwrap_or(file.uid);
                file.gid = gid.unwrap_or(file.gid);
                if file.kind() != FileKind::Directory {
                    file.kill_privileges(true);
                }
                Ok(Outcome::Done)
            }
            Act::SetTimes { node, atime, mtime } => {
                let file = self.node_mut(*node);
                let known = |time: &Option<SetTime>, old| match time {
                    None => old,
                    Some(SetTime::Now) => Time::Since(now),
                    Some(SetTime::At(at)) => Time::At(*at),
                };
                file.atime = known(atime, file.atime);
                file.mtime = known(mtime, file.mtime);
                Ok(Outcome::Done)
            }
            Act::SetXattr {
                node,
                name,
                value,
                mode,
            } => {
                let xattrs = &mut self.node_mut(*node).xattrs;
                match (mode, xattrs.contains_key(name)) {
                    (XattrMode::Create, true) => Err(Errno::EEXIST),
                    (XattrMode::Replace, false) => Err(Errno::ENODATA),
                    _ => {
                        xattrs.insert(name.clone(), value.clone());
                        Ok(Outcome::Done)
                    }
                }
            }
            Act::GetXattr { node, name } => {
                let value = self.node(*node).xattrs.get(name);
                value.cloned().map(Outcome::Bytes).ok_or(Errno::ENODATA)
            }
            Act::ListXattrs { node } => Ok(Outcome::Names(
                self.node(*node).xattrs.keys().cloned().collect(),
            )),
            Act::RemoveXattr { node, name } => {
                let removed = self.node_mut(*node).xattrs.remove(name);
                removed.map(|_| Outcome::Done).ok_or(Errno::ENODATA)
            }
            _ => unreachable!("not an operation on attributes: {act:?}"),
        }
    }
}
