//! The steps of a restore, and the tree that they lead to.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::maker::Made;
use super::memory::{Sources, specials};
use super::pids::Numbered;
use super::tree::{Tree, mappings};
use super::{Seed, descriptors};
use crate::error::{Error, Result};
use crate::fault::Faults;
use crate::memory::calls::Calls;
use crate::memory::fill::Twins;
use crate::memory::place::{footprint, free_range};
use crate::memory::store::MemoryStore;
use crate::memory::sysv;
use crate::remote::{Door, Region, find_syscall};
use crate::resource::files::{self, Place, Timers};
use crate::resource::signals;
use crate::snapshot::Snapshot;
use crate::sys::task;
use crate::tree::model::{Alive, Life};

/// Calls in one run of a tape, and bytes of their data.
const CALLS: usize = 2000;
const DATA: usize = 512 << 10;

/// What a restore is made of.
pub(super) struct Work {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) init: i32,
    pub(super) seed: Seed,
    pub(super) place: Box<dyn Place + Send>,
    pub(super) store: Arc<dyn MemoryStore>,
    pub(super) twins: Twins,
    pub(super) faults: Faults,
}

/// A tree that is whole and stands still. Dropping it kills it.
pub(super) struct Whole {
    tree: Tree,
    snapshot: Arc<Snapshot>,
    timers: Timers,
}

impl Work {
    pub(super) fn build(self) -> Result<Whole> {
        let mut tree = Tree::seize(self.seed, self.region()?)?;
        let tracer = descriptors::tracer_number(&self.snapshot.files);
        descriptors::lift_limit(self.seed.pid, tracer)?;
        tree.settle(&self.snapshot, self.seed.tracer, tracer)?;
        self.faults.reach("seed")?;

        tree.grow(&self.snapshot)?;
        self.faults.reach("tree")?;

        let pids = tree
            .made
            .iter()
            .map(|(inside, made)| (*inside, made.pid))
            .collect();
        let place = Numbered {
            place: &*self.place,
            pids,
        };
        let mut rebuilt = files::rebuild(&self.snapshot.files, &place)
            .map_err(|error| Error::io("making files", std::io::Error::other(error)))?;
        self.faults.reach("files")?;

        let sources = Sources::open(&self, &place, &rebuilt)?;
        sources.give(&self, &tree, tracer)?;
        drop(sources);
        self.faults.reach("memory")?;

        descriptors::give(&tree, &self.snapshot.files, &rebuilt, tracer)?;
        let timers = rebuilt.take_timers();
        drop(rebuilt);
        self.faults.reach("descriptors")?;

        for process in &self.snapshot.processes {
            let Life::Alive(alive) = &process.life else {
                continue;
            };
            let pid = process.relation.pid;
            let made = tree.made.get_mut(&pid);
            let made = made.ok_or_else(|| Error::Image(format!("process {pid} is missing")))?;
            complete(made, &tree.region, alive, pid, tracer)?;
        }
        self.faults.reach("threads")?;

        for process in &self.snapshot.processes {
            let Life::Alive(alive) = &process.life else {
                continue;
            };
            if alive.timers.is_idle()
                && let Some(made) = tree.made.get(&process.relation.pid)
            {
                leave(made, &tree.region, alive)?;
            }
        }
        self.faults.reach("park")?;
        Ok(Whole {
            tree,
            snapshot: self.snapshot,
            timers,
        })
    }

    /// Where the runner can lie: where neither the seed nor any process has anything.
    fn region(&self) -> Result<Region> {
        let segments = sysv::sizes(&self.snapshot.segments);
        let maps = mappings(self.seed.pid)?;
        let mut taken: Vec<Range<u64>> = maps.iter().map(|map| map.start..map.end).collect();
        // So that the kernel's own can be moved out of each other's way.
        taken.extend(specials(&maps).into_iter().map(|(_, range)| range));
        for space in &self.snapshot.spaces {
            taken.extend(footprint(&space.space, &segments));
        }
        let bytes = Region::new(0, CALLS, DATA).bytes();
        let range = free_range(&taken, bytes);
        let range = range.ok_or_else(|| Error::Image("its memory leaves no room".to_owned()))?;
        Ok(Region::new(range.start, CALLS, DATA))
    }
}

