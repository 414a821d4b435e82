//! Makes all processes, each a copy of the seed.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::Seed;
use super::maker::{As, Made, OPTIONS, kill};
use crate::error::{Error, Result};
use crate::memory::calls::{Calls, Expect};
use crate::remote::{Door, Region, Saved, find_syscall};
use crate::snapshot::Snapshot;
use crate::sys::ptrace::{self, Rseq};
use crate::trace::{Arrival, PATIENCE, Stopped};
use crate::tree::model::Life;
use crate::tree::order::{self, Maker, Step};

/// How long pid 1 may take to notice that its child has ended.
const REAPING: Duration = Duration::from_secs(20);

/// Everything that was made so far. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) region: Region,
    /// The process that others are made from, with its number inside.
    seed: Option<Made>,
    /// By the number inside.
    pub(super) made: HashMap<i32, Made>,
    stand_ins: HashMap<i32, Made>,
    /// Numbers that nothing of the image has.
    spare: Vec<i32>,
}

impl Tree {
    /// Seizes the seed and gives it the runner, at `region`.
    pub(super) fn seize(seed: Seed, region: Region) -> Result<Self> {
        let pid = seed.pid;
        ptrace::seize(pid, OPTIONS)
            .map_err(|errno| Error::trace(pid, "seizing the seed", errno))?;
        let prepare = || -> Result<(Made, Region)> {
            ptrace::interrupt(pid)
                .map_err(|errno| Error::trace(pid, "stopping the seed", errno))?;
            let Arrival::Stopped(stopped) = Stopped::wait(pid, PATIENCE)? else {
                return Err(Error::Gone(pid));
            };
            let made = Made::new(stopped)?;
            let first = made.first()?;
            // It never goes back to what it was doing; only its signals must stay away.
            Saved::take(first)?;
            let syscall = find_syscall(pid, &made.memory)?;
            let region = region.map(&Door::new(first, &made.memory, syscall))?;
            Ok((made, region))
        };
        match prepare() {
            Ok((made, region)) => Ok(Self {
                region,
                seed: Some(made),
                made: HashMap::new(),
                stand_ins: HashMap::new(),
                spare: Vec::new(),
            }),
            Err(error) => {
                kill(pid, &[pid]);
                Err(error)
            }
        }
    }

    fn seed(&self) -> Result<&Made> {
        self.seed.as_ref().ok_or(Error::Gone(0))
    }

