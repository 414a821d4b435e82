//! Mounting with the help of `fusermount3`, for users who may not mount themselves.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::fuse::wire::sys;

/// Lets the helper mount at `dir`; returns the session's device.
pub(in crate::fuse) fn attach(dir: &Path, source: &str, read_only: bool) -> io::Result<File> {
    let (ours, theirs) = UnixStream::pair()?;
    let access = if read_only { "ro" } else { "rw" };
    // The source has no comma: it cannot add options.
    let options = format!("{access},default_permissions,fsname={source},subtype=branchpoint");
    let mut command = Command::new("fusermount3");
    command
        .args(["-o", &options, "--"])
        .arg(dir)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    sys::pass_on(&mut command, &theirs);
    let mut helper = command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("run fusermount3: {error}")))?;
    drop(theirs);
    let device = sys::receive_descriptor(&ours);
    drop(ours);
    let mut said = String::new();
    if let Some(mut stderr) = helper.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    helper.wait()?;
    match device? {
        Some(device) => Ok(device.into()),
        None => Err(io::Error::other(said.trim().to_owned())),
    }
}
