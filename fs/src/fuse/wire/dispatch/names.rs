//! Names found, made and removed, and directories listed.

use nix::errno::Errno;

use crate::attr::FileKind;
use crate::error::Result;
use crate::fuse::node::Node;
use crate::fuse::service::{Entry, NewFile};
use crate::fuse::wire::convert;
use crate::fuse::wire::dispatch::{Dispatcher, ORDINARY};
use crate::fuse::wire::encode::{self, Named};
use crate::fuse::wire::request::{Header, Operation};

impl Dispatcher {
    /// Carries out an operation on a name in the directory of `header`.
    pub(super) fn name(
        &self,
        header: &Header,
        operation: &Operation<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let (service, context) = (&self.service, header.context());
        let parent = Node::from_raw(header.node);
        match *operation {
            Operation::Lookup { name } => match service.lookup(context, parent, name)? {
                Some(entry) => self.entry(&entry, out),
                None if self.options.negative_entries => encode::no_entry(out, self.kept),
                None => return Err(Errno::ENOENT.into()),
            },
            Operation::Mknod {
                name,
                mode,
                rdev,
                umask,
            } => {
                // POSIX: no type bits mean a regular file.
                let kind = FileKind::from_mode(mode).unwrap_or(FileKind::Regular);
                let perm = mode & 0o7777;
                let file = NewFile {
                    kind,
                    perm,
                    umask,
                    rdev,
                };
                self.entry(&service.mknod(context, parent, name, file)?, out);
            }
            Operation::Create { name, mode, umask } => {
                if self.zero_message_opens() && self.options.zero_message_creates {
                    // The kernel takes MKNOD from now on.
                    return Err(Errno::ENOSYS.into());
                }
                let file = NewFile {
                    kind: FileKind::Regular,
                    perm: mode & 0o7777,
                    umask,
                    rdev: 0,
                };
                let made = service.mknod(context, parent, name, file)?;
                self.created(&made, out);
            }
            Operation::Tmpfile { mode, umask } => {
                let made = service.create_unnamed(context, parent, mode & 0o7777, umask)?;
                self.created(&made, out);
            }
            Operation::Mkdir { name, mode, umask } => {
                let made = service.mkdir(context, parent, name, mode & 0o7777, umask)?;
                self.entry(&made, out);
            }
            Operation::Symlink { name, target } => {
                self.entry(&service.symlink(context, parent, name, target)?, out);
            }
            Operation::Link { node, name } => {
                self.entry(&service.link(Node::from_raw(node), parent, name)?, out);
            }
            Operation::Unlink { name } => service.unlink(parent, name)?,
            Operation::Rmdir { name } => service.rmdir(parent, name)?,
            Operation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                let mode = convert::rename_mode(flags).ok_or(Errno::EINVAL)?;
                let to = (Node::from_raw(new_parent), new_name);
                service.rename(context, (parent, name), to, mode)?;
            }
            Operation::Readdir { cookie, size } => {
                let room = usize::try_from(size).unwrap_or(usize::MAX);
                service.readdir(parent, cookie, &mut |entry| {
                    encode::listed(out, room, entry, None)
                })?;
            }
            Operation::Readdirplus { cookie, size } => {
                let room = usize::try_from(size).unwrap_or(usize::MAX);
                service.readdir_plus(parent, cookie, &mut |node, entry, attr| {
                    let named = Named {
                        node,
                        name_kept: self.kept,
                        attr_kept: self.kept,
                        attr,
                    };
                    encode::listed(out, room, entry, Some(&named))
                })?;
            }
            _ => return Err(Errno::ENOSYS.into()),
        }
        Ok(())
    }

    fn entry(&self, entry: &Entry, out: &mut Vec<u8>) {
        let kept = |keep: bool| if keep { self.kept } else { Default::default() };
        let named = Named {
            node: entry.node,
            name_kept: kept(entry.keep),
            attr_kept: self.kept,
            attr: &entry.attr,
        };
        encode::entry(out, &named);
    }

    /// Answers with an entry that is open already.
    fn created(&self, entry: &Entry, out: &mut Vec<u8>) {
        if let Some(backings) = &self.backings {
            // A file made just now has nothing of the base.
            backings.open_ordinary(entry.node);
        }
        self.entry(entry, out);
        encode::opened(out, ORDINARY, 0);
    }
}
