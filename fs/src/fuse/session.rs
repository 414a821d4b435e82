//! A mount: its session, from attaching to the end.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::fuse::device::{self, Device, Gauge};
use crate::fuse::mountpoint::{self, Attach};
use crate::fuse::notify::Notifier;
use crate::fuse::options::MountOptions;
use crate::fuse::pace::Pace;
use crate::fuse::refresh::Refresher;
use crate::fuse::service::Service;
use crate::fuse::slot::Slot;
use crate::fuse::source;
use crate::fuse::wire::{self, Counts, Dispatcher, Server};
use crate::view::View;

/// How long the end of a session may take once nothing is attached any more.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// A view mounted at a directory. Dropping it unmounts by force.
///
/// Should the process die, the kernel ends the session; what remains at the directory is removed by
/// [`clean_stale_mount`](super::clean_stale_mount).
#[derive(Debug)]
pub struct Mount {
    pub(super) dir: PathBuf,
    pub(super) device: Device,
    pub(super) slot: Arc<Slot>,
    pub(super) service: Arc<Service>,
    pub(super) notifier: Notifier,
    pub(super) gauge: Option<Gauge>,
    /// Held by whoever flushes or switches: one at a time.
    pub(super) settled: Mutex<()>,
    counts: Arc<Counts>,
    session: Mutex<Option<Server>>,
}

impl Mount {
    /// Mounts `view` at the existing directory `dir`. A dead mount of ours there is cleared away; a
    /// live one is an error.
    pub fn new(view: Arc<View>, dir: &Path, options: &MountOptions) -> Result<Mount> {
        let dir = mountpoint::prepare(dir)?;
        let source = source_of(&view);
        let read_only = view.read_only();
        let passthrough = options.passthrough && read_only;
        let slot = Arc::new(Slot::new(view));
        let service = Arc::new(Service::new(slot.clone()));
        let everybody = nix::unistd::geteuid().is_root();
        let how = Attach {
            source: &source,
            read_only,
            everybody,
        };
        let file: Arc<OwnedFd> = Arc::new(mountpoint::attach(&dir, how)?.into());
        // From here on, every error has to take the mount away again.
        let undo = Undo(Some(&dir));
        let failed = |error| mountpoint::start_error(&dir, error);
        let agreed = wire::agree(&file, options, passthrough).map_err(failed)?;
        let counts = Arc::new(Counts::new());
        let dispatcher = Dispatcher::new(service.clone(), options, &agreed, &file, counts.clone());
        if !read_only {
            service.refresh_with(Refresher::start(file.clone())?);
        }
        let pace = Pace::new(Duration::from_micros(u64::from(options.spin_us)));
        let session = Server::start(&file, dispatcher, options, &agreed, Arc::new(pace));
        let session = session.map_err(failed)?;
        let notifier = Notifier::new(file);
        let device = Device::of(&dir)
            .map_err(|error| Error::io(format!("look at the mount '{}'", dir.display()), error))?;
        device.tune("read_ahead_kb", u64::from(options.readahead_bytes / 1024));
        undo.disarm();
        Ok(Mount {
            dir,
            device,
            slot,
            service,
            notifier,
            gauge: options
                .kernel_statistics
                .then(|| Gauge::open(device))
                .flatten(),
            settled: Mutex::new(()),
            counts,
            session: Mutex::new(Some(session)),
        })
    }

    /// Returns the directory, absolute and without symbolic links.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the view that is shown.
    pub fn view(&self) -> Arc<View> {
        self.slot.view()
    }

    /// Returns how many requests of each kind the kernel has sent so far: what programs cost in round
    /// trips.
    pub fn requests(&self) -> Vec<(&'static str, u64)> {
        self.counts.list()
    }

    /// Unmounts. If something has a file or directory of the mount open, that is an error which
    /// names it, and the mount goes on; with `force`, what was written is flushed and the mount is
    /// taken away from whoever uses it, whose operations then fail.
    pub fn unmount(&self, force: bool) -> Result<()> {
        let mut session = self.session.lock();
        if session.is_none() {
            return Ok(());
        }
        if self.notifier.is_connected() {
            if let Err(error) = self.flush() {
                if !force {
                    return Err(error);
                }
                log::error!(
                    "while unmounting '{}' by force: {error}",
                    self.dir.display()
                );
            }
            mountpoint::detach(&self.dir, self.device, force)?;
        } else {
            mountpoint::clean_stale_mount(&self.dir)?;
        }
        let Some(ended) = session.take() else {
            return Ok(());
        };
        let deadline = Instant::now() + END_TIMEOUT;
        while !ended.is_finished() {
            if Instant::now() > deadline {
                // A copy of the mount lives on in another mount namespace.
                device::abort(self.device);
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        ended.join().map_err(|error| {
            Error::io(
                format!("end the session of '{}'", self.dir.display()),
                error,
            )
        })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount(true) {
            log::error!("{error}");
        }
    }
}

/// Detaches a mount whose start failed half way.
struct Undo<'a>(Option<&'a Path>);

impl Undo<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if let Some(dir) = self.0 {
            let _ = nix::mount::umount2(dir, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

fn source_of(view: &View) -> String {
    let shown = view
        .branch()
        .unwrap_or_else(|| format!("layer-{}", view.head()));
    source::encode(view.store().dir(), &shown)
}
