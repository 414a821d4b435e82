//! A session: attached to a directory, served by its threads, until the end.

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
use crate::fuse::wire::{self, Counts, Dispatcher, Server};

/// How long the end of a session may take once nothing is attached any more.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// What a session shows, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    /// Name in the first column of the mount table.
    pub(super) source: &'a str,
    /// Whether nothing may be written.
    pub(super) read_only: bool,
    /// Whether files may be opened on the base.
    pub(super) passthrough: bool,
}

/// A service mounted at a directory.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) dir: PathBuf,
    pub(super) device: Device,
    pub(super) service: Arc<Service>,
    pub(super) notifier: Notifier,
    pub(super) gauge: Option<Gauge>,
    counts: Arc<Counts>,
    server: Mutex<Option<Server>>,
}

impl Session {
    /// Mounts `service` at the existing directory `dir`. A dead mount of ours there is cleared away; a
    /// live one is an error.
    pub(super) fn start(
        service: Arc<Service>,
        dir: &Path,
        shape: Shape<'_>,
        options: &MountOptions,
    ) -> Result<Self> {
        let dir = mountpoint::prepare(dir)?;
        let how = Attach {
            source: shape.source,
            read_only: shape.read_only,
            everybody: nix::unistd::geteuid().is_root(),
        };
        let file: Arc<OwnedFd> = Arc::new(mountpoint::attach(&dir, how)?.into());
        // From here on, every error has to take the mount away again.
        let undo = Undo(Some(&dir));
        let failed = |error| mountpoint::start_error(&dir, error);
        let agreed = wire::agree(&file, options, shape.passthrough).map_err(failed)?;
        let counts = Arc::new(Counts::new());
        let dispatcher = Dispatcher::new(
            Arc::clone(&service),
            options,
            &agreed,
            &file,
            Arc::clone(&counts),
        );
        if !shape.read_only {
            service.refresh_with(Refresher::start(file.clone())?);
        }
        let pace = Pace::new(Duration::from_micros(u64::from(options.spin_us)));
        let server = Server::start(&file, dispatcher, options, &agreed, Arc::new(pace));
        let server = server.map_err(failed)?;
        let notifier = Notifier::new(file).with_epochs(options.epochs);
        let device = Device::of(&dir)
            .map_err(|error| Error::io(format!("look at the mount '{}'", dir.display()), error))?;
        device.tune("read_ahead_kb", u64::from(options.readahead_bytes / 1024));
        undo.disarm();
        Ok(Self {
            dir,
            device,
            service,
            notifier,
            gauge: options
                .kernel_statistics
                .then(|| Gauge::open(device))
                .flatten(),
            counts,
            server: Mutex::new(Some(server)),
        })
    }

    /// Returns how many requests of each kind the kernel has sent so far.
    pub(super) fn requests(&self) -> Vec<(&'static str, u64)> {
        self.counts.list()
    }

    /// Unmounts and waits for the threads. `flush` is called while the session is alive; if it fails,
    /// so does this, unless by `force`. So it does if something of the mount is in use.
    pub(super) fn end(&self, force: bool, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut server = self.server.lock();
        if server.is_none() {
            return Ok(());
        }
        if self.notifier.is_connected() {
            if let Err(error) = flush() {
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
        let Some(ended) = server.take() else {
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
