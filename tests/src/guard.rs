//! What must not be left behind: every mount, disk and process registers how to end it, which
//! happens at the end of its test, when the test panics, and when the watchdog finds that it hangs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Something that outlives the process unless it is ended.
#[derive(Clone, Debug)]
pub enum Leftover {
    /// A mount, by its directory.
    Mount(PathBuf),
    /// A loop device, by its node.
    Loop(PathBuf),
    /// A process of ours.
    Process(i32),
    /// A directory of scratch files.
    Scratch(PathBuf),
}

impl Leftover {
    fn end(&self) {
        match self {
            Self::Mount(dir) => drop(umount2(dir, MntFlags::MNT_DETACH)),
            Self::Loop(device) => {
                drop(Command::new("losetup").arg("-d").arg(device).output());
            }
            Self::Process(pid) => drop(kill(Pid::from_raw(*pid), Signal::SIGKILL)),
            Self::Scratch(dir) => drop(std::fs::remove_dir_all(dir)),
        }
    }
}

static LEFT: Mutex<BTreeMap<u64, Leftover>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

fn left() -> std::sync::MutexGuard<'static, BTreeMap<u64, Leftover>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends its [`Leftover`] when it is dropped.
#[derive(Debug)]
pub struct Guard(u64);

impl Guard {
    /// Registers `what`.
    pub fn new(what: Leftover) -> Self {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        left().insert(id, what);
        Self(id)
    }

    /// Forgets what was registered: it has ended in an orderly way.
    pub fn release(self) {
        left().remove(&self.0);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let what = left().remove(&self.0);
        if let Some(what) = what {
            what.end();
        }
    }
}

/// Ends the test program if it is not dropped in time.
#[derive(Debug)]
pub struct Watchdog(Arc<(Mutex<bool>, Condvar)>);

impl Watchdog {
    /// Gives the running test `seconds`.
    pub fn new(seconds: u64) -> Self {
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        let state = Arc::new((Mutex::new(false), Condvar::new()));
        let watched = Arc::clone(&state);
        std::thread::spawn(move || {
            let done = watched.0.lock().unwrap_or_else(PoisonError::into_inner);
            let limit = Duration::from_secs(seconds);
            let (done, _) = watched
                .1
                .wait_timeout_while(done, limit, |done| !*done)
                .unwrap_or_else(PoisonError::into_inner);
            if !*done {
                eprintln!("watchdog: {name} did not end within {seconds} s");
                end_all();
                std::process::abort();
            }
        });
        Self(state)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}

/// Ends everything that is registered, newest first: a mount before the disk below it.
fn end_all() {
    let all = std::mem::take(&mut *left());
    for what in all.values().rev() {
        eprintln!("watchdog: ending {what:?}");
        what.end();
    }
}
