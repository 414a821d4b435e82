//! What a process tree has outside of itself: the root in its slot, and the daemon's ends of its sessions.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use branchpoint_boxes::instance::Instance;
use branchpoint_boxes::session::{Ends, Kept, Session};
use branchpoint_forker::checkpoint;
use branchpoint_forker::resource::files::{Outside, Place, Source};
use branchpoint_forker::tree::Frozen;
use branchpoint_fs::branch::Instant;
use branchpoint_fs::store::Store;
use nix::fcntl::OFlag;
use nix::sys::stat::fstat;
use nix::unistd::pipe2;
use parking_lot::Mutex;

use super::Boxed;
use super::root::Root;
use crate::failure::{Failure, Result};
use crate::sys;

/// Which end of a session something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Input,
    Output,
    Errors,
}

impl End {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Input, "input"),
        (Self::Output, "output"),
        (Self::Errors, "errors"),
    ];

    /// Returns the name of this end of a session in an image.
    fn name(self, session: u32) -> String {
        let (_, word) = Self::ALL[self as usize];
        format!("{session}/{word}")
    }

    fn parse(name: &str) -> Option<(u32, Self)> {
        let (session, word) = name.split_once('/')?;
        let (end, _) = Self::ALL.iter().find(|(_, known)| *known == word)?;
        Some((session.parse().ok()?, *end))
    }
}

/// Where a tree is captured.
pub(super) struct Here<'a> {
    store: &'a Arc<Store>,
    branch: &'a str,
    instance: Arc<Instance>,
    root: Arc<Root>,
    ends: Vec<(Outside, String, OwnedFd)>,
    /// Set when the files' instant is fixed.
    pub(super) instant: Option<Instant>,
}

impl<'a> Here<'a> {
    /// Looks at what a box has outside.
    ///
    /// # Errors
    /// The box does not run; an end of a session cannot be looked at.
    pub(super) fn of(one: &Boxed, store: &'a Arc<Store>, branch: &'a str) -> Result<Self> {
        let instance = one.running()?;
        let root = one.root().ok_or_else(|| not_running(one))?;
        let mut ends = Vec::new();
        for session in one.sessions.all() {
            add_ends(&session, &mut ends)?;
        }
        Ok(Self {
            store,
            branch,
            instance,
            root,
            ends,
            instant: None,
        })
    }
}

fn not_running(one: &Boxed) -> Failure {
    Failure::new(
        crate::failure::FailureKind::Invalid,
        format!("box '{}' is not running", one.name()),
    )
}

fn add_ends(session: &Session, into: &mut Vec<(Outside, String, OwnedFd)>) -> Result<()> {
    let is_terminal = session.snapshot().is_terminal;
    let Ends {
        input,
        output,
        errors,
    } = session.ends()?;
    let ends = [
        (End::Input, input),
        (End::Output, output),
        (End::Errors, errors),
    ];
    for (end, fd) in ends {
        let Some(fd) = fd else { continue };
        let look = |reason| Failure::io("look at the end of a session", &reason);
        let what = if is_terminal {
            Outside::Terminal(sys::terminal_number(fd.as_fd()).map_err(look)?)
        } else {
            Outside::Pipe(fstat(&fd).map_err(|errno| look(errno.into()))?.st_ino)
        };
        into.push((what, end.name(session.number()), fd));
    }
    Ok(())
}

impl Source for Here<'_> {
    fn root(&self) -> BorrowedFd<'_> {
        self.instance.root()
    }

    fn open_inode(&self, ino: u64, flags: i32) -> io::Result<OwnedFd> {
        self.root.open_inode(ino, flags)
    }

    fn outside(&self, what: Outside) -> Option<String> {
        let found = self.ends.iter().find(|(known, _, _)| *known == what)?;
        Some(found.1.clone())
    }

    fn master(&self, index: u32) -> Option<OwnedFd> {
        let wanted = Outside::Terminal(index);
        let found = self.ends.iter().find(|(known, _, _)| *known == wanted)?;
        found.2.try_clone().ok()
    }
}

impl checkpoint::Host for Here<'_> {
    fn instant(&mut self, tree: &Frozen) -> io::Result<()> {
        let pids: Vec<u32> = tree
            .processes
            .iter()
            .filter_map(|process| u32::try_from(process.pid).ok())
            .collect();
        self.root.flush(&pids).map_err(io::Error::other)?;
        let instant = self
            .store
            .begin_instant(self.branch)
            .map_err(io::Error::other)?;
        self.instant = Some(instant);
        Ok(())
    }
}

/// The daemon's ends of the sessions of a tree that is being rebuilt.
pub(super) type NewEnds = Arc<Mutex<HashMap<u32, Ends>>>;

/// Where a tree is rebuilt.
pub(super) struct There {
    instance: Arc<Instance>,
    root: Arc<Root>,
    kept: Vec<Kept>,
    ends: NewEnds,
}

impl There {
    pub(super) fn new(
        instance: Arc<Instance>,
        root: Arc<Root>,
        kept: Vec<Kept>,
    ) -> (Self, NewEnds) {
        let ends = NewEnds::default();
        let there = Self {
            instance,
            root,
            kept,
            ends: Arc::clone(&ends),
        };
        (there, ends)
    }

    fn terminal(&self, session: u32, index: u32) -> io::Result<OwnedFd> {
        let master = self.instance.terminal(index).map_err(io::Error::other)?;
        let theirs = master.try_clone()?;
        self.ends.lock().entry(session).or_default().input = Some(master);
        Ok(theirs)
    }

    fn pipe(&self, session: u32, end: End) -> io::Result<OwnedFd> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        let mut ends = self.ends.lock();
        let ends = ends.entry(session).or_default();
        Ok(match end {
            End::Input => {
                ends.input = Some(write);
                read
            }
            End::Output => {
                ends.output = Some(read);
                write
            }
            End::Errors => {
                ends.errors = Some(read);
                write
            }
        })
    }
}

impl Place for There {
    fn root(&self) -> BorrowedFd<'_> {
        self.instance.root()
    }

    fn network(&self) -> Option<BorrowedFd<'_>> {
        Some(self.instance.network())
    }

    fn open_inode(&self, ino: u64, flags: i32) -> io::Result<OwnedFd> {
        self.root.open_inode(ino, flags)
    }

    fn pid(&self, _: i32) -> Option<i32> {
        None
    }

    fn outside(&self, name: &str, what: Outside) -> io::Result<OwnedFd> {
        let unknown = || io::Error::other(format!("the image knows no end '{name}' of a session"));
        let (session, end) = End::parse(name).ok_or_else(unknown)?;
        match what {
            Outside::Terminal(index) => self.terminal(session, index),
            Outside::Pipe(_) if self.kept.iter().any(|kept| kept.number == session) => {
                self.pipe(session, end)
            }
            // Its command has ended and nobody reads it: what others write there goes nowhere.
            Outside::Pipe(_) => nowhere(),
            Outside::Unix(_) => Err(unknown()),
        }
    }
}

fn nowhere() -> io::Result<OwnedFd> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    drop(read);
    Ok(write)
}

/// A descriptor that stands for this process, for a seed.
pub(super) fn tracer() -> Result<OwnedFd> {
    let own = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
    branchpoint_forker::sys::pidfd::open(own)
        .map_err(|reason| Failure::io("open a descriptor of this process", &reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_have_names() {
        for (end, _) in End::ALL {
            assert_eq!(End::parse(&end.name(7)), Some((7, end)));
        }
        for wrong in ["", "7", "7/", "x/input", "7/inputs"] {
            assert_eq!(End::parse(wrong), None, "{wrong}");
        }
    }
}
