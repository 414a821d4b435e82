//! The `branchpoint` command as a user has it: the program of the build directory, with its daemon.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::guard::{Guard, Leftover};

/// Returns the program, which is beside the test programs. Says so loudly where it was not built.
pub fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let found = test
        .ancestors()
        .skip(1)
        .take(3)
        .map(|dir| dir.join("branchpoint"))
        .find(|program| program.is_file());
    if found.is_none() {
        println!("SKIP daemon: the program 'branchpoint' is not built; build the workspace first");
        eprintln!("SKIP daemon: the program 'branchpoint' is not built; build the workspace first");
    }
    found
}

/// A store served by a daemon in the foreground, which is killed at the end.
#[derive(Debug)]
pub struct Daemon {
    program: PathBuf,
    store: PathBuf,
    child: Option<(Child, Guard)>,
}

impl Daemon {
    /// Makes a store in `store` and starts its daemon.
    pub fn start(program: &Path, store: &Path) -> Self {
        let mut daemon = Self {
            program: program.into(),
            store: store.into(),
            child: None,
        };
        daemon.run(&["init", store.to_str().unwrap()]);
        daemon.serve();
        daemon
    }

    /// Starts the daemon again.
    pub fn serve(&mut self) {
        let mut command = Command::new(&self.program);
        command.arg("--store").arg(&self.store).arg("serve");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let guard = Guard::new(Leftover::Process(i32::try_from(child.id()).unwrap()));
        let pid = child.id().to_string();
        self.child = Some((child, guard));
        let started = Instant::now();
        // Not by a command: one that comes before this daemon has the store starts another one.
        let answers = || {
            let holder = std::fs::read_to_string(self.store.join("lock")).unwrap_or_default();
            let socket = self.store.join("daemon.sock");
            holder == pid && std::os::unix::net::UnixStream::connect(socket).is_ok()
        };
        while !answers() {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "the daemon does not answer"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a command on the store.
    pub fn output(&self, arguments: &[&str]) -> Output {
        Command::new(&self.program)
            .arg("--store")
            .arg(&self.store)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Runs a command, which must succeed, and returns what it printed.
    pub fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Kills the daemon as `kill -9` does.
    pub fn kill(&mut self) {
        let (mut child, guard) = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
        guard.release();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some((mut child, guard)) = self.child.take() {
            drop(self.output(&["stop"]));
            std::thread::sleep(Duration::from_millis(200));
            drop(child.kill());
            drop(child.wait());
            guard.release();
        }
    }
}
