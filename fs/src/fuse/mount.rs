//! One view mounted at a directory, as people use it.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::fuse::options::MountOptions;
use crate::fuse::service::Service;
use crate::fuse::session::{Session, Shape};
use crate::fuse::slot::Slot;
use crate::fuse::source;
use crate::view::View;

/// A view mounted at a directory. Dropping it unmounts by force.
///
/// Should the process die, the kernel ends the session; what remains at the directory is removed by
/// [`clean_stale_mount`](super::clean_stale_mount).
#[derive(Debug)]
pub struct Mount {
    pub(super) session: Session,
    pub(super) slot: Arc<Slot>,
    /// Held by whoever flushes or switches: one at a time.
    pub(super) settled: Mutex<()>,
}

impl Mount {
    /// Mounts `view` at the existing directory `dir`. A dead mount of ours there is cleared away; a
    /// live one is an error.
    pub fn new(view: Arc<View>, dir: &Path, options: &MountOptions) -> Result<Mount> {
        let source = source_of(&view);
        let read_only = view.read_only();
        let slot = Arc::new(Slot::new(view));
        let service = Arc::new(Service::of_one(Arc::clone(&slot)));
        let shape = Shape {
            source: &source,
            read_only,
            passthrough: options.passthrough && read_only,
        };
        Ok(Mount {
            session: Session::start(service, dir, shape, options)?,
            slot,
            settled: Mutex::new(()),
        })
    }

    /// Returns the directory, absolute and without symbolic links.
    pub fn dir(&self) -> &Path {
        &self.session.dir
    }

    /// Returns the view that is shown.
    pub fn view(&self) -> Arc<View> {
        self.slot.view()
    }

    /// Returns how many requests of each kind the kernel has sent so far: what programs cost in round
    /// trips.
    pub fn requests(&self) -> Vec<(&'static str, u64)> {
        self.session.requests()
    }

    /// Unmounts. If something has a file or directory of the mount open, that is an error which
    /// names it, and the mount goes on; with `force`, what was written is flushed and the mount is
    /// taken away from whoever uses it, whose operations then fail.
    pub fn unmount(&self, force: bool) -> Result<()> {
        self.session.end(force, || self.flush())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount(true) {
            log::error!("{error}");
        }
    }
}

fn source_of(view: &View) -> String {
    let shown = view
        .branch()
        .unwrap_or_else(|| format!("layer-{}", view.head()));
    source::encode(view.store().dir(), &shown)
}