    /// Makes a seed whose number is in nobody's way, with only the descriptor of the tracer, as
    /// `tracer`, and without what the kernel keeps for the program that it was.
    pub(super) fn settle(&mut self, snapshot: &Snapshot, from: i32, tracer: i32) -> Result<()> {
        self.spare = spare(snapshot);
        let number = self.next_spare()?;
        let new = self.seed()?.make(&self.region, number, As::Sibling)?;
        let old = self.seed.replace(new);
        if let Some(old) = old {
            old.kill();
            // Its number may be wanted as soon as it is free.
            let begin = Instant::now();
            while std::path::Path::new(&format!("/proc/{}", old.pid)).exists() {
                if begin.elapsed() > REAPING {
                    let error = std::io::Error::other("pid 1 does not reap its children");
                    return Err(Error::io("making room for processes", error));
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        let seed = self.seed()?;
        let first = seed.first()?;
        let area = first.asked("asking for rseq", ptrace::rseq(first.tid()))?;
        let mut calls = Calls::new(self.region.data());
        let mut add = |what, number, arguments: [u64; 4]| {
            calls.add(what, number, arguments.map(Into::into), Expect::Success);
        };
        if area != Rseq::default() && area.address != 0 {
            let arguments = [area.address, area.length.into(), 1, area.signature.into()];
            add(
                "forget its restartable sequences",
                libc::SYS_rseq,
                arguments,
            );
        }
        add(
            "forget its address for the end",
            libc::SYS_set_tid_address,
            [0; 4],
        );
        let word = |number: i32| i64::from(number).cast_unsigned();
        if from != tracer {
            let flags = word(libc::O_CLOEXEC);
            add(
                "number the tracer",
                libc::SYS_dup3,
                [word(from), word(tracer), flags, 0],
            );
        }
        let last = u64::from(u32::MAX);
        add(
            "close descriptors",
            libc::SYS_close_range,
            [0, word(tracer - 1), 0, 0],
        );
        add(
            "close descriptors",
            libc::SYS_close_range,
            [word(tracer + 1), last, 0, 0],
        );
        let action = calls.place(&[0; 32]);
        let arguments = [word(libc::SIGCHLD), action, 0, 8].map(Into::into);
        calls.add(
            "take a default action",
            libc::SYS_rt_sigaction,
            arguments,
            Expect::Success,
        );
        seed.run(&self.region, &calls).map(drop)
    }

    fn next_spare(&mut self) -> Result<i32> {
        self.spare
            .pop()
            .ok_or_else(|| Error::Image("it has too many processes".to_owned()))
    }

    /// Makes all processes of the snapshot.
    pub(super) fn grow(&mut self, snapshot: &Snapshot) -> Result<()> {
        let relations: Vec<order::Relation> = snapshot
            .processes
            .iter()
            .map(|process| process.relation)
            .collect();
        let steps = order::order(&relations)
            .map_err(|pid| Error::Image(format!("there is no way to make process {pid}")))?;
        for step in steps {
            self.step(step)?;
        }
        for process in &snapshot.processes {
            if let Life::Zombie(status) = process.life
                && let Some(made) = self.made.remove(&process.relation.pid)
            {
                made.end(&self.region, status)?;
            }
        }
        // Nothing is made from it any more.
        if let Some(seed) = self.seed.take() {
            seed.kill();
        }
        Ok(())
    }

    fn of(&self, inside: i32) -> Result<&Made> {
        let made = self
            .made
            .get(&inside)
            .or_else(|| self.stand_ins.get(&inside));
        made.ok_or_else(|| Error::Image(format!("process {inside} is not there in time")))
    }

    fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Make(pid, maker) => {
                let made = match maker {
                    Maker::Seed => self.seed()?.make(&self.region, pid, As::Sibling)?,
                    Maker::Parent(by) => self.of(by)?.make(&self.region, pid, As::Child)?,
                    Maker::Sibling(by) => self.of(by)?.make(&self.region, pid, As::Sibling)?,
                    Maker::Grandparent(by) => {
                        let number = self.next_spare()?;
                        let helper = self.of(by)?.make(&self.region, number, As::Child)?;
                        let made = helper.make(&self.region, pid, As::Child);
                        self.reap(by, number, helper)?;
                        made?
                    }
                };
                self.made.insert(pid, made);
            }
            Step::Lead(pid) => self.call(pid, "lead a session", libc::SYS_setsid, [0; 2])?,
            Step::Join(pid, group) => self.join(pid, group)?,
            Step::StandIn(session) => {
                let made = self.seed()?.make(&self.region, session, As::Sibling)?;
                self.stand_ins.insert(session, made);
                self.call(session, "lead a session", libc::SYS_setsid, [0; 2])?;
            }
            Step::GroupStandIn(by, group) => {
                let made = self.of(by)?.make(&self.region, group, As::Child)?;
                self.stand_ins.insert(group, made);
                self.join(group, group)?;
            }
            Step::Dismiss(session) => {
                if let Some(made) = self.stand_ins.remove(&session) {
                    made.kill();
                }
            }
            Step::DismissGroup(by, group) => {
                if let Some(made) = self.stand_ins.remove(&group) {
                    self.reap(by, group, made)?;
                }
            }
        }
        Ok(())
    }

    fn join(&self, pid: i32, group: i32) -> Result<()> {
        let group = i64::from(group).cast_unsigned();
        self.call(pid, "join a group", libc::SYS_setpgid, [0, group])
    }

    fn call(&self, pid: i32, what: &'static str, number: i64, arguments: [u64; 2]) -> Result<()> {
        let mut calls = Calls::new(self.region.data());
        calls.add(what, number, arguments.map(Into::into), Expect::Success);
        self.of(pid)?.run(&self.region, &calls).map(drop)
    }

    /// Ends a helper and lets its parent notice.
    fn reap(&self, parent: i32, helper: i32, made: Made) -> Result<()> {
        made.end(&self.region, 0)?;
        let mut calls = Calls::new(self.region.data());
        let word = |number: i32| i64::from(number).cast_unsigned();
        let arguments = [word(helper), 0, word(libc::__WALL), 0];
        calls.add(
            "reap a helper",
            libc::SYS_wait4,
            arguments.map(Into::into),
            Expect::Success,
        );
        self.of(parent)?.run(&self.region, &calls).map(drop)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let stand_ins = std::mem::take(&mut self.stand_ins).into_values();
        let made = std::mem::take(&mut self.made).into_values();
        for made in self.seed.take().into_iter().chain(stand_ins).chain(made) {
            made.kill();
        }
    }
}

/// Some numbers that nothing of the image has, the highest last.
fn spare(snapshot: &Snapshot) -> Vec<i32> {
    const HIGHEST: i32 = 32_000;
    const WANTED: usize = 512;
    let mut taken = BTreeSet::new();
    for process in &snapshot.processes {
        let relation = process.relation;
        taken.extend([relation.pid, relation.group, relation.session]);
        if let Life::Alive(alive) = &process.life {
            taken.extend(alive.threads.iter().map(|thread| thread.tid));
        }
    }
    let mut spare: Vec<i32> = (300..HIGHEST)
        .rev()
        .filter(|number| !taken.contains(number))
        .take(WANTED)
        .collect();
    spare.reverse();
    spare
}

/// The memory of a process that is traced, for the kernel's own mappings.
pub(super) fn mappings(pid: i32) -> Result<Vec<crate::proc::maps::Map>> {
    let text = std::fs::read(format!("/proc/{pid}/maps"))
        .map_err(|error| Error::io(format!("reading mappings of process {pid}"), error))?;
    Ok(crate::proc::maps::parse(&text)?)
}
