//! Ending boxes.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Boxed, Running};
use crate::daemon::Daemon;
use crate::failure::{Failure, FailureKind, Result};

/// How long to wait between two looks at whether all have ended.
const PAUSE: Duration = Duration::from_millis(10);

/// Ends a box: asks its processes to, and kills what is left after `timeout`; without one, at once.
pub(crate) fn stop(daemon: &Daemon, name: &str, timeout: Option<Duration>) -> Result<Arc<Boxed>> {
    let one = daemon.boxes.get(name)?;
    let _work = one.work.lock();
    if let Some(timeout) = timeout {
        let instance = one.running()?;
        // A shell at a terminal does not heed SIGTERM, but goes when the line is dead.
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGCONT] {
            instance.signal_all(signal)?;
        }
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline && !instance.processes()?.is_empty() {
            thread::sleep(PAUSE);
        }
    } else {
        one.running()?;
    }
    take_down(&one);
    daemon.boxes.save();
    log::info!("box '{name}' has ended");
    Ok(Arc::clone(&one))
}

/// Forgets a box; one that runs only if it is to be ended by `force`.
pub(crate) fn remove(daemon: &Daemon, name: &str, force: bool) -> Result<()> {
    let one = daemon.boxes.get(name)?;
    let _work = one.work.lock();
    if one.instance().is_some() {
        if !force {
            return Err(
                Failure::new(FailureKind::Busy, format!("box '{name}' is running")).hint(format!(
                    "end it first, or at once: branchpoint box remove --force {name}"
                )),
            );
        }
        take_down(&one);
    }
    one.sessions.clear();
    daemon.boxes.table.lock().remove(name);
    daemon.boxes.save();
    Ok(())
}

/// Ends all boxes at once, for the end of the daemon.
pub(crate) fn end_all(daemon: &Daemon) {
    for one in daemon.boxes.running() {
        let _work = one.work.lock();
        take_down(&one);
    }
    daemon.boxes.end_session();
}

/// Ends the instance of a box and removes what it was made of. The caller holds the box.
pub(super) fn take_down(one: &Boxed) {
    let Some(running) = one.state.lock().running.take() else {
        return;
    };
    let Running {
        instance,
        forwards,
        root,
    } = running;
    drop(forwards);
    // Others may hold the instance for a moment: whatever they want of it fails from now on.
    if let Err(failure) = instance.kill() {
        log::error!("box '{}' does not end: {failure}", one.name);
    }
    // Whoever is attached is told how it ended.
    for session in one.sessions.all() {
        session.wait(Duration::from_secs(5));
    }
    drop(instance);
    drop(root);
}
