//! A box that is just enough for a process tree: namespaces of its own on the host's files.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
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
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
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
    /// Files that no path leads to any more, as the view of a real box would keep them.
    pub(crate) unlinked: Unlinked,
}

/// Files without a path, by inode number. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unlinked(Arc<Mutex<KeptFiles>>);

/// Each file with the content that it had.
type KeptFiles = HashMap<u64, (File, Vec<u8>)>;

impl Unlinked {
    /// Keeps the file that a process below `init` has open or mapped, if there is one.
    fn find(&self, init: i32, ino: u64) -> io::Result<()> {
        for pid in below(init) {
            for kind in ["fd", "map_files"] {
                let Ok(entries) = fs::read_dir(format!("/proc/{pid}/{kind}")) else {
                    continue;
                };
                for path in entries.flatten().map(|entry| entry.path()) {
                    let found = fs::metadata(&path);
                    if found.is_ok_and(|found| found.ino() == ino && found.is_file()) {
                        let file = File::options().read(true).write(true).open(path)?;
                        let mut content = vec![0; usize::try_from(file.metadata()?.len()).unwrap()];
                        file.read_exact_at(&mut content, 0)?;
                        self.0.lock().unwrap().insert(ino, (file, content));
                        return Ok(());
                    }
                }
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn open(&self, ino: u64, flags: i32) -> io::Result<OwnedFd> {
        let kept = self.0.lock().unwrap();
        let (file, _) = kept.get(&ino).ok_or(io::ErrorKind::NotFound)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // What stands there is a link, and is to be followed.
        let flags = (OFlag::from_bits_retain(flags) - OFlag::O_NOFOLLOW) | OFlag::O_CLOEXEC;
        Ok(nix::fcntl::open(path.as_str(), flags, Mode::empty())?)
    }

    /// Puts the content back that each file had.
    pub(crate) fn reset(&self) {
        for (file, content) in self.0.lock().unwrap().values() {
            file.set_len(content.len() as u64).unwrap();
            file.write_all_at(content, 0).unwrap();
        }
    }
}

/// The processes below one, as seen here.
fn below(init: i32) -> Vec<i32> {
    let (mut found, mut queue) = (Vec::new(), children(init));
    while let Some(pid) = queue.pop() {
        found.push(pid);
        queue.extend(children(pid));
    }
    found
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
            unlinked: Unlinked::default(),
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
        let mut host = At::new(self.init, &self.unlinked);
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
        let pid = self.order("seed");
        let seed = Seed {
            pid,
            tracer: self.tracer.as_raw_fd(),
        };
        let place = std::boxed::Box::new(At::new(self.init, &self.unlinked));
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
        below(self.init)
    }
}

impl Drop for Box {
    fn drop(&mut self) {
        let init = pidfd::open(self.init);
        if let Ok(init) = init {
            let _ = pidfd::signal(init.as_fd(), 9);
        }
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

/// The files of a test's box are the host's.
#[derive(Debug)]
struct At {
    init: i32,
    root: File,
    network: File,
    unlinked: Unlinked,
}

impl At {
    fn new(init: i32, unlinked: &Unlinked) -> Self {
        Self {
            init,
            unlinked: unlinked.clone(),
            root: File::open(format!("/proc/{init}/root")).unwrap(),
            network: File::open(format!("/proc/{init}/ns/net")).unwrap(),
        }
    }
}

impl Source for At {
    fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn open_inode(&self, ino: u64, flags: i32) -> io::Result<OwnedFd> {
        self.unlinked.find(self.init, ino)?;
        self.unlinked.open(ino, flags)
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
        // A mapping of a file without a path is asked for at restore only.
        for pid in below(self.init) {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
            let deleted = maps.lines().filter(|line| line.ends_with(" (deleted)"));
            for line in deleted.filter(|line| !line.contains(" 00:01 ")) {
                let ino = line
                    .split_ascii_whitespace()
                    .nth(4)
                    .and_then(|ino| ino.parse().ok());
                self.unlinked.find(self.init, ino.unwrap_or(0))?;
            }
        }
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
        self.unlinked.open(ino, flags)
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
