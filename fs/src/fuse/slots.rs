//! Many views in one session, as boxes use them: a directory for each slot.
//!
//! The session's root is closed to everybody but the daemon's user and lists nothing. In it,
//!
//! - `N` is the root of the view in slot N: what a box gets bind-mounted as its root;
//! - `N-SECRET` is that slot's control directory, in which any file of the view can be opened by its
//!   inode number, also one that has lost its names. From inside a box no path leads there.
//!
//! All slots show the session's one device number, and an inode has the same number in all of them;
//! the kernel's own inodes, with their pages, locks and watches, are each slot's own, because the node
//! id that the kernel uses has the slot's number in its upper bits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Result;
use crate::fuse::hub::{self, Hub};
use crate::fuse::node::SlotId;
use crate::fuse::options::MountOptions;
use crate::fuse::service::Service;
use crate::fuse::session::{Session, Shape};
use crate::fuse::slot::Slot;
use crate::fuse::source;
use crate::store::Store;
use crate::view::View;

/// A session that shows many views. Dropping the last reference unmounts it by force.
#[derive(Debug)]
pub struct SlotMount {
    session: Session,
    hub: Arc<Hub>,
}

impl SlotMount {
    /// Mounts a session without slots at the existing directory `dir`. A dead mount of ours there is
    /// cleared away; a live one is an error.
    ///
    /// # Errors
    /// Those of mounting.
    pub fn new(store: &Store, dir: &Path, options: &MountOptions) -> Result<Arc<Self>> {
        let hub = Arc::new(Hub::new()?);
        let service = Arc::new(Service::of_many(Arc::clone(&hub)));
        let source = source::encode(store.dir(), "boxes");
        let shape = Shape {
            source: &source,
            read_only: store.read_only(),
            passthrough: false,
        };
        let session = Session::start(service, dir, shape, options)?;
        Ok(Arc::new(Self { session, hub }))
    }

    /// Returns the directory, absolute and without symbolic links. Only the daemon's user can enter it.
    pub fn dir(&self) -> &Path {
        &self.session.dir
    }

    /// Shows `view`, which nothing else may show, in a slot of its own.
    ///
    /// # Errors
    /// ENOSPC when all of the 16 million slots are in use.
    pub fn attach(self: &Arc<Self>, view: Arc<View>) -> Result<AttachedSlot> {
        let slot = Arc::new(Slot::new(view));
        let id = self.hub.add(Arc::clone(&slot))?;
        Ok(AttachedSlot {
            mount: Arc::clone(self),
            id,
            slot,
            detached: AtomicBool::new(false),
        })
    }

    /// Returns how many slots there are.
    pub fn slots(&self) -> usize {
        self.hub.len()
    }

    /// Returns how many requests of each kind the kernel has sent so far.
    pub fn requests(&self) -> Vec<(&'static str, u64)> {
        self.session.requests()
    }

    /// Unmounts. If something of the mount is in use, that is an error which names it, unless by
    /// `force`. Slots that are still attached show nothing any more.
    ///
    /// # Errors
    /// Those of unmounting.
    pub fn unmount(&self, force: bool) -> Result<()> {
        self.session.end(force, || Ok(()))
    }
}

impl Drop for SlotMount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount(true) {
            log::error!("{error}");
        }
    }
}

/// A slot with its view. Dropping it detaches it.
#[derive(Debug)]
pub struct AttachedSlot {
    mount: Arc<SlotMount>,
    id: SlotId,
    slot: Arc<Slot>,
    detached: AtomicBool,
}

impl AttachedSlot {
    /// Returns the slot's number, which no other slot of the session has or will have soon.
    pub fn id(&self) -> u32 {
        self.id.0
    }

    /// Returns the root of the view: what is to be bind-mounted as a box's root.
    pub fn path(&self) -> PathBuf {
        self.mount.dir().join(hub::root_name(self.id))
    }

    /// Returns the control directory: `control/INO` opens the file with that inode number. Only
    /// regular files and other things that can be opened without a name are in it; a directory has one
    /// place only, and is reached by its path.
    pub fn control(&self) -> PathBuf {
        self.mount.dir().join(self.mount.hub.control_name(self.id))
    }

    /// Returns the view that is shown.
    pub fn view(&self) -> Arc<View> {
        self.slot.view()
    }

    /// Waits until everything that `processes` (ids of processes as this process sees them) have
    /// written through the slot, by mappings as well, is in the view. They should not run meanwhile.
    /// What others wrote is there if they have closed it.
    ///
    /// # Errors
    /// If the view refused some of it (a full disk, say): the kernel has dropped that.
    pub fn flush(&self, processes: &[u32]) -> Result<()> {
        self.mount.session.flush_slot(&self.slot, processes)
    }

    /// Ends the slot: the kernel drops what it knows of it, files that have no name are removed, and
    /// whoever still has something open in it gets ESTALE. To be called when the box has ended;
    /// bind mounts of it are the caller's to remove.
    ///
    /// # Errors
    /// If the kernel does not take the message; the slot is gone even so.
    pub fn detach(&self) -> Result<()> {
        if self.detached.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.mount.hub.remove(self.id);
        // Nothing is under way once this returns, and nothing more comes.
        self.slot.exchange(|gate| {
            gate.view.end_references();
            Ok(())
        })?;
        let names = [
            hub::root_name(self.id),
            self.mount.hub.control_name(self.id),
        ];
        names.iter().try_for_each(|name| {
            let notifier = &self.mount.session.notifier;
            notifier.invalidate_entry(hub::ROOT, name.as_bytes())
        })
    }
}

impl Drop for AttachedSlot {
    fn drop(&mut self) {
        if let Err(error) = self.detach() {
            log::error!("while detaching slot {}: {error}", self.id.0);
        }
    }
}
