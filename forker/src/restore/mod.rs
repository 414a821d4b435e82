//! Builds a process tree again.
//!
//! The caller has made new namespaces with a pid 1, and a *seed* there: a child of pid 1 with one
//! thread, all capabilities, no seccomp filter, and a descriptor that refers to the caller's process
//! (a pidfd). From then on everything happens by calls injected into the seed and what descends from it.
//!
//! | step | what |
//! |---|---|
//! | `seed` | the seed is seized, gets the runner, and moves out of the way of wanted numbers |
//! | `tree` | every process is made, a copy of the seed, with its number, parent, session and group |
//! | `files` | open file descriptions are made in the caller's process |
//! | `memory` | each process empties itself and maps what it had; the content is brought back |
//! | `descriptors` | each process fetches its descriptors from the caller |
//! | `threads` | threads are made and get what belongs to each |
//! | `park` | registers are set; everything waits to be let go |
//!
//! The undo of every step is the same: everything that was made is killed, and it dies as well if
//! the caller does.

mod descriptors;
mod life;
mod maker;
mod memory;
mod pids;
mod tree;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use crate::error::{Error, Result};
use crate::fault::Faults;
use crate::memory::fill::Twins;
use crate::memory::store::MemoryStore;
use crate::resource::files::Place;
use crate::snapshot::Snapshot;

/// The steps, for tests that let one fail.
pub const STEPS: [&str; 7] = [
    "seed",
    "tree",
    "files",
    "memory",
    "descriptors",
    "threads",
    "park",
];

/// The process that everything is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    /// Its number, as the caller sees it. It is killed in the end, whatever comes.
    pub pid: i32,
    /// The descriptor in it that refers to the caller's process.
    pub tracer: i32,
}

/// A tree that is rebuilt and waits. Dropping it kills it.
#[derive(Debug)]
pub struct Parked {
    orders: Sender<Order>,
    thread: Option<JoinHandle<Result<()>>>,
    pids: Vec<(i32, i32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Wake,
    Kill,
}

/// Builds the tree of a snapshot and parks it. `init` is the caller's number of the new pid 1, `place`
/// is asked for files and the like while this function runs, and never for [`Place::pid`].
///
/// # Errors
/// Whatever fails; nothing of the tree is left then, and the seed is dead.
pub fn build(
    snapshot: Arc<Snapshot>,
    init: i32,
    seed: Seed,
    place: Box<dyn Place + Send>,
    store: Arc<dyn MemoryStore>,
    twins: Twins,
    faults: Faults,
) -> Result<Parked> {
    let (orders, inbox) = mpsc::channel();
    let (outbox, answer) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name("tracer".to_owned())
        .spawn(move || {
            let work = life::Work {
                snapshot,
                init,
                seed,
                place,
                store,
                twins,
                faults,
            };
            trace(work, &inbox, &outbox)
        })
        .map_err(|error| Error::io("starting a tracing thread", error))?;
    match answer.recv() {
        Ok(Ok(pids)) => Ok(Parked {
            orders,
            thread: Some(thread),
            pids,
        }),
        Ok(Err(error)) => {
            // It has nothing left to do.
            let _ = thread.join();
            Err(error)
        }
        Err(_) => Err(Error::io(
            "restore",
            std::io::Error::other("the tracing thread died"),
        )),
    }
}

fn trace(
    work: life::Work,
    inbox: &Receiver<Order>,
    outbox: &Sender<Result<Vec<(i32, i32)>>>,
) -> Result<()> {
    let tree = match work.build() {
        Ok(tree) => tree,
        Err(error) => {
            // If nobody listens, nobody wants the tree.
            let _ = outbox.send(Err(error));
            return Ok(());
        }
    };
    let told = outbox.send(Ok(tree.pids()));
    match inbox.recv() {
        Ok(Order::Wake) if told.is_ok() => tree.wake(),
        _ => {
            tree.kill();
            Ok(())
        }
    }
}

impl Parked {
    /// Lets the tree run.
    ///
    /// # Errors
    /// A timer could not be armed or a thread not be let go: the tree is dead then.
    pub fn wake(self) -> Result<()> {
        self.finish(Order::Wake)
    }

    /// Kills the tree, without waiting for its memory to be freed.
    pub fn kill(self) {
        drop(self);
    }

    /// The processes: the number inside, and the caller's.
    pub fn pids(&self) -> &[(i32, i32)] {
        &self.pids
    }

    fn finish(mut self, order: Order) -> Result<()> {
        let lost = || {
            Error::io(
                "waking a tree",
                std::io::Error::other("the tracing thread died"),
            )
        };
        self.orders.send(order).map_err(|_| lost())?;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(lost()),
        }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A thread that is gone has let go of nothing that lives: what it traces dies with it.
            let _ = self.orders.send(Order::Kill);
            let _ = thread.join();
        }
    }
}
