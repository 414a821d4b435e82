//! Each kind: a guest with known descriptors is captured from outside, ended, and its descriptors are
//! rebuilt here and looked at.

mod anonymous;
mod basic;
mod pipes;
mod shared;
mod sys;
mod tcp;
mod terminals;
mod unix;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::Child;
use std::sync::Mutex;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};

use super::{Files, FrozenProcess, Outside, Place, Rebuilt, Source, capture, rebuild};
use crate::report::{Report, Verdict};

/// A process with known descriptors; it is ended when this is dropped.
pub(super) struct Guest {
    child: Child,
}

impl Guest {
    pub(super) fn new(files: &[(RawFd, &dyn AsFd)]) -> Self {
        Self::start(files, None)
    }

    pub(super) fn start(files: &[(RawFd, &dyn AsFd)], terminal: Option<RawFd>) -> Self {
        let files = files
            .iter()
            .map(|(number, file)| (*number, file.as_fd().as_raw_fd()))
            .collect();
        let guest = Self {
            child: sys::spawn(files, terminal),
        };
        // The exec has closed what it must when the program sleeps.
        let call = format!("/proc/{}/syscall", guest.pid());
        until("the guest sleeps", || {
            let call = std::fs::read_to_string(&call).unwrap_or_default();
            call.starts_with(&format!("{} ", libc::SYS_clock_nanosleep))
        });
        guest
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(super) fn capture(&self, here: &Here) -> (Files, Report) {
        let frozen = FrozenProcess {
            pid: self.pid(),
            inside: self.pid(),
            pidfd: super::sys::pidfd_open(self.pid(), 0).unwrap(),
        };
        capture(&[frozen], here).unwrap()
    }

    /// Captures, expects nothing to be refused, and ends the guest.
    pub(super) fn taken(self, here: &Here) -> Files {
        let (files, report) = self.capture(here);
        let refused = |line: &crate::report::Line| line.verdict == Verdict::Refused;
        assert!(!report.lines.iter().any(refused), "{report:?}");
        files
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This machine as source and place at once.
pub(super) struct Here {
    root: OwnedFd,
    /// A network namespace to rebuild sockets in.
    pub(super) network: Option<OwnedFd>,
    /// Files that no path leads to.
    hidden: BTreeMap<u64, OwnedFd>,
    /// What is held outside, by its name.
    outside: Mutex<BTreeMap<String, OwnedFd>>,
}

impl Here {
    pub(super) fn new() -> Self {
        Self {
            root: open("/", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).unwrap(),
            network: None,
            hidden: BTreeMap::new(),
            outside: Mutex::default(),
        }
    }

    pub(super) fn hide(&mut self, file: &impl AsFd) {
        let file = file.as_fd().try_clone_to_owned().unwrap();
        self.hidden.insert(fstat(&file).unwrap().st_ino, file);
    }

    pub(super) fn name(&self, what: Outside, file: OwnedFd) {
        self.outside
            .lock()
            .unwrap()
            .insert(format!("{what:?}"), file);
    }

    fn reopen(&self, ino: u64, flags: i32) -> io::Result<OwnedFd> {
        let file = self.hidden.get(&ino).ok_or(io::ErrorKind::NotFound)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlag::from_bits_retain(flags & !libc::O_NOFOLLOW | libc::O_CLOEXEC);
        Ok(open(path.as_str(), flags, Mode::empty())?)
    }
}

impl Source for Here {
    fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn open_inode(&self, ino: u64, flags: i32) -> io::Result<OwnedFd> {
        self.reopen(ino, flags)
    }

    fn outside(&self, what: Outside) -> Option<String> {
        let name = format!("{what:?}");
        self.outside
            .lock()
            .unwrap()
            .contains_key(&name)
            .then_some(name)
    }

    fn master(&self, index: u32) -> Option<OwnedFd> {
        let name = format!("{:?}", Outside::Terminal(index));
        self.outside.lock().unwrap().get(&name)?.try_clone().ok()
    }
}

impl Place for Here {
    fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn network(&self) -> Option<BorrowedFd<'_>> {
        self.network.as_ref().map(AsFd::as_fd)
    }

    fn open_inode(&self, ino: u64, flags: i32) -> io::Result<OwnedFd> {
        self.reopen(ino, flags)
    }

    fn pid(&self, inside: i32) -> Option<i32> {
        Some(inside)
    }

    fn outside(&self, name: &str, _what: Outside) -> io::Result<OwnedFd> {
        let mut outside = self.outside.lock().unwrap();
        outside
            .remove(name)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// The rebuilt descriptions under the numbers that they had in the only table.
pub(super) fn rebuilt(files: &Files, here: &Here) -> (BTreeMap<i32, OwnedFd>, Rebuilt) {
    let rebuilt = rebuild(files, here).unwrap();
    assert_eq!(files.tables.len(), 1);
    let by_number = files.tables[0]
        .slots
        .iter()
        .map(|slot| {
            let file = rebuilt.files[slot.description].try_clone().unwrap();
            (slot.fd, file)
        })
        .collect();
    (by_number, rebuilt)
}

/// Which description a number has.
pub(super) fn description(files: &Files, fd: i32) -> &super::Description {
    let slot = files.tables[0]
        .slots
        .iter()
        .find(|slot| slot.fd == fd)
        .unwrap();
    &files.descriptions[slot.description]
}

/// Waits until a condition holds.
pub(super) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !condition() {
        assert!(begin.elapsed().as_secs() < 60, "never came true: {what}");
        std::thread::yield_now();
    }
}

/// Lets one test of this folder run at a time: a guest that is just being started has, for a moment,
/// everything open that any other test holds, and what was closed there would not be.
pub(super) fn turn() -> impl Drop {
    static TURN: parking_lot::Mutex<()> = parking_lot::const_mutex(());
    TURN.lock()
}
