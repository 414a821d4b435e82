//! The cgroups of a box: what it is frozen and ended through, and what holds its limits.
//!
//! ```text
//! UNIFIED/PARENT/NAME          the box's init, which is never frozen: if the daemon dies it has to end; and
//!                              the limits, if the controllers live here
//! UNIFIED/PARENT/NAME/tree     everything else; frozen and thawed as one
//! V1/PARENT/NAME               for each limit whose controller is still on a v1 hierarchy
//! ```
//! Moving a process between cgroups costs the kernel a grace period of milliseconds, so processes are born
//! in theirs, and a v1 group is joined once, by init, and only if it has a limit to hold.

mod hierarchy;
mod limits;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub use self::hierarchy::Hierarchies;
pub use self::limits::Limits;
use crate::error::{Error, Result};

/// How long processes may take to stand still: one in an uninterruptible wait stops only after it.
const FREEZE_LIMIT: Duration = Duration::from_secs(10);

/// How long killed processes may take to be gone; freeing memory takes 70 ms a GiB.
const END_LIMIT: Duration = Duration::from_secs(30);

/// How often a cgroup is made when the last of its siblings takes the parent away with it at the same moment.
const MAKE_TRIES: usize = 16;

/// The cgroups of one box instance. Removed when dropped, with whatever runs in them.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
    v1: Vec<PathBuf>,
    init: File,
    tree: File,
}

impl Group {
    /// Makes the cgroups `name`, a path of two components, with `limits`.
    ///
    /// # Errors
    /// [`Error::NoController`] if nothing here enforces a limit; [`Error::System`] otherwise.
    pub fn create(hierarchies: &Hierarchies, name: &Path, limits: &Limits) -> Result<Self> {
        let dir = hierarchies.unified().join(name);
        let mut made = Made::default();
        made.dir(&dir)?;
        made.dir(&dir.join("tree"))?;
        let v1 = limits::apply(hierarchies, name, limits, &mut made)?;
        let group = Self {
            init: open(&dir)?,
            tree: open(&dir.join("tree"))?,
            v1,
            dir,
        };
        made.keep();
        Ok(group)
    }

