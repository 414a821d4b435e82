//! A box for each test, with limits of time and nothing left behind.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use branchpoint_boxes::Command;
use branchpoint_boxes::cgroup::{Hierarchies, Limits};
use branchpoint_boxes::error::Result;
use branchpoint_boxes::instance::{Blueprint, Instance, Launcher};
use branchpoint_boxes::session::frame::{Decoder, Frame};
use branchpoint_boxes::session::{Kind, Session, Sessions};

/// Nothing here takes longer unless it hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

static NEXT: AtomicU32 = AtomicU32::new(1);

/// Says whether boxes are possible, and loudly if not.
pub(crate) fn can_box() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let root = status.lines().any(|line| line.starts_with("Uid:\t0"));
    let can = root && Hierarchies::find().is_ok();
    if !can {
        println!("SKIP boxes: they need the superuser and a cgroup v2 hierarchy");
    }
    can
}

/// A root directory: what is written over this machine's files goes to memory.
#[derive(Debug)]
pub(crate) struct Root {
    dir: tempfile::TempDir,
}

impl Root {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Self { dir };
        let top = root.dir.path().to_owned();
        run(Program::new("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(&top));
        for name in ["upper", "work", "root"] {
            fs::create_dir(top.join(name)).unwrap();
        }
        let options = format!(
            "lowerdir=/,upperdir={0}/upper,workdir={0}/work",
            top.display()
        );
        run(Program::new("mount")
            .args(["-t", "overlay", "none", "-o", &options])
            .arg(root.path()));
        root
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("root")
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for dir in [self.path(), self.dir.path().to_owned()] {
            drop(Program::new("umount").arg("-l").arg(dir).status());
        }
    }
}

fn run(program: &mut Program) {
    let status = program.status().unwrap();
    assert!(status.success(), "{program:?}: {status}");
}

/// A running box.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) instance: Instance,
    pub(crate) root: Root,
}

pub(crate) fn launcher() -> Launcher {
    let program = Path::new(env!("CARGO_BIN_EXE_branchpoint-box-init"));
    Launcher::new(program, &["box-init"]).unwrap()
}

/// Returns a name for cgroups that nobody else uses.
pub(crate) fn cgroup_name() -> PathBuf {
    let number = NEXT.fetch_add(1, Ordering::SeqCst);
    PathBuf::from(cgroup_parent()).join(format!("box-{number}"))
}

pub(crate) fn cgroup_parent() -> String {
    format!("branchpoint-test-{}", std::process::id())
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default()).unwrap()
    }

    pub(crate) fn with(limits: Limits) -> Result<Self> {
        let root = Root::new();
        let sessions = Arc::new(Sessions::default());
        let instance = build(&root, &sessions, limits)?;
        Ok(Self {
            sessions,
            instance,
            root,
        })
    }

    /// Starts a shell with pipes.
    pub(crate) fn shell(&self, script: &str) -> Arc<Session> {
        self.open(&["sh", "-c", script], Kind::Pipes { input: false })
            .unwrap()
    }

    pub(crate) fn open(&self, argv: &[&str], kind: Kind) -> Result<Arc<Session>> {
        self.sessions.open(&self.instance, &command(argv), kind)
    }

    /// Runs a shell script to its end and returns its status and what it said.
    pub(crate) fn sh(&self, script: &str) -> (u8, String) {
        finish(&self.shell(script))
    }
}

/// Builds an instance on `root` that tells `sessions` what happens.
pub(crate) fn build(root: &Root, sessions: &Arc<Sessions>, limits: Limits) -> Result<Instance> {
    let dir = fs::File::open(root.path()).unwrap();
    let blueprint = Blueprint {
        root: dir.as_fd(),
        hostname: "crate",
        cgroup: &cgroup_name(),
        limits,
    };
    let sessions = Arc::clone(sessions);
    Instance::build(&launcher(), &blueprint, move |id, event| {
        sessions.note(id, event);
    })
}

