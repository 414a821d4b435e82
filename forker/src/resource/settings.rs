//! What a process has set about itself that no other module is about.

use std::fs;
use std::os::unix::ffi::OsStringExt;

use serde::{Deserialize, Serialize};

use super::{may, must, signed};
use crate::error::{Error, Result};
use crate::memory::calls::Calls;
use crate::proc::limits;
use crate::remote::Memory;
use crate::sys::task;

/// The setting that all processes have who asked for none.
const PERSONALITY_UNKNOWN: u64 = 0xffff_ffff;

/// Settings of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// `PR_GET_DUMPABLE`.
    dumpable: u64,
    /// `PR_GET_THP_DISABLE`.
    no_huge_pages: u64,
    /// `PR_GET_CHILD_SUBREAPER`.
    subreaper: bool,
    /// Execution domain.
    personality: u64,
    /// The end of the heap, to the byte.
    pub(crate) heap_end: u64,
    /// Limits: resource, soft, hard.
    limits: Vec<(u32, u64, u64)>,
    /// `oom_score_adj`.
    oom_score: i32,
    /// Mask of new files' modes.
    pub(crate) umask: u32,
    /// Working directory.
    pub(crate) directory: Vec<u8>,
    /// Root directory, as the tree's pid 1 sees it.
    pub(crate) root: Vec<u8>,
}

/// Where the answers will be.
#[derive(Debug)]
pub(crate) struct Asked {
    first: usize,
    subreaper: u64,
}

impl Settings {
    /// Adds the questions.
    pub(crate) fn ask(calls: &mut Calls) -> Asked {
        let prctl = |calls: &mut Calls, option: i32, argument: u64| {
            may(
                calls,
                "tell its settings",
                libc::SYS_prctl,
                [signed(option), argument, 0, 0, 0],
            )
        };
        let first = prctl(calls, libc::PR_GET_DUMPABLE, 0);
        prctl(calls, libc::PR_GET_THP_DISABLE, 0);
        let subreaper = calls.place(&[0; 8]);
        prctl(calls, libc::PR_GET_CHILD_SUBREAPER, subreaper);
        may(
            calls,
            "tell its personality",
            libc::SYS_personality,
            [PERSONALITY_UNKNOWN],
        );
        may(calls, "tell the end of its heap", libc::SYS_brk, [0]);
        Asked { first, subreaper }
    }

    /// Reads the answers, and what `/proc` knows.
    pub(crate) fn read(
        pid: i32,
        umask: Option<u32>,
        memory: &Memory,
        asked: &Asked,
        results: &[u64],
    ) -> Result<Self> {
        let result = |offset: usize| results.get(asked.first + offset).copied().unwrap_or(0);
        let mut subreaper = [0; 4];
        memory.read(asked.subreaper, &mut subreaper)?;
        let text = |name: &str| {
            fs::read(format!("/proc/{pid}/{name}"))
                .map_err(|error| Error::io(format!("reading {name} of process {pid}"), error))
        };
        let link = |name: &str| {
            fs::read_link(format!("/proc/{pid}/{name}"))
                .map(|path| path.into_os_string().into_vec())
                .map_err(|error| Error::io(format!("reading {name} of process {pid}"), error))
        };
        let limits = limits::parse(&text("limits")?)?;
        let oom_score = String::from_utf8_lossy(&text("oom_score_adj")?)
            .trim()
            .parse()
            .unwrap_or(0);
        Ok(Self {
            dumpable: result(0),
            no_huge_pages: result(1),
            subreaper: i32::from_ne_bytes(subreaper) != 0,
            personality: result(3),
            heap_end: result(4),
            limits: limits
                .iter()
                .map(|limit| (limit.resource, limit.soft, limit.hard))
                .collect(),
            oom_score,
            umask: umask.unwrap_or(0o022),
            directory: link("cwd")?,
            root: link("root")?,
        })
    }

    /// Adds the calls that bring back what must come before credentials.
    pub(crate) fn tell(&self, calls: &mut Calls) {
        must(
            calls,
            "set its personality",
            libc::SYS_personality,
            [self.personality],
        );
        must(calls, "set its umask", libc::SYS_umask, [self.umask.into()]);
        let path = |path: &[u8]| {
            let mut path = path.to_vec();
            path.push(0);
            path
        };
        if self.root != b"/" {
            let root = calls.place(&path(&self.root));
            must(calls, "enter its root directory", libc::SYS_chroot, [root]);
        }
        let below = match self.directory.strip_prefix(self.root.as_slice()) {
            Some(rest) if self.root != b"/" => [b"/", rest].concat(),
            _ => self.directory.clone(),
        };
        let directory = calls.place(&path(&below));
        must(
            calls,
            "enter its working directory",
            libc::SYS_chdir,
            [directory],
        );
        let mut prctl = |option: i32, value: u64| {
            must(
                calls,
                "take its settings",
                libc::SYS_prctl,
                [signed(option), value, 0, 0, 0],
            );
        };
        if self.no_huge_pages != 0 {
            prctl(libc::PR_SET_THP_DISABLE, 1);
        }
        if self.subreaper {
            prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        }
    }

    /// Adds the call that must come behind credentials, which clear it.
    pub(crate) fn tell_last(&self, calls: &mut Calls) {
        // 2 is what only the kernel itself sets.
        if self.dumpable < 2 {
            let arguments = [signed(libc::PR_SET_DUMPABLE), self.dumpable, 0, 0, 0];
            must(calls, "take its settings", libc::SYS_prctl, arguments);
        }
    }

    /// Sets from outside what can be. Comes before credentials: only a privileged tracer could after.
    pub(crate) fn set(&self, pid: i32) -> Result<()> {
        for &(resource, soft, hard) in &self.limits {
            task::set_limit(pid, resource, soft, hard)
                .map_err(|errno| Error::trace(pid, "setting limits", errno))?;
        }
        let path = format!("/proc/{pid}/oom_score_adj");
        let wanted = self.oom_score.to_string();
        // To write even the same value wants a privilege, if it was ever lower.
        if fs::read_to_string(&path).is_ok_and(|found| found.trim() == wanted) {
            return Ok(());
        }
        fs::write(path, wanted)
            .map_err(|error| Error::io(format!("setting oom_score_adj of process {pid}"), error))
    }
}
