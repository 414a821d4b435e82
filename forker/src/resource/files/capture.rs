//! Captures all descriptors of a frozen tree, from outside.
//!
//! Each description is duplicated once; everything is read through the duplicate, so it makes no
//! difference whether it was found in a table or in the queue of a socket. Which descriptors are
//! the same description says `kcmp`, asked only where `fdinfo` looks alike.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use nix::sys::stat::{FileStat, fstat};

use super::model::{Description, Files, Owner, Slot, Table};
use super::pids::Pids;
use super::place::Source;
use super::trouble::{Error, Trouble, way};
use super::{classify, sys, terminal};
use crate::proc::fdinfo::{self, FdInfo};
use crate::proc::locks;
use crate::report::{Line, Report, Verdict};

/// A process that does not run while its descriptors are captured.
#[derive(Debug)]
pub struct FrozenProcess {
    /// Its pid as the caller sees it.
    pub pid: i32,
    /// Its pid inside the box.
    pub inside: i32,
    /// A descriptor for it.
    pub pidfd: OwnedFd,
}

/// A description with its duplicate.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) file: OwnedFd,
    pub(super) info: FdInfo,
    /// Where `/proc/self/fd` says it leads.
    pub(super) link: Vec<u8>,
    pub(super) stat: FileStat,
    /// Process inside the box and number (-1 in the queue of a socket).
    pub(super) seen: (i32, i32),
    /// All numbers that it has in any table.
    pub(super) numbers: Vec<i32>,
}

impl Taken {
    fn new(file: OwnedFd, info: FdInfo, seen: (i32, i32)) -> io::Result<Self> {
        let link = nix::fcntl::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()).as_str())?;
        let stat = fstat(file.as_fd())?;
        Ok(Self {
            file,
            info,
            link: link.into_vec(),
            stat,
            seen,
            numbers: Vec::new(),
        })
    }
}

/// What `fdinfo` must agree in for two descriptors to be one description.
type Looks = (u64, u64, i32, i64);

/// The work in progress.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) taken: Vec<Taken>,
    pub(super) files: Files,
    pub(super) pids: Pids,
    report: Report,
    /// Descriptions by their looks, each list in `kcmp` order.
    alike: BTreeMap<Looks, Vec<usize>>,
}

/// Captures the descriptors of a whole tree. All its processes must be frozen, and nobody else may
/// write to what the caller has named as held outside.
///
/// # Errors
/// If a process cannot be looked into. What cannot be kept is a line of the report, not an error; then
/// the first result is not whole.
pub fn capture(processes: &[FrozenProcess], source: &dyn Source) -> Result<(Files, Report), Error> {
    let mut work = Work {
        taken: Vec::new(),
        files: Files::default(),
        pids: Pids::new(
            processes
                .iter()
                .map(|process| (process.pid, process.inside)),
        ),
        report: Report::default(),
        alike: BTreeMap::new(),
    };
    for group in tables(processes)? {
        work.table(&group)?;
    }
    let kinds = classify::all(&mut work, source);
    terminal_sessions(&mut work, processes, source)?;
    for (taken, kind) in work.taken.iter().zip(kinds) {
        let (owner, kind) = match (owner(&work.pids, taken), kind) {
            (Ok(owner), Some(kind)) => (owner, kind),
            (Err(error), Some(kind)) => {
                let why = Trouble::Failed(error);
                trouble(&mut work.report, taken, kind.name(), why);
                continue;
            }
            (_, None) => continue,
        };
        work.files.descriptions.push(Description {
            seen: taken.seen,
            flags: taken.info.flags & !libc::O_CLOEXEC,
            position: taken.info.position,
            owner,
            locks: description_locks(&mut work.report, taken),
            kind,
        });
    }
    Ok((work.files, work.report))
}

/// Processes by the table that they use.
fn tables(processes: &[FrozenProcess]) -> Result<Vec<Vec<&FrozenProcess>>, Error> {
    let mut groups: Vec<Vec<&FrozenProcess>> = Vec::new();
    for process in processes {
        let found = search(&groups, |group| match group.first() {
            Some(first) => sys::kcmp(sys::KCMP_FILES, (first.pid, 0), (process.pid, 0)),
            None => Ok(Ordering::Greater),
        });
        let found = found.map_err(|source| Error::Process {
            pid: process.pid,
            what: "comparing its table of descriptors",
            source,
        })?;
        match found {
            Ok(at) => groups[at].push(process),
            Err(at) => groups.insert(at, vec![process]),
        }
    }
    Ok(groups)
}