pub(crate) fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
        env: vec![
            b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_vec(),
            b"HOME=/root".to_vec(),
            b"TERM=dumb".to_vec(),
            b"LC_ALL=C.UTF-8".to_vec(),
        ],
        cwd: b"/".to_vec(),
        user: None,
    }
}

pub(crate) fn finish(session: &Session) -> (u8, String) {
    let status = session
        .wait(LIMIT)
        .unwrap_or_else(|| panic!("{:?} hangs", session.snapshot()));
    let text = String::from_utf8_lossy(&session.kept_output()).into_owned();
    (status, text)
}

/// Waits until `done` says yes.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Somebody attached to a session.
pub(crate) struct Line {
    pub(crate) stream: UnixStream,
    decoder: Decoder,
    pub(crate) text: String,
    server: Option<thread::JoinHandle<branchpoint_boxes::session::Left>>,
}

impl Line {
    pub(crate) fn attach(session: &Arc<Session>, replay: bool) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(LIMIT)).unwrap();
        let session = Arc::clone(session);
        let server = thread::spawn(move || session.attach(theirs, replay).unwrap());
        Self {
            stream: ours,
            decoder: Decoder::default(),
            text: String::new(),
            server: Some(server),
        }
    }

    pub(crate) fn say(&mut self, frame: &Frame) {
        frame.write(&mut self.stream).unwrap();
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.say(&Frame::Input(text.as_bytes().to_vec()));
    }

    /// Returns the next frame, or nothing when the line has ended.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        use std::io::Read as _;
        loop {
            if let Some(frame) = self.decoder.take().unwrap() {
                if let Frame::Output(bytes) | Frame::Errors(bytes) = &frame {
                    self.text.push_str(&String::from_utf8_lossy(bytes));
                }
                return Some(frame);
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.decoder.push(&chunk[..count]),
                Err(reason) if reason.kind() == std::io::ErrorKind::Interrupted => {}
                Err(reason) => panic!("{reason}; so far: {:?}", self.text),
            }
        }
    }

    /// Reads on until `text` has come, and forgets what came before its end.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) {
        loop {
            if let Some(at) = self.text.find(text) {
                self.text.drain(..at + text.len());
                return;
            }
            if self.next().is_none() {
                panic!("'{text}' does not come: {:?}", self.text);
            }
        }
    }

    /// Reads to the exit and returns the status.
    #[track_caller]
    pub(crate) fn exit(&mut self) -> u8 {
        loop {
            match self.next() {
                Some(Frame::Exit(status)) => return status,
                Some(_) => {}
                None => panic!("no exit: {:?}", self.text),
            }
        }
    }

    /// Hangs up and returns why the other side thinks that it ended.
    pub(crate) fn close(mut self) -> branchpoint_boxes::session::Left {
        drop(self.stream.shutdown(std::net::Shutdown::Both));
        self.server.take().unwrap().join().unwrap()
    }
}

/// What this process and the machine hold: to be the same before and after.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Held {
    descriptors: usize,
    children: usize,
    mounts: usize,
    cgroups: BTreeMap<String, usize>,
}

pub(crate) fn held() -> Held {
    let count = |path: &str| fs::read_dir(path).unwrap().count();
    let mut cgroups = BTreeMap::new();
    let roots = [
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup",
    ];
    for root in roots {
        let dir = Path::new(root).join(cgroup_parent());
        if let Ok(entries) = fs::read_dir(&dir) {
            let dirs = entries.flatten().filter(|entry| entry.path().is_dir());
            cgroups.insert(dir.display().to_string(), dirs.count());
        }
    }
    let children = fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .map(|task| {
            fs::read_to_string(task.path().join("children"))
                .unwrap_or_default()
                .split_whitespace()
                .count()
        })
        .sum();
    Held {
        descriptors: count("/proc/self/fd"),
        children,
        mounts: fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .count(),
        cgroups,
    }
}
