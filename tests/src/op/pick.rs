//! From random picks to things that exist.

use branchpoint_fs::attr::{Caller, FileKind};

use super::{Name, Op, Pick};
use crate::act::{Act, Made};
use crate::model::{Node, NodeId, ROOT, Tree};

/// Users that own files: the superuser more often than others.
const OWNERS: [(u32, u32); 4] = [(0, 0), (0, 0), (1000, 1000), (1001, 2000)];

/// Names that operations draw from: few, so that they meet.
fn name_of(index: u8) -> Vec<u8> {
    match index % 16 {
        12 => vec![b'n'; 255],
        13 => vec![b'n'; 256],
        14 => b"\xff\xfenot utf-8\n".to_vec(),
        15 => "κόσμος".as_bytes().to_vec(),
        i => vec![b'a' + i],
    }
}

fn xattr_of(index: u8) -> Vec<u8> {
    match index % 5 {
        4 => b"trusted.t".to_vec(),
        i => vec![b'u', b's', b'e', b'r', b'.', b'a' + i],
    }
}

fn one<T: Copy>(from: &[T], pick: Pick) -> Option<T> {
    (!from.is_empty()).then(|| from[usize::from(pick) % from.len()])
}

/// Picks from one tree.
struct Picker<'a>(&'a Tree);

impl Picker<'_> {
    fn kind(&self, pick: Pick, fits: impl Fn(FileKind) -> bool) -> Option<NodeId> {
        one(&self.0.select(|_, node| fits(node.kind())), pick)
    }

    fn file(&self, pick: Pick) -> Option<NodeId> {
        self.kind(pick, |kind| kind == FileKind::Regular)
    }

    /// Named directories: nothing can be made in one that was removed.
    fn dir(&self, pick: Pick) -> Option<NodeId> {
        let fits =
            |id, node: &Node| node.kind() == FileKind::Directory && (id == ROOT || node.names > 0);
        one(&self.0.select(fits), pick)
    }

    fn linkable(&self, pick: Pick) -> Option<NodeId> {
        let fits = |_, node: &Node| node.kind() != FileKind::Directory && node.names > 0;
        one(&self.0.select(fits), pick)
    }

    fn entry(&self, dir: Pick, name: Name) -> Option<(NodeId, Vec<u8>)> {
        let dir = self.dir(dir)?;
        let name = match name {
            Name::Any(index) => name_of(index),
            Name::Taken(pick) => {
                let names: Vec<&Vec<u8>> = self.0.entries(dir).ok()?.keys().collect();
                one(&names, pick)?.clone()
            }
        };
        Some((dir, name))
    }

    fn make(
        &self,
        (dir, name): (Pick, Name),
        what: Made,
        perm: u32,
        umask: bool,
        owner: u8,
    ) -> Option<Act> {
        let (dir, name) = self.entry(dir, name)?;
        let (uid, gid) = OWNERS[usize::from(owner) % OWNERS.len()];
        let umask = if umask { 0o027 } else { 0 };
        Some(Act::Make {
            dir,
            name,
            what,
            perm,
            umask,
            uid,
            gid,
        })
    }
}

impl Op {
    /// Returns the operation on the things that it picks from `tree`; `None` if there is nothing to
    /// pick from, or if it is not an operation on a tree.
    pub fn resolve(&self, tree: &Tree) -> Option<Act> {
        let pick = Picker(tree);
        Some(match *self {
            Op::Lookup { dir, name } => {
                let (dir, name) = pick.entry(dir, name)?;
                Act::Lookup { dir, name }
            }
            Op::Create {
                dir,
                name,
                perm,
                umask,
                owner,
            } => pick.make((dir, name), Made::Regular, perm, umask, owner)?,
            Op::Mkdir {
                dir,
                name,
                perm,
                umask,
                owner,
            } => pick.make((dir, name), Made::Directory, perm & 0o1777, umask, owner)?,
            Op::Special { dir, name, what } => {
                let (kind, rdev) = match what % 4 {
                    0 => (FileKind::Fifo, 0),
                    1 => (FileKind::Socket, 0),
                    2 => (FileKind::CharDevice, 0x103),
                    _ => (FileKind::BlockDevice, 0x710),
                };
                pick.make((dir, name), Made::Special { kind, rdev }, 0o640, false, 0)?
            }
            Op::Symlink { dir, name, len } => {
                let target = vec![b't'; usize::from(len).clamp(1, 4095)];
                pick.make((dir, name), Made::Symlink(target), 0o777, false, 0)?
            }
            Op::Link { node, dir, name } => {
                let (dir, name) = pick.entry(dir, name)?;
                Act::Link {
                    node: pick.linkable(node)?,
                    dir,
                    name,
                }
            }
            Op::LinkDirectory { node, dir } => Act::Link {
                node: pick.dir(node)?,
                dir: pick.dir(dir)?,
                name: b"no such name".to_vec(),
            },
            Op::Unlink { dir, name } => {
                let (dir, name) = pick.entry(dir, name)?;
                Act::Unlink { dir, name }
            }
            Op::Rmdir { dir, name } => {
                let (dir, name) = pick.entry(dir, name)?;
                Act::Rmdir { dir, name }
            }
            Op::Rename {
                dir,
                name,
                to,
                to_name,
                mode,
            } => {
                let (dir, name) = pick.entry(dir, name)?;
                let (to_dir, to_name) = pick.entry(to, to_name)?;
                Act::Rename {
                    dir,
                    name,
                    to_dir,
                    to_name,
                    mode,
                }
            }
            Op::List { dir } => Act::List {
                dir: pick.dir(dir)?,
            },
            Op::Readlink { node } => Act::Readlink {
                node: pick.kind(node, |kind| kind == FileKind::Symlink)?,
            },
            _ => {
                return self
                    .resolve_content(&pick)
                    .or_else(|| self.resolve_meta(&pick));
            }
        })
    }