/// Binary search with a comparison that can fail.
fn search<T>(
    sorted: &[T],
    mut compare: impl FnMut(&T) -> io::Result<Ordering>,
) -> io::Result<Result<usize, usize>> {
    let mut failure = None;
    let found = sorted.binary_search_by(|one| {
        compare(one).unwrap_or_else(|error| {
            failure = Some(error);
            Ordering::Equal
        })
    });
    failure.map_or(Ok(found), Err)
}

impl Work {
    fn table(&mut self, group: &[&FrozenProcess]) -> Result<(), Error> {
        let Some(process) = group.first() else {
            return Ok(());
        };
        let failed = |what| {
            move |source| Error::Process {
                pid: process.pid,
                what,
                source,
            }
        };
        let mut table = Table {
            pids: group.iter().map(|process| process.inside).collect(),
            ..Table::default()
        };
        let numbers = numbers(process.pid).map_err(failed("listing its descriptors"))?;
        for fd in numbers {
            let path = format!("/proc/{}/fdinfo/{fd}", process.pid);
            let text = std::fs::read(path).map_err(failed("reading a descriptor"))?;
            let info = fdinfo::parse(&text)
                .map_err(io::Error::other)
                .map_err(failed("reading a descriptor"))?;
            let cloexec = info.flags & libc::O_CLOEXEC != 0;
            for lock in &info.locks {
                if lock.kind == locks::Kind::Posix {
                    table.locks.push((fd, *lock));
                }
            }
            let description = self
                .find(process, fd, info)
                .map_err(failed("taking a descriptor"))?;
            self.taken[description].numbers.push(fd);
            table.slots.push(Slot {
                fd,
                cloexec,
                description,
            });
        }
        self.files.tables.push(table);
        Ok(())
    }

    /// The index of the description behind a descriptor, which is duplicated if it is new.
    fn find(&mut self, process: &FrozenProcess, fd: RawFd, info: FdInfo) -> io::Result<usize> {
        let me = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        let alike = self.alike.entry(looks(&info)).or_default();
        let found = search(alike, |&index| {
            let known = self.taken[index].file.as_raw_fd();
            sys::kcmp(sys::KCMP_FILE, (me, known), (process.pid, fd))
        })?;
        match found {
            Ok(at) => Ok(alike[at]),
            Err(at) => {
                let index = self.taken.len();
                alike.insert(at, index);
                let file = sys::duplicate(process.pidfd.as_fd(), fd)?;
                self.taken
                    .push(Taken::new(file, info, (process.inside, fd))?);
                Ok(index)
            }
        }
    }

