//! A store of its own for each test, and the program run on it with a limit of time.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// No command here takes longer unless it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// What a command printed.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Asserts that it worked.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Asserts that it ended with `code` and said `words`, and not as a bug would.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, words: &str) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.err.contains(words), "'{words}' is not in {self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        self
    }

    /// Asserts that it was refused with exactly these lines on standard error.
    #[track_caller]
    pub(crate) fn says(self, code: i32, lines: &[&str]) -> Self {
        assert_eq!(self.err.lines().collect::<Vec<_>>(), lines, "{self:?}");
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Returns the only object printed.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the objects printed, one a line.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// A directory with a store in it.
#[derive(Debug)]
pub(crate) struct Bench {
    root: tempfile::TempDir,
    name: OsString,
}

impl Bench {
    /// Makes a directory with an empty store.
    pub(crate) fn new() -> Self {
        let bench = Self::without_store();
        bench.run(["init"]).ok();
        bench
    }

    /// Makes a directory without a store.
    pub(crate) fn without_store() -> Self {
        Self::named("store")
    }

    /// Makes a directory without a store, which would have another name.
    pub(crate) fn named(name: impl Into<OsString>) -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            name: name.into(),
        }
    }

    /// Returns what `path` is below the directory, as messages show it.
    pub(crate) fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Returns a path beside the store.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(name)
    }

    /// Makes a directory beside the store.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join(&self.name)
    }

    /// Returns the program, to be run on the store.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = bare();
        command
            .env("BRANCHPOINT_STORE", self.store())
            .args(args)
            .current_dir(self.root.path());
        command
    }

    /// Runs the program on the store.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Ran {
        finish(self.command(args))
    }

    /// Runs the program in `dir`, without telling it the store.
    pub(crate) fn run_in<A: AsRef<OsStr>>(
        &self,
        dir: &Path,
        args: impl IntoIterator<Item = A>,
    ) -> Ran {
        let mut command = bare();
        command
            .args(args)
            .current_dir(dir)
            .env("HOME", self.root.path());
        finish(command)
    }

    /// Kills the daemon and waits until its lock on the store is gone.
    pub(crate) fn kill_daemon(&self) {
        let pid = self.daemon_pid();
        let process = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
        nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).unwrap();
        self.wait_until_gone(pid);
    }

    /// Waits for the end of a daemon.
    pub(crate) fn wait_until_gone(&self, pid: u64) {
        let deadline = Instant::now() + LIMIT;
        // A zombie of ours would keep its directory, but the daemon is nobody's child any more.
        while Path::new(&format!("/proc/{pid}/exe")).exists() {
            assert!(Instant::now() < deadline, "{pid} does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the daemon's pid.
    pub(crate) fn daemon_pid(&self) -> u64 {
        self.run(["stats", "--json"]).ok().json()["daemon_pid"]
            .as_u64()
            .unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.store().exists() {
            let ran = self.run(["stop", "--force"]);
            if ran.code != 0 {
                eprintln!("stop: {ran:?}");
            }
        }
    }
}

fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_branchpoint"));
    command
        .env_remove("BRANCHPOINT_STORE")
        .env_remove("XDG_DATA_HOME")
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end, or kills it and fails.
pub(crate) fn finish(mut command: Command) -> Ran {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = collect(child.stdout.take().unwrap());
    let err = collect(child.stderr.take().unwrap());
    let code = wait(&mut child, &command);
    Ran {
        code,
        out: out.join().unwrap(),
        err: err.join().unwrap(),
    }
}

fn wait(child: &mut Child, command: &Command) -> i32 {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} hangs");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Says whether mounting is possible, and loudly if not.
pub(crate) fn can_mount() -> bool {
    let can = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    if !can {
        println!("SKIP mounts: /dev/fuse cannot be opened");
    }
    can
}
