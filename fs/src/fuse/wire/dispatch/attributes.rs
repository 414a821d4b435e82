//! Attributes, extended attributes and the numbers of the whole filesystem.

use nix::errno::Errno;

use crate::error::Result;
use crate::fuse::node::Node;
use crate::fuse::wire::convert;
use crate::fuse::wire::dispatch::Dispatcher;
use crate::fuse::wire::encode::{self, Put};
use crate::fuse::wire::request::{Header, Operation};

impl Dispatcher {
    /// Carries out an operation on attributes of the file of `header`.
    pub(super) fn attribute(
        &self,
        header: &Header,
        operation: &Operation<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let (service, node) = (&self.service, Node::from_raw(header.node));
        match *operation {
            Operation::Getattr => encode::attr(out, self.kept, &service.getattr(node)?),
            Operation::Setattr(ref change) => {
                let attr = service.setattr(header.context(), node, change)?;
                encode::attr(out, self.kept, &attr);
            }
            Operation::Readlink => out.append(&mut service.readlink(node)?),
            Operation::Setxattr { name, value, flags } => {
                let mode = convert::xattr_mode(flags).ok_or(Errno::EINVAL)?;
                service.setxattr(header.context(), node, name, value, mode)?;
            }
            Operation::Getxattr { name, room } => {
                put_xattr(&service.getxattr(node, name)?, room, out)?;
            }
            Operation::Listxattr { room } => put_xattr(&service.listxattr(node)?, room, out)?,
            Operation::Removexattr { name } => service.removexattr(node, name)?,
            Operation::Statfs => encode::statfs(out, &service.statfs(node)?),
            _ => return Err(Errno::ENOSYS.into()),
        }
        Ok(())
    }
}

/// Appends the value or, if the caller has no room yet, the size of an extended attribute.
fn put_xattr(value: &[u8], room: u32, out: &mut Vec<u8>) -> Result<()> {
    let size = u32::try_from(value.len()).map_err(|_| Errno::E2BIG)?;
    if room == 0 {
        out.put_u32(size);
        out.put_u32(0);
        Ok(())
    } else if size <= room {
        out.extend_from_slice(value);
        Ok(())
    } else {
        Err(Errno::ERANGE.into())
    }
}