    /// Returns the directory in which the box's init is born.
    pub fn init(&self) -> BorrowedFd<'_> {
        self.init.as_fd()
    }

    /// Returns the directory in which all other processes are born.
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }

    /// Lets `init` and the children that it will have fall under the limits on v1 hierarchies.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn join_v1(&self, init: i32) -> Result<()> {
        self.v1
            .iter()
            .try_for_each(|dir| write(&dir.join("cgroup.procs"), &init.to_string()))
    }

    /// Lets all processes but init stand still, those being forked included.
    ///
    /// # Errors
    /// [`Error::TimedOut`], after which they run again; [`Error::System`].
    pub fn freeze(&self) -> Result<()> {
        write(&self.dir.join("tree/cgroup.freeze"), "1")?;
        let frozen = wait_for(FREEZE_LIMIT, || self.event("tree", "frozen 1"));
        match frozen {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.thaw()?;
                Err(Error::TimedOut {
                    what: "stand still",
                    seconds: FREEZE_LIMIT.as_secs(),
                })
            }
            Err(failure) => {
                self.thaw()?;
                Err(failure)
            }
        }
    }

    /// Lets frozen processes go on.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn thaw(&self) -> Result<()> {
        write(&self.dir.join("tree/cgroup.freeze"), "0")
    }

    /// Returns the processes of the box but init, as the host numbers them.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn processes(&self) -> Result<Vec<i32>> {
        let path = self.dir.join("tree/cgroup.procs");
        let text = fs::read_to_string(&path).map_err(|reason| cannot_read(&path, reason))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Ends every process, init included, and waits until all are gone.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::System`].
    pub fn kill(&self) -> Result<()> {
        kill_all(&self.dir)
    }

    /// Returns the paths of all its directories, the outermost of each hierarchy.
    pub fn dirs(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.dir.as_path()).chain(self.v1.iter().map(PathBuf::as_path))
    }

    fn event(&self, of: &str, line: &str) -> Result<bool> {
        has_event(&self.dir.join(of), line)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(failure) = self.kill() {
            log::error!("a cgroup is left behind: {failure}");
        }
        for dir in self.dirs() {
            if let Err(failure) = remove_tree(dir) {
                log::error!("a cgroup is left behind: {failure}");
            }
            // Stays as long as siblings are in it.
            if let Some(parent) = dir.parent() {
                drop(fs::remove_dir(parent));
            }
        }
    }
}

/// Ends whatever runs in the cgroups below `parent` and removes them: for what a daemon that was killed has
/// left. Returns how many were removed.
///
/// # Errors
/// [`Error::System`]; [`Error::TimedOut`].
pub fn clean(hierarchies: &Hierarchies, parent: &Path) -> Result<usize> {
    let unified = hierarchies.unified().join(parent);
    if unified.is_dir() {
        kill_all(&unified)?;
    }
    let mut removed = 0;
    for root in hierarchies.roots() {
        let dir = root.join(parent);
        if dir.is_dir() {
            removed += remove_tree(&dir)?;
        }
    }
    Ok(removed)
}

fn kill_all(dir: &Path) -> Result<()> {
    let kill = dir.join("cgroup.kill");
    match OpenOptions::new().write(true).open(&kill) {
        Ok(mut file) => file
            .write_all(b"1")
            .map_err(|reason| cannot_write(&kill, reason))?,
        // Gone, or a kernel before 5.14: there the end of init is the end of all.
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => {}
        Err(reason) => return Err(cannot_write(&kill, reason)),
    }
    if wait_for(END_LIMIT, || has_event(dir, "populated 0"))? {
        Ok(())
    } else {
        Err(Error::TimedOut {
            what: "end",
            seconds: END_LIMIT.as_secs(),
        })
    }
}

fn has_event(dir: &Path, line: &str) -> Result<bool> {
    let path = dir.join("cgroup.events");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.lines().any(|found| found == line)),
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(reason) => Err(cannot_read(&path, reason)),
    }
}

/// Removes `dir` and everything below, and returns how many directories that were.
fn remove_tree(dir: &Path) -> Result<usize> {
    let mut removed = 0;
    let Ok(entries) = fs::read_dir(dir) else {
        return Ok(0);
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            removed += remove_tree(&entry.path())?;
        }
    }
    let gone = wait_for(END_LIMIT, || match fs::remove_dir(dir) {
        Ok(()) => Ok(true),
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => Ok(true),
        // The last process is still being taken apart.
        Err(reason) if reason.raw_os_error() == Some(libc::EBUSY) => Ok(false),
        Err(reason) => Err(Error::system(
            format!("remove the cgroup '{}'", dir.display()),
            reason,
        )),
    })?;
    if gone {
        Ok(removed + 1)
    } else {
        Err(Error::TimedOut {
            what: "leave their cgroup",
            seconds: END_LIMIT.as_secs(),
        })
    }
}

/// Looks until `done` says yes; says no when `limit` has passed.
fn wait_for(limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    // The kernel wakes pollers of these files at most every 10 ms, so looking is faster.
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_micros(20);
    while !done()? {
        if Instant::now() > deadline {
            return Ok(false);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    Ok(true)
}

/// Directories made so far, removed again if the rest fails.
#[derive(Debug, Default)]
struct Made(Vec<PathBuf>);

impl Made {
    /// Makes `dir`, which must not exist, and its parents, which may.
    fn dir(&mut self, dir: &Path) -> Result<()> {
        let parent = dir.parent().unwrap_or(dir);
        let mut made = Ok(());
        for _ in 0..MAKE_TRIES {
            fs::create_dir_all(parent).map_err(|reason| cannot_make(parent, reason))?;
            made = fs::create_dir(dir);
            match &made {
                Err(reason) if reason.kind() == io::ErrorKind::NotFound => {}
                _ => break,
            }
        }
        made.map_err(|reason| cannot_make(dir, reason))?;
        self.0.push(dir.to_owned());
        Ok(())
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for dir in self.0.iter().rev() {
            drop(fs::remove_dir(dir));
        }
    }
}

fn open(dir: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(dir)
        .map_err(|reason| cannot_read(dir, reason))
}

fn write(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|reason| cannot_write(path, reason))
}

fn cannot_make(dir: &Path, reason: io::Error) -> Error {
    Error::system(format!("make the cgroup '{}'", dir.display()), reason)
}

fn cannot_read(path: &Path, reason: io::Error) -> Error {
    Error::system(format!("read '{}'", path.display()), reason)
}

fn cannot_write(path: &Path, reason: io::Error) -> Error {
    Error::system(format!("write '{}'", path.display()), reason)
}