/// Gives a process its threads, and everything that comes behind memory and descriptors.
fn complete(made: &mut Made, region: &Region, alive: &Alive, pid: i32, tracer: i32) -> Result<()> {
    let others: Vec<i32> = alive
        .threads
        .iter()
        .skip(1)
        .map(|thread| thread.tid)
        .collect();
    made.make_threads(region, &others)?;
    let mut calls = Calls::new(region.data());
    alive.settings.tell(&mut calls);
    alive.actions.tell(&mut calls);
    alive.timers.tell(&mut calls);
    signals::tell_pending_process(&mut calls, pid, &alive.pending);
    descriptors::forget_tracer(&mut calls, tracer);
    made.run(region, &calls)?;
    if made.threads.len() != alive.threads.len() {
        return Err(Error::Gone(made.pid));
    }
    alive.settings.set(made.pid)?;
    // The first thread comes last: what it gives up, its process has given up.
    for (thread, state) in made.threads.iter().zip(&alive.threads).rev() {
        state.set(thread.tid())?;
        let mut calls = Calls::new(region.data());
        state.tell(&mut calls, pid);
        region.run(thread, &made.memory, &calls)?;
    }
    let mut calls = Calls::new(region.data());
    alive.settings.tell_last(&mut calls);
    made.run(region, &calls).map(drop)
}

/// Takes the runner away and puts every thread where it was.
fn leave(made: &Made, region: &Region, alive: &Alive) -> Result<()> {
    let syscall = find_syscall(made.pid, &made.memory)?;
    region.unmap(&Door::new(made.first()?, &made.memory, syscall))?;
    for (thread, state) in made.threads.iter().zip(&alive.threads) {
        state.place(thread)?;
    }
    Ok(())
}

impl Whole {
    pub(super) fn pids(&self) -> Vec<(i32, i32)> {
        let made = self.tree.made.iter();
        let mut pids: Vec<(i32, i32)> = made.map(|(inside, made)| (*inside, made.pid)).collect();
        pids.sort_unstable();
        pids
    }

    /// Arms timers and lets everything go, or kills everything.
    pub(super) fn wake(mut self) -> Result<()> {
        let result = self.start_timers().and_then(|()| self.let_go());
        if result.is_err() {
            // Those that were let go already are nobody's to wait for.
            for (_, pid) in self.pids() {
                let _ = task::signal_thread(pid, pid, libc::SIGKILL);
            }
        }
        result
    }

    /// The living with what they are, by the number inside.
    fn lives(&self) -> HashMap<i32, &Alive> {
        let processes = self.snapshot.processes.iter();
        processes
            .filter_map(|process| match &process.life {
                Life::Alive(alive) => Some((process.relation.pid, &**alive)),
                Life::Zombie(_) => None,
            })
            .collect()
    }

    fn start_timers(&self) -> Result<()> {
        let lives = self.lives();
        for (inside, made) in &self.tree.made {
            let Some(alive) = lives.get(inside).filter(|alive| !alive.timers.is_idle()) else {
                continue;
            };
            let mut calls = Calls::new(self.tree.region.data());
            alive.timers.start(&mut calls);
            made.run(&self.tree.region, &calls)?;
            leave(made, &self.tree.region, alive)?;
        }
        self.timers
            .arm()
            .map_err(|error| Error::io("arming timers", error))
    }

    fn let_go(&mut self) -> Result<()> {
        for (inside, alive) in &self.lives() {
            if alive.stopped != 0
                && let Some(made) = self.tree.made.get(inside)
            {
                // It stops again before it does anything.
                task::signal_thread(made.pid, made.pid, libc::SIGSTOP)
                    .map_err(|errno| Error::trace(made.pid, "stopping", errno))?;
            }
        }
        for made in self.tree.made.values_mut() {
            for thread in std::mem::take(&mut made.threads) {
                thread.detach()?;
            }
        }
        self.tree.made.clear();
        Ok(())
    }

    pub(super) fn kill(self) {
        drop(self);
    }
}
