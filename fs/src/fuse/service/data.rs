//! Content: reading, writing, space, and the base file behind it.

use std::os::fd::OwnedFd;

use crate::attr::{AllocateMode, SeekTo};
use crate::error::Result;
use crate::fuse::node::Node;
use crate::fuse::service::{Context, Service};

/// Where bytes come from.
#[derive(Clone, Copy, Debug)]
pub(in crate::fuse) struct WriteOrigin {
    /// From the kernel's page cache, some time after the program wrote them.
    pub(in crate::fuse) cached: bool,
    /// The file's set-user-ID and set-group-ID bits and capabilities end with this write.
    pub(in crate::fuse) kill_suid: bool,
}

impl Service {
    /// Appends up to `size` bytes from `offset` to `into`.
    pub(in crate::fuse) fn read(
        &self,
        node: Node,
        offset: u64,
        size: u32,
        into: &mut Vec<u8>,
    ) -> Result<()> {
        self.with_file(node, |gate, ino| gate.view.read(ino, offset, size, into))
    }

    /// Writes `data` at `offset`.
    pub(in crate::fuse) fn write(
        &self,
        node: Node,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
    ) -> Result<()> {
        let written = self.with_file(node, |gate, ino| {
            if let (true, Some(settling)) = (origin.cached, &gate.settling)
                && settling.catches(ino)
            {
                // A page of the old view. Its branch may live on, and then it gets the bytes; where
                // it does not, they are what a rollback undoes.
                let _ = settling.old.write(ino, offset, data, origin.kill_suid);
                return Ok(());
            }
            let before = gate.view.getattr(ino)?.blocks;
            gate.view.write(ino, offset, data, origin.kill_suid)?;
            if gate.view.getattr(ino)?.blocks != before
                && let (Some(refresher), Some(raw)) = (self.refresher.get(), node.raw())
            {
                refresher.mention(raw);
            }
            Ok(())
        });
        if written.is_err()
            && origin.cached
            && let Ok(slot) = self.slot(node.slot)
        {
            slot.count_failed_write();
        }
        written
    }

    /// Makes what was written to `node` durable.
    pub(in crate::fuse) fn fsync(
        &self,
        context: Context,
        node: Node,
        data_only: bool,
    ) -> Result<()> {
        if let (Some(refresher), Some(raw)) = (self.refresher.get(), node.raw()) {
            refresher.tell_at_once(raw);
        }
        if self.is_flusher(context.thread) {
            return Ok(());
        }
        self.with_file(node, |gate, ino| gate.view.fsync(ino, data_only))
    }

    /// Reserves, punches or zeroes a range.
    pub(in crate::fuse) fn allocate(
        &self,
        node: Node,
        mode: AllocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.with_file(node, |gate, ino| gate.view.allocate(ino, mode, offset, len))
    }

    /// Finds the next data or hole.
    pub(in crate::fuse) fn seek(&self, node: Node, offset: u64, to: SeekTo) -> Result<u64> {
        self.with_file(node, |gate, ino| gate.view.seek(ino, offset, to))
    }

    /// Copies inside the view; returns the number of bytes copied.
    pub(in crate::fuse) fn copy_range(
        &self,
        from: (Node, u64),
        to: (Node, u64),
        len: u64,
    ) -> Result<u64> {
        let to_ino = Self::same_slot(from.0, to.0)?;
        self.with_file(from.0, |gate, from_ino| {
            gate.view.copy_range(from_ino, from.1, to_ino, to.1, len)
        })
    }

    /// Returns the base file that holds the whole content of `node`, if there is one.
    pub(in crate::fuse) fn backing(&self, node: Node) -> Result<Option<OwnedFd>> {
        self.with_file(node, |gate, ino| gate.view.backing(ino))
    }
}
