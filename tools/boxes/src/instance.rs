//! A box instance: one process tree in namespaces and cgroups of its own on one root.
//!
//! An instance is built anew for every rollback and fork, while the box that it belongs to, with its name,
//! [sessions](crate::session) and [forwarded ports](crate::port), goes on. So nothing here knows about those;
//! what becomes of an instance is told to whoever built it by [`Event`]s.

mod launcher;
mod link;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::launcher::Launcher;
use self::link::Link;
use crate::cgroup::{Group, Hierarchies, Limits};
use crate::error::{Error, Result};
use crate::process::{self, Process};
use crate::sys;
use crate::wire::{Command, Order, Setup, Stdio, Word};

/// What happened in an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The process of a session has ended with this status: its own, or 128 and the signal.
    Exited {
        /// Whose.
        session: u32,
        /// How.
        status: u8,
    },
    /// Init has ended, and everything with it.
    Ended,
}

/// Which instance, among all that this process has built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceId(u64);

impl InstanceId {
    fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// What an instance is made of.
#[derive(Debug)]
pub struct Blueprint<'a> {
    /// The directory that will be the root; what is mounted below it does not come along.
    pub root: BorrowedFd<'a>,
    /// The host name, that is the box's name.
    pub hostname: &'a str,
    /// The path of its cgroups, two components, unused so far.
    pub cgroup: &'a Path,
    /// What it may use.
    pub limits: Limits,
}

/// A process that was made, or found, for somebody.
#[derive(Debug)]
pub struct Started {
    /// Where it runs.
    pub instance: InstanceId,
    /// Its pid in the box.
    pub pid: i32,
    /// A descriptor that keeps meaning it.
    pub pidfd: OwnedFd,
}

/// What the standard descriptors of a new command are.
#[derive(Debug)]
pub enum Standard<'a> {
    /// A new terminal of the box.
    Terminal {
        /// Lines.
        rows: u16,
        /// Characters a line.
        columns: u16,
    },
    /// These descriptors; without input, `/dev/null`.
    Pipes {
        /// Standard input.
        input: Option<BorrowedFd<'a>>,
        /// Standard output.
        output: BorrowedFd<'a>,
        /// Standard error.
        errors: BorrowedFd<'a>,
    },
}

/// A running instance. Dropping it ends every process in it and removes what it was made of, but not the root.
#[derive(Debug)]
pub struct Instance {
    id: InstanceId,
    link: Link,
    pid: i32,
    pidfd: OwnedFd,
    root: File,
    network: File,
    group: Group,
}

impl Instance {
    /// Builds an instance in which nothing runs but init. `events` is called from a thread of the instance's own
    /// and must not wait for the instance.
    ///
    /// # Errors
    /// [`Error::System`], naming the step; those of [`Group::create`].
    pub fn build(
        launcher: &Launcher,
        blueprint: &Blueprint<'_>,
        events: impl Fn(InstanceId, Event) + Send + 'static,
    ) -> Result<Self> {
        let hierarchies = Hierarchies::find()?;
        let root = sys::mount::detached_copy(blueprint.root)
            .map_err(|reason| Error::system("take the directory for the root", reason))?;
        let group = Group::create(&hierarchies, blueprint.cgroup, &blueprint.limits)?;
        let (ours, theirs) =
            UnixStream::pair().map_err(|reason| Error::system("make a socket pair", reason))?;
        let init = launcher.spawn(theirs.as_fd(), group.init())?;
        drop(theirs);
        let mut link = Link::new(ours);
        // From here on a failure drops `group`, which ends init.
        let set_up = group.join_v1(init.pid).and_then(|()| {
            let setup = Setup {
                hostname: blueprint.hostname.to_owned(),
            };
            link.first(&Order::SetUp(setup), &[root.as_fd(), group.tree()])
        });
        if let Err(failure) = set_up {
            drop(group);
            reap(&init.pidfd);
            return Err(failure);
        }
        let places = place(init.pid, "root", libc::O_PATH | libc::O_DIRECTORY)
            .and_then(|root| Ok((root, place(init.pid, "ns/net", 0)?)));
        let (root, network) = match places {
            Ok(places) => places,
            Err(failure) => {
                drop(group);
                reap(&init.pidfd);
                return Err(failure);
            }
        };
        let id = InstanceId::next();
        link.listen(move |event| events(id, event))?;
        Ok(Self {
            id,
            link,
            pid: init.pid,
            pidfd: init.pidfd,
            root,
            network,
            group,
        })
    }

    /// Starts a command as the process of `session`; returns it and its terminal's master end, if it has one.
    ///
    /// # Errors
    /// [`Error::NotStarted`], [`Error::NoSuchUser`], [`Error::Ended`], [`Error::System`].
    pub fn run(
        &self,
        session: u32,
        command: &Command,
        standard: &Standard<'_>,
    ) -> Result<(Started, Option<OwnedFd>)> {
        let mut fds = Vec::new();
        let stdio = match standard {
            Standard::Terminal { rows, columns } => Stdio::Terminal {
                rows: *rows,
                columns: *columns,
            },
            Standard::Pipes {
                input,
                output,
                errors,
            } => {
                fds.extend(*input);
                fds.extend([*output, *errors]);
                Stdio::Pipes {
                    input: input.is_some(),
                }
            }
        };
        let order = Order::Run {
            session,
            command: command.clone(),
            stdio,
        };
        let answer = self.link.ask(&order, &fds)?;
        match answer.word {
            Word::NotStarted { errno } => {
                let name = command.argv.first().map(Vec::as_slice).unwrap_or_default();
                Err(Error::NotStarted {
                    command: String::from_utf8_lossy(name).into_owned(),
                    not_found: errno == libc::ENOENT || errno == libc::ENOTDIR,
                    source: io::Error::from_raw_os_error(errno),
                })
            }
            Word::NoSuchUser => Err(Error::NoSuchUser {
                user: command.user.clone().unwrap_or_default(),
            }),
            Word::Process { pid } => {
                let mut fds = answer.fds.into_iter();
                let pidfd = fds.next().ok_or_else(|| missing("a process"))?;
                let started = Started {
                    instance: self.id,
                    pid,
                    pidfd,
                };
                Ok((started, fds.next()))
            }
            _ => Err(missing("a process")),
        }
    }

