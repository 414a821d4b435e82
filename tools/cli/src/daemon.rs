//! The daemon of one store: the process that has it open, serves its mounts and answers commands.
//!
//! ```text
//! main thread   opens the store, listens, accepts, waits for a signal or `stop`, shuts down
//! session       a thread a connection: reads requests, calls a handler, writes the answer
//! boxes         for each, one that listens to its first process, one a session, one a forwarded port
//! mounts        the threads of the kernel adapter, one group a mount
//! sync          puts on the disk every few seconds what was acknowledged
//! ```
//!
//! Lock order: one box; then the names of branches ([`locks`]), sorted; then one mount; then whatever the
//! library takes. The table of mounts is taken for a moment and never while waiting.

mod boxes;
mod find;
mod handlers;
mod holders;
mod locks;
mod mountpoint;
mod mounts;
mod patch;
mod responder;
mod server;
mod session;
mod stale;
mod syncer;

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use branchpoint_fs::store::Store;
use nix::sys::stat::{Mode, umask};

use crate::client::announce;
use crate::endpoint::Endpoint;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::protocol::path::{ShownPath, printable_path};
use crate::protocol::reply::{Readiness, Serving};
use crate::{logger, sys};

use boxes::Boxes;
use locks::Locks;
use mounts::Mounts;
use server::Server;

pub(crate) use boxes::BOX_INIT;

/// What all sessions of a daemon share.
#[derive(Debug)]
pub(crate) struct Daemon {
    store: Arc<Store>,
    mounts: Mounts,
    locks: Locks,
    boxes: Boxes,
    started: Instant,
    /// Set when no more requests are taken.
    stopping: AtomicBool,
}

/// Serves `store` until a signal or a request ends it.
pub(crate) fn serve(store: &Path, background: bool, output: Output) -> Result<()> {
    if background {
        sys::close_inherited().map_err(|reason| Failure::io("close what was open", &reason))?;
        // Fails only for the leader of a process group, and then the terminal is not ours either.
        let _ = nix::unistd::setsid();
    }
    // Whatever the daemon makes is its owner's alone unless a mode is given.
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    logger::start();
    let served = start(store).and_then(|(server, stale_mounts)| {
        if background {
            announce(&Readiness::Ready { stale_mounts })?;
            let_go_of_output()?;
        } else {
            let shown = ShownPath::of(store);
            let serving = Serving {
                daemon_pid: std::process::id(),
                store: shown.text,
                store_base64: shown.base64,
            };
            output.print(&serving, |_| {
                format!("serving '{}'; Ctrl-C ends it\n", printable_path(store))
            })?;
        }
        server.run()
    });
    match served {
        Err(failure) if background => {
            log::error!("{failure}");
            // If the command that started us is gone, the log has it.
            drop(announce(&Readiness::Failed(failure.clone())));
            Err(failure)
        }
        other => other,
    }
}

/// Opens the store, removes what a daemon that died left behind, and listens.
fn start(store: &Path) -> Result<(Server, Vec<String>)> {
    let endpoint = Endpoint::of(store)?;
    let signals = server::Wake::on_signals()?;
    let store = Store::open(store)?;
    let stale = stale::remove(store.dir())?;
    let boxes = Boxes::open(store.dir())?;
    let daemon = Arc::new(Daemon {
        mounts: Mounts::default(),
        locks: Locks::default(),
        boxes,
        started: Instant::now(),
        stopping: AtomicBool::new(false),
        store,
    });
    let listener = endpoint
        .listen()
        .map_err(|reason| Failure::io("listen", &reason))?;
    log::info!("serving '{}'", daemon.store.dir().display());
    Ok((Server::new(daemon, endpoint, listener, signals), stale))
}

/// Ends the pipe to the command that started this daemon.
fn let_go_of_output() -> Result<()> {
    let null = OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .map_err(|reason| Failure::io("open /dev/null", &reason))?;
    nix::unistd::dup2_stdout(&null)
        .map_err(|errno| Failure::io("let go of the standard output", &errno.into()))
}
