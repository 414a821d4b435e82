//! Puts on the disk what was acknowledged, every few seconds, so that a power cut costs no more.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use branchpoint_fs::store::Store;

/// The most that a power cut can cost, as with other filesystems' default.
const INTERVAL: Duration = Duration::from_secs(5);

/// The thread that syncs; ends when dropped.
#[derive(Debug)]
pub(crate) struct Syncer {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts to sync `store`.
    pub(crate) fn start(store: Arc<Store>) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let thread = thread::Builder::new()
            .name("sync".to_owned())
            .spawn(move || work(&store, &stopped))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn work(store: &Store, stopped: &Receiver<()>) {
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(INTERVAL) {
        if let Err(error) = store.sync() {
            // The store takes no more writes from here on and says so to whoever tries.
            log::error!("cannot sync the store: {error}");
            return;
        }
    }
}