    /// Makes the process `pid`, as the box numbers it, the process of `session`: for trees that were rebuilt. To be
    /// called before the process runs, or its end may be missed.
    ///
    /// # Errors
    /// [`Error::System`] if it is no process of the box.
    pub fn adopt(&self, session: u32, pid: i32) -> Result<Started> {
        self.process(&Order::Adopt { session, pid }, &[])
    }

    /// Makes a child of init from which a process tree can be rebuilt: it waits, has all of init's rights, no filter,
    /// no session of its own, and nothing open but `given`, as [`SEED_FD`](crate::SEED_FD).
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Ended`].
    pub fn seed(&self, given: BorrowedFd<'_>) -> Result<Started> {
        self.process(&Order::Seed, &[given])
    }

    /// Makes the box's terminal number `number` and returns its master end.
    ///
    /// # Errors
    /// [`Error::System`], `EBUSY` if there is one.
    pub fn terminal(&self, number: u32) -> Result<OwnedFd> {
        let mut answer = self.link.ask(&Order::Terminal { number }, &[])?;
        answer.fds.pop().ok_or_else(|| missing("a terminal"))
    }

    /// Sends a signal to every process but init.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Ended`].
    pub fn signal_all(&self, signal: i32) -> Result<()> {
        self.link.ask(&Order::SignalAll { signal }, &[]).map(drop)
    }

    /// Lets all processes but init stand still.
    ///
    /// # Errors
    /// [`Error::TimedOut`], after which they run; [`Error::System`].
    pub fn freeze(&self) -> Result<()> {
        self.group.freeze()
    }

    /// Lets frozen processes go on.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn thaw(&self) -> Result<()> {
        self.group.thaw()
    }

    /// Returns all processes but init.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn processes(&self) -> Result<Vec<Process>> {
        let pids = self.group.processes()?;
        Ok(pids.into_iter().filter_map(process::read).collect())
    }

    /// Ends every process, init included, and waits until all are gone.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::System`].
    pub fn kill(&self) -> Result<()> {
        self.group.kill()
    }

    /// Returns which one this is.
    pub fn id(&self) -> InstanceId {
        self.id
    }

    /// Returns init's pid, as the host numbers it.
    pub fn init_pid(&self) -> i32 {
        self.pid
    }

    /// Returns the root as processes in the box see it.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Returns the network namespace.
    pub fn network(&self) -> BorrowedFd<'_> {
        self.network.as_fd()
    }

    /// Returns the cgroup in which all processes but init are, to be born in.
    pub fn tree_cgroup(&self) -> BorrowedFd<'_> {
        self.group.tree()
    }

    fn process(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> Result<Started> {
        let mut answer = self.link.ask(order, fds)?;
        let Word::Process { pid } = answer.word else {
            return Err(missing("a process"));
        };
        let pidfd = answer.fds.pop().ok_or_else(|| missing("a process"))?;
        Ok(Started {
            instance: self.id,
            pid,
            pidfd,
        })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Init ends at once when told; whatever it cannot end, the group does.
        drop(sys::pidfd::signal(&self.pidfd, libc::SIGKILL));
        if let Err(failure) = self.group.kill() {
            log::error!("a box instance does not end: {failure}");
        }
        reap(&self.pidfd);
        self.link.join();
    }
}

fn reap(init: &OwnedFd) {
    drop(sys::pidfd::signal(init, libc::SIGKILL));
    if let Err(reason) = sys::pidfd::reap(init) {
        log::error!("cannot wait for the init of a box: {reason}");
    }
}

fn missing(what: &str) -> Error {
    Error::Protocol(format!("an answer comes without {what}"))
}

fn place(pid: i32, name: &str, flags: i32) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = format!("/proc/{pid}/{name}");
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(&path)
        .map_err(|reason| Error::system(format!("open '{path}'"), reason))
}

/// Sends a signal to the process group that a process leads, or to the process if it leads none.
///
/// # Errors
/// [`Error::Ended`] if nobody of it is left.
pub fn signal_group(process: &OwnedFd, signal: i32) -> Result<()> {
    let sent = match sys::pidfd::signal_group(process, signal) {
        // A kernel before 6.9.
        Err(reason) if reason.raw_os_error() == Some(libc::EINVAL) => {
            sys::pidfd::signal(process, signal)
        }
        other => other,
    };
    match sent {
        Err(reason) if reason.raw_os_error() == Some(libc::ESRCH) => Err(Error::Ended),
        Err(reason) => Err(Error::system("send a signal", reason)),
        Ok(()) => Ok(()),
    }
}

/// Returns the pid, as the host numbers it, of the process that a descriptor means.
pub fn host_pid(process: &OwnedFd) -> Option<i32> {
    let path = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
    let text = fs::read_to_string(path).ok()?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    pid.trim().parse().ok().filter(|pid| *pid > 0)
}