    fn resolve_content(&self, pick: &Picker<'_>) -> Option<Act> {
        Some(match *self {
            Op::Read { file, offset, len } => Act::Read {
                node: pick.file(file)?,
                offset,
                len,
            },
            Op::Write {
                file,
                offset,
                len,
                seed,
                kill,
            } => Act::Write {
                node: pick.file(file)?,
                offset,
                len,
                seed,
                kill,
            },
            Op::Append { file, len, seed } => Act::Append {
                node: pick.file(file)?,
                len,
                seed,
            },
            Op::Truncate { file, size, owner } => {
                let (uid, gid) = OWNERS[usize::from(owner) % OWNERS.len()];
                Act::Truncate {
                    caller: Caller { uid, gid },
                    node: pick.file(file)?,
                    size,
                }
            }
            Op::Allocate {
                file,
                mode,
                offset,
                len,
            } => Act::Allocate {
                node: pick.file(file)?,
                mode,
                offset,
                len,
            },
            Op::Copy {
                from,
                from_offset,
                to,
                to_offset,
                len,
            } => {
                let (from, to) = (pick.file(from)?, pick.file(to)?);
                // Overlapping ranges of one file are refused by the kernel, not by filesystems.
                let apart = from != to || from_offset.abs_diff(to_offset) >= len;
                apart.then_some(Act::Copy {
                    from,
                    from_offset,
                    to,
                    to_offset,
                    len,
                })?
            }
            Op::Seek { file, offset, to } => Act::Seek {
                node: pick.file(file)?,
                offset,
                to,
            },
            Op::Pin { file } => Act::Pin {
                node: pick.file(file)?,
            },
            Op::Unpin { pin } => Act::Unpin {
                node: one(&pick.0.pins().collect::<Vec<_>>(), pin)?,
            },
            _ => return None,
        })
    }

    fn resolve_meta(&self, pick: &Picker<'_>) -> Option<Act> {
        let with_xattrs = |node| {
            pick.kind(node, |kind| {
                matches!(kind, FileKind::Regular | FileKind::Directory)
            })
        };
        Some(match *self {
            Op::Chmod { node, perm } => Act::Chmod {
                node: pick.kind(node, |kind| kind != FileKind::Symlink)?,
                perm,
            },
            Op::Chown { node, uid, gid } if uid.is_some() || gid.is_some() => Act::Chown {
                node: pick.kind(node, |_| true)?,
                uid,
                gid,
            },
            Op::SetTimes { node, atime, mtime } if atime.is_some() || mtime.is_some() => {
                Act::SetTimes {
                    node: pick.kind(node, |_| true)?,
                    atime,
                    mtime,
                }
            }
            Op::SetXattr {
                node,
                name,
                len,
                seed,
                mode,
            } => {
                let value = crate::act::pattern(seed, usize::try_from(len).ok()?);
                Act::SetXattr {
                    node: with_xattrs(node)?,
                    name: xattr_of(name),
                    value,
                    mode,
                }
            }
            Op::GetXattr { node, name } => Act::GetXattr {
                node: with_xattrs(node)?,
                name: xattr_of(name),
            },
            Op::ListXattrs { node } => Act::ListXattrs {
                node: with_xattrs(node)?,
            },
            Op::RemoveXattr { node, name } => Act::RemoveXattr {
                node: with_xattrs(node)?,
                name: xattr_of(name),
            },
            _ => return None,
        })
    }
}
