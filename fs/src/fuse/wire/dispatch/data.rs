//! Files opened, read and written.

use nix::errno::Errno;

use crate::error::Result;
use crate::fuse::node::Node;
use crate::fuse::service::WriteOrigin;
use crate::fuse::wire::abi::{WRITE_CACHE, WRITE_KILL_SUIDGID, fopen};
use crate::fuse::wire::convert;
use crate::fuse::wire::dispatch::{Dispatcher, ORDINARY};
use crate::fuse::wire::encode::{self, Put};
use crate::fuse::wire::request::{Header, Operation};

impl Dispatcher {
    /// Carries out an operation on the content of the file of `header`.
    pub(super) fn data(
        &self,
        header: &Header,
        operation: &Operation<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let (service, node) = (&self.service, Node::from_raw(header.node));
        match *operation {
            Operation::Open => self.open(header, out)?,
            Operation::Opendir if self.options.zero_message_opens => {
                return Err(Errno::ENOSYS.into());
            }
            Operation::Opendir => encode::opened(out, fopen::KEEP_CACHE | fopen::CACHE_DIR, 0),
            Operation::Release => {
                if let Some(backings) = &self.backings {
                    backings.release(header.node);
                }
            }
            Operation::Releasedir => {}
            Operation::Read { offset, size } => service.read(node, offset, size, out)?,
            Operation::Write {
                offset,
                flags,
                data,
            } => {
                // O_APPEND needs nothing: the kernel has put the end of the file into the offset.
                let origin = WriteOrigin {
                    cached: flags & WRITE_CACHE != 0,
                    kill_suid: flags & WRITE_KILL_SUIDGID != 0,
                };
                service.write(node, offset, data, origin)?;
                // A request is never larger than 1 MiB.
                out.put_u32(u32::try_from(data.len()).unwrap_or(u32::MAX));
                out.put_u32(0);
            }
            Operation::Fsync { data_only } | Operation::Fsyncdir { data_only } => {
                service.fsync(header.context(), node, data_only)?;
            }
            Operation::Fallocate {
                offset,
                length,
                mode,
            } => {
                let mode = convert::allocate_mode(mode).ok_or(Errno::EOPNOTSUPP)?;
                service.allocate(node, mode, offset, length)?;
            }
            Operation::Lseek { offset, whence } => {
                let to = convert::seek_to(whence).ok_or(Errno::EINVAL)?;
                if i64::try_from(offset).is_err() {
                    return Err(Errno::EINVAL.into());
                }
                out.put_u64(service.seek(node, offset, to)?);
            }
            Operation::CopyFileRange {
                offset,
                to,
                to_offset,
                len,
                wide,
            } => {
                // An answer of 32 bits holds no more; whoever wants more asks again.
                let len = len.min(1 << 30);
                let to = (Node::from_raw(to), to_offset);
                let copied = service.copy_range((node, offset), to, len)?;
                if wide {
                    out.put_u64(copied);
                } else {
                    out.put_u32(u32::try_from(copied).unwrap_or(u32::MAX));
                    out.put_u32(0);
                }
            }
            _ => return Err(Errno::ENOSYS.into()),
        }
        Ok(())
    }

    fn open(&self, header: &Header, out: &mut Vec<u8>) -> Result<()> {
        if self.zero_message_opens() {
            return Err(Errno::ENOSYS.into());
        }
        let backing = match &self.backings {
            None => None,
            Some(backings) => backings.open(header.node, || {
                self.service.backing(Node::from_raw(header.node))
            })?,
        };
        match backing {
            Some(id) => encode::opened(out, fopen::PASSTHROUGH, id),
            None => encode::opened(out, ORDINARY, 0),
        }
        Ok(())
    }
}
