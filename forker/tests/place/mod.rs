//! A box that is just enough for a process tree: namespaces of its own on the host's files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

use branchpoint_forker::Result;
use branchpoint_forker::checkpoint::{self, Host, Taken};
use branchpoint_forker::fault::Faults;
use branchpoint_forker::memory::fill::Twins;
use branchpoint_forker::memory::store::InMemory;
use branchpoint_forker::resource::files::{Outside, Place, Source};
use branchpoint_forker::restore::{self, Parked, Seed};
use branchpoint_forker::snapshot::Snapshot;
use branchpoint_forker::sys::pidfd;
use branchpoint_forker::tree::Frozen;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::sys::stat::Mode;

fn init_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/place/init.c");
        let name = format!("init-{}", std::process::id());
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let compiled = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-static", "-o"])
            .arg(&program)
            .arg(source)
            .status()
            .unwrap();
        assert!(compiled.success());
        program
    })
}

/// A running box. Dropping it ends everything inside.
#[derive(Debug)]
pub(crate) struct Box {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Pid 1 inside, as seen here.
    pub(crate) init: i32,
    tracer: OwnedFd,
}

impl Box {
    pub(crate) fn new() -> Self {
        let own = i32::try_from(std::process::id()).unwrap();
        let tracer = pidfd::open(own).unwrap();
        let mut flags = FdFlag::from_bits_retain(fcntl(&tracer, FcntlArg::F_GETFD).unwrap());
        flags.remove(FdFlag::FD_CLOEXEC);
        fcntl(&tracer, FcntlArg::F_SETFD(flags)).unwrap();
        let mut child = Command::new("unshare")
            .args([
                "--pid",
                "--mount",
                "--ipc",
                "--net",
                "--fork",
                "--kill-child",
                "--",
            ])
            .arg(init_program())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        assert_eq!(line, "1\n");
        let below = children(i32::try_from(child.id()).unwrap());
        let &[init] = below.as_slice() else {
            panic!("{below:?}")
        };
        Self {
            child,
            orders,
            answers,
            init,
            tracer,
        }
    }

    fn order(&mut self, line: &str) -> i32 {
        writeln!(self.orders, "{line}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let inside: i32 = answer.trim().parse().unwrap();
        let here = children(self.init)
            .into_iter()
            .find(|pid| inner(*pid) == Some(inside));
        here.unwrap_or(0)
    }

    /// Runs a command of the shell, and returns its number here (0 if it has ended).
    pub(crate) fn run(&mut self, command: &str) -> i32 {
        self.order(command)
    }

    /// Takes a checkpoint of everything inside.
    pub(crate) fn checkpoint(&self, store: &InMemory, faults: Faults) -> Result<Taken> {
        let mut host = At::new(self.init);
        checkpoint::take(self.init, &mut host, store, faults)
    }

    /// Restores an image here.
    pub(crate) fn restore(
        &mut self,
        snapshot: &Arc<Snapshot>,
        store: &Arc<InMemory>,
        twins: Twins,
        faults: Faults,
    ) -> Result<Parked> {
        use std::os::fd::AsRawFd;
        let pid = self.order("seed");
        let seed = Seed {
            pid,
            tracer: self.tracer.as_raw_fd(),
        };
        let place = std::boxed::Box::new(At::new(self.init));
        let store: Arc<InMemory> = Arc::clone(store);
        restore::build(
            Arc::clone(snapshot),
            self.init,
            seed,
            place,
            store,
            twins,
            faults,
        )
    }

    /// The processes inside but pid 1, as seen here.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let (mut found, mut queue) = (Vec::new(), children(self.init));
        while let Some(pid) = queue.pop() {
            found.push(pid);
            queue.extend(children(pid));
        }
        found
    }
}

impl Drop for Box {
    fn drop(&mut self) {
        let inside = self.processes();
        let init = pidfd::open(self.init);
        if let Ok(init) = init {
            let _ = pidfd::signal(init.as_fd(), 9);
        }
        let _ = self.child.kill();
        self.child.wait().unwrap();
        // What they hold (a lock, a terminal's number) is free when they are gone, not when they are
        // killed.
        let gone = |pid: &i32| !Path::new(&format!("/proc/{pid}")).exists();
        for _ in 0..10_000 {
            if inside.iter().all(gone) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// The files of a test's box are the host's.
#[derive(Debug)]
struct At {
    init: i32,
    root: File,
    network: File,
}

impl At {
    fn new(init: i32) -> Self {
        Self {
            init,
            root: File::open(format!("/proc/{init}/root")).unwrap(),
            network: File::open(format!("/proc/{init}/ns/net")).unwrap(),
        }
    }
}

/// Files that no path leads to any more, as a view would keep them for its checkpoints.
static KEPT: Mutex<BTreeMap<u64, File>> = Mutex::new(BTreeMap::new());

/// Keeps a file that a process of the box has open.
fn keep(init: i32, ino: u64) -> io::Result<OwnedFd> {
    for pid in children(init) {
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let path = entry?.path();
            if fs::metadata(&path).is_ok_and(|found| found.ino() == ino && found.is_file()) {
                let file = File::options().read(true).write(true).open(path)?;
                KEPT.lock().unwrap().insert(ino, file.try_clone()?);
                return Ok(file.into());
            }
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

impl Source for At {
    fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn open_inode(&self, ino: u64, _: i32) -> io::Result<OwnedFd> {
        keep(self.init, ino)
    }

    fn outside(&self, _: Outside) -> Option<String> {
        None
    }

    fn master(&self, _: u32) -> Option<OwnedFd> {
        None
    }
}

impl Host for At {
    fn instant(&mut self, _: &Frozen) -> io::Result<()> {
        Ok(())
    }
}

impl Place for At {
    fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn network(&self) -> Option<BorrowedFd<'_>> {
        Some(self.network.as_fd())
    }

    fn open_inode(&self, ino: u64, flags: i32) -> io::Result<OwnedFd> {
        let kept = KEPT.lock().unwrap();
        let file = kept.get(&ino).ok_or(io::ErrorKind::NotFound)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlag::from_bits_retain(flags & !libc::O_NOFOLLOW);
        Ok(open(path.as_str(), flags, Mode::empty())?)
    }

    fn pid(&self, _: i32) -> Option<i32> {
        None
    }

    fn outside(&self, _: &str, _: Outside) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The children of a process.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace()
        .map(|word| word.parse().unwrap())
        .collect()
}

/// A process' number inside its box.
pub(crate) fn inner(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("NSpid:"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}
