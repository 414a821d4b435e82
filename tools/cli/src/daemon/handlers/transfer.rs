//! Getting files out of a store and into it, other than by a mount.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use branchpoint_fs::{apply, archive};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::daemon::Daemon;
use crate::daemon::find::Clock;
use crate::daemon::responder::Responder;
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::Place;
use crate::protocol::path::WirePath;
use crate::protocol::reply::Outcome;

use super::fields;

pub(super) fn apply(
    daemon: &Daemon,
    source: &str,
    to: Option<&WirePath>,
    dry_run: bool,
    out: &mut Responder<'_>,
) -> Result<Outcome> {
    if to.is_none() && daemon.store.base_dir().is_none() {
        return Err(
            Failure::new(FailureKind::Usage, "this store has no base to apply to")
                .hint("name a directory with --to DIR"),
        );
    }
    let clock = Clock::start();
    let source = daemon.flushed(source)?;
    let to = to.map(|to| to.0.as_path());
    let outcome = apply::apply(&daemon.store, source.layer(), to, dry_run, &mut |step| {
        out.progress(&step)
    })?;
    let mut counts = fields(&outcome)?;
    // Sizes end with their unit.
    if let Some(bytes) = counts.remove("bytes") {
        counts.insert("written_bytes".to_owned(), bytes);
    }
    Ok(Outcome {
        id: None,
        elapsed_us: clock.elapsed_us(),
        counts,
    })
}

pub(super) fn export(daemon: &Daemon, source: &Place, out: &mut Responder<'_>) -> Result<Outcome> {
    let clock = Clock::start();
    let file = Waiting(out.take_file()?);
    let source = daemon.flushed(&daemon.revision_at(source)?)?;
    let outcome = archive::export(&daemon.store, source.layer(), file, &mut |step| {
        out.progress(&step)
    })?;
    Ok(Outcome {
        id: None,
        elapsed_us: clock.elapsed_us(),
        counts: fields(&outcome)?,
    })
}

pub(super) fn import(daemon: &Daemon, branch: &Place, out: &mut Responder<'_>) -> Result<Outcome> {
    let clock = Clock::start();
    let file = Waiting(out.take_file()?);
    let branch = daemon.branch_at(branch)?;
    daemon.locks.with(&[&branch], || {
        let there = "unpack the archive there with tar, or end it first: branchpoint box stop BOX";
        super::boxes::require_no_box(daemon, &branch, there)?;
        if let Some(entry) = daemon.mounts.of_branch(&branch) {
            let dir = entry.dir().display();
            return Err(Failure::new(
                FailureKind::Busy,
                format!("branch '{branch}' is mounted at '{dir}'"),
            )
            .hint("unpack the archive there with tar, or unmount the branch first"));
        }
        let outcome = archive::import(&daemon.store, &branch, file, &mut |step| {
            out.progress(&step)
        })?;
        Ok(Outcome {
            id: Some(branch.clone()),
            elapsed_us: clock.elapsed_us(),
            counts: fields(&outcome)?,
        })
    })
}

/// A client's file. The client may share it with programs that made it non-blocking; then this
/// waits itself.
#[derive(Debug)]
struct Waiting<F>(F);

impl<F: AsFd> Waiting<F> {
    fn retry<R>(
        &mut self,
        events: PollFlags,
        mut attempt: impl FnMut(&mut F) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            match attempt(&mut self.0) {
                Err(reason) if reason.kind() == io::ErrorKind::WouldBlock => {
                    let mut watched = [PollFd::new(self.0.as_fd(), events)];
                    match poll(&mut watched, PollTimeout::NONE) {
                        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                result => return result,
            }
        }
    }
}

impl<F: Read + AsFd> Read for Waiting<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.retry(PollFlags::POLLIN, |file| file.read(buffer))
    }
}

impl<F: Write + AsFd> Write for Waiting<F> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.retry(PollFlags::POLLOUT, |file| file.write(buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.retry(PollFlags::POLLOUT, Write::flush)
    }
}
