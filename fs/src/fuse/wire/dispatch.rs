//! A request carried out: decoded, handed to the [`Service`], answered.

mod attributes;
mod data;
mod names;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;

use crate::error::{Error, ErrorKind, Result};
use crate::fuse::backing::Backings;
use crate::fuse::node::Node;
use crate::fuse::options::MountOptions;
use crate::fuse::service::Service;
use crate::fuse::wire::abi::fopen;
use crate::fuse::wire::count::Counts;
use crate::fuse::wire::init::Agreed;
use crate::fuse::wire::request::{Header, Operation};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The answer is what was appended.
    Done,
    /// The answer is this number.
    Failed(Errno),
    /// The kernel wants no answer.
    Silent,
}

/// One session's side of the protocol.
#[derive(Debug)]
pub(in crate::fuse) struct Dispatcher {
    service: Arc<Service>,
    options: MountOptions,
    /// How long the kernel may keep names and attributes.
    kept: Duration,
    /// Present on mounts that open through the kernel's passthrough.
    backings: Option<Backings>,
    counts: Arc<Counts>,
}

impl Dispatcher {
    /// Makes the dispatcher of the session of `device`.
    pub(in crate::fuse) fn new(
        service: Arc<Service>,
        options: &MountOptions,
        agreed: &Agreed,
        device: &Arc<OwnedFd>,
        counts: Arc<Counts>,
    ) -> Self {
        Self {
            service,
            kept: options.lifetime(),
            options: options.clone(),
            backings: agreed
                .passthrough()
                .then(|| Backings::new(Arc::clone(device))),
            counts,
        }
    }

    /// Carries out a request and appends the answer to `out`.
    pub(super) fn carry_out(
        &self,
        header: &Header,
        operation: &Operation<'_>,
        out: &mut Vec<u8>,
    ) -> Outcome {
        self.counts.count(header.opcode);
        match operation {
            Operation::Forget { count } => {
                self.service.forget(Node::from_raw(header.node), *count);
                return Outcome::Silent;
            }
            Operation::BatchForget(forgets) => {
                for (node, count) in forgets.iter() {
                    self.service.forget(Node::from_raw(node), count);
                }
                return Outcome::Silent;
            }
            Operation::Interrupt => return Outcome::Silent,
            _ => {}
        }
        match self.answer(header, operation, out) {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Failed(errno(&error)),
        }
    }

    fn answer(&self, header: &Header, operation: &Operation<'_>, out: &mut Vec<u8>) -> Result<()> {
        match operation {
            Operation::Lookup { .. }
            | Operation::Symlink { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. }
            | Operation::Link { .. }
            | Operation::Create { .. }
            | Operation::Tmpfile { .. }
            | Operation::Readdir { .. }
            | Operation::Readdirplus { .. } => self.name(header, operation, out),
            Operation::Getattr
            | Operation::Setattr(_)
            | Operation::Readlink
            | Operation::Setxattr { .. }
            | Operation::Getxattr { .. }
            | Operation::Listxattr { .. }
            | Operation::Removexattr { .. }
            | Operation::Statfs => self.attribute(header, operation, out),
            Operation::Open
            | Operation::Opendir
            | Operation::Release
            | Operation::Releasedir
            | Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Fsync { .. }
            | Operation::Fsyncdir { .. }
            | Operation::Fallocate { .. }
            | Operation::Lseek { .. }
            | Operation::CopyFileRange { .. } => self.data(header, operation, out),
            Operation::Destroy => Ok(()),
            Operation::Ioctl => Err(Errno::ENOTTY.into()),
            // Of FLUSH: nothing is held back here, and the kernel asks no more after this answer.
            // INIT comes once, before the session begins.
            Operation::Flush
            | Operation::Init(_)
            | Operation::Unknown
            | Operation::Forget { .. }
            | Operation::BatchForget(_)
            | Operation::Interrupt => Err(Errno::ENOSYS.into()),
        }
    }

    /// Returns whether the kernel is to open files without asking. It cannot be with passthrough,
    /// where the answer to the open names the backing file.
    fn zero_message_opens(&self) -> bool {
        self.options.zero_message_opens && self.backings.is_none()
    }
}

/// How a file is opened that the kernel keeps in its page cache.
const ORDINARY: u32 = fopen::KEEP_CACHE | fopen::NOFLUSH;

/// Returns the number that the program is told, and logs what it alone would not explain.
fn errno(error: &Error) -> Errno {
    match error.kind() {
        ErrorKind::Corrupt | ErrorKind::Drift | ErrorKind::Io | ErrorKind::Poisoned => {
            log::error!("{}", chain(error));
        }
        _ => {}
    }
    error.errno()
}

/// Returns the messages of `error` and of what caused it, in one line.
fn chain(error: &Error) -> String {
    let mut line = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        line.push_str(": ");
        line.push_str(&inner.to_string());
        cause = inner.source();
    }
    line
}
