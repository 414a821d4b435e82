//! Tries to lock a file as another process would, and prints `free` or `held`.

use std::fs::OpenOptions;
use std::os::fd::AsFd;

use branchpoint_tests::sys::try_lock;
use nix::fcntl::{Flock, FlockArg};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, kind, path] = arguments.as_slice() else {
        anyhow::bail!("usage: lockprobe KIND FILE")
    };
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let free = match kind.as_str() {
        "flock" => Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok(),
        "posix" => try_lock(file.as_fd(), libc::F_SETLK)?,
        "ofd" => try_lock(file.as_fd(), libc::F_OFD_SETLK)?,
        other => anyhow::bail!("there is no lock of kind '{other}'"),
    };
    println!("{}", if free { "free" } else { "held" });
    Ok(())
}