    /// The index of a description that was found in the queue of a socket.
    pub(super) fn in_flight(&mut self, file: OwnedFd, pid: i32) -> io::Result<usize> {
        let me = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        let text = std::fs::read(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
        let info = fdinfo::parse(&text).map_err(io::Error::other)?;
        let alike = self.alike.entry(looks(&info)).or_default();
        let found = search(alike, |&index| {
            let known = self.taken[index].file.as_raw_fd();
            sys::kcmp(sys::KCMP_FILE, (me, known), (me, file.as_raw_fd()))
        })?;
        match found {
            Ok(at) => Ok(alike[at]),
            Err(at) => {
                let index = self.taken.len();
                alike.insert(at, index);
                self.taken.push(Taken::new(file, info, (pid, -1))?);
                Ok(index)
            }
        }
    }

    /// Says why a description cannot be kept.
    pub(super) fn trouble(&mut self, index: usize, kind: &str, trouble: Trouble) {
        self::trouble(&mut self.report, &self.taken[index], kind, trouble);
    }

    /// Says what is not kept as it was.
    pub(super) fn degraded(&mut self, index: usize, kind: &str, reason: String, out: &str) {
        let line = line(
            Verdict::Degraded,
            &self.taken[index],
            kind,
            reason,
            way(out),
        );
        self.report.lines.push(line);
    }
}

fn looks(info: &FdInfo) -> Looks {
    (
        info.ino,
        info.mount,
        info.flags & !libc::O_CLOEXEC,
        info.position,
    )
}

/// The numbers of a process's descriptors, in order.
fn numbers(pid: i32) -> io::Result<Vec<RawFd>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        numbers.push(number.ok_or_else(|| io::Error::other("a name that is no number"))?);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn line(
    verdict: Verdict,
    taken: &Taken,
    kind: &str,
    reason: String,
    way_out: Option<String>,
) -> Line {
    let (pid, fd) = taken.seen;
    let what = if fd < 0 {
        format!("{kind} in the queue of a socket")
    } else {
        format!("descriptor {fd}: {kind}")
    };
    Line {
        verdict,
        pid,
        what,
        reason,
        way_out,
    }
}

fn trouble(report: &mut Report, taken: &Taken, kind: &str, trouble: Trouble) {
    let (reason, out) = match trouble {
        Trouble::Refused { reason, way_out } => (reason, way_out),
        Trouble::Failed(error) => (
            format!("it cannot be read: {error}"),
            way("try again, or close the descriptor before the checkpoint"),
        ),
    };
    report
        .lines
        .push(line(Verdict::Refused, taken, kind, reason, out));
}

/// `flock` and OFD locks; a lease is refused.
fn description_locks(report: &mut Report, taken: &Taken) -> Vec<locks::Lock> {
    let (mut kept, mut lease) = (Vec::new(), false);
    for lock in &taken.info.locks {
        match lock.kind {
            locks::Kind::Flock | locks::Kind::Ofd => kept.push(*lock),
            locks::Kind::Lease => lease = true,
            locks::Kind::Posix => {}
        }
    }
    if lease {
        let why = Trouble::refuse(
            "a lease may be broken at any moment by an open from elsewhere",
            way("give the lease up with fcntl(F_SETLEASE, F_UNLCK)"),
        );
        trouble(report, taken, "lease", why);
    }
    kept
}

/// Who is told by signals.
fn owner(pids: &Pids, taken: &Taken) -> io::Result<Option<Owner>> {
    if taken.info.flags & libc::O_PATH != 0 {
        return Ok(None);
    }
    let mut who = [0_i32; 2];
    sys::fcntl_with(&taken.file, F_GETOWN_EX, &mut who)?;
    let signal = sys::fcntl(&taken.file, F_GETSIG, 0)?;
    if who[1] == 0 && signal == 0 {
        return Ok(None);
    }
    Ok(Some(Owner {
        kind: who[0],
        pid: pids.inside(who[1]).unwrap_or(0),
        signal,
    }))
}

// From linux/fcntl.h.
const F_GETSIG: i32 = 11;
const F_GETOWN_EX: i32 = 16;

/// Which sessions have which of the terminals.
fn terminal_sessions(
    work: &mut Work,
    processes: &[FrozenProcess],
    source: &dyn Source,
) -> Result<(), Error> {
    for process in processes {
        let failed = |source| Error::Process {
            pid: process.pid,
            what: "reading its session",
            source,
        };
        let text = std::fs::read(format!("/proc/{}/stat", process.pid)).map_err(failed)?;
        let stat = crate::proc::stat::parse(&text)
            .map_err(io::Error::other)
            .map_err(failed)?;
        let Some((136..=143, index)) = stat.terminal() else {
            continue;
        };
        if work.pids.inside(stat.session) != Some(process.inside) {
            continue;
        }
        let known = |work: &Work| {
            let terminals = &work.files.terminals;
            terminals
                .iter()
                .position(|terminal| terminal.index == index)
        };
        if known(work).is_none()
            && let Some(name) = source.outside(super::Outside::Terminal(index))
        {
            // Nobody has it open, but it can be opened as /dev/tty.
            let open = terminal::Terminal {
                index,
                outside: Some(name),
                ..terminal::Terminal::default()
            };
            work.files.terminals.push(open);
        }
        match known(work) {
            Some(terminal) => work.files.sessions.push(terminal::Session {
                leader: process.inside,
                terminal,
                foreground: work.pids.inside(stat.tpgid).unwrap_or(0),
            }),
            None => work.report.lines.push(Line {
                verdict: Verdict::Degraded,
                pid: process.inside,
                what: format!("controlling terminal {index}"),
                reason: "no process has it open, and it belongs to no session of the box".into(),
                way_out: way("start the program in a session of the box"),
            }),
        }
    }
    Ok(())
}
