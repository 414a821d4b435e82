//! The children of init: commands, and the seed from which a process tree is rebuilt.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::prctl::set_no_new_privs;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use nix::unistd::{
    Gid, Uid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, pause, pipe2, setgroups, setresgid,
    setresuid, setsid,
};

use super::{Init, users};
use crate::confine;
use crate::sys;
use crate::sys::clone::Child;
use crate::wire::Command;

/// The descriptor that the daemon gives along is found here by the seed.
pub const SEED_FD: RawFd = 1000;

/// The most terminals that are made to reach a number.
const TERMINALS_MAX: u32 = 4096;

/// Where programs are looked for if the environment does not say.
const PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a command was not started.
#[derive(Debug)]
pub(super) enum Refused {
    /// It cannot be executed.
    Exec(i32),
    /// There is no such user.
    User,
    /// Anything else.
    Other(io::Error),
}

impl From<io::Error> for Refused {
    fn from(reason: io::Error) -> Self {
        Self::Other(reason)
    }
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self::Other(errno.into())
    }
}

/// The standard descriptors of a command.
#[derive(Debug)]
pub(super) struct Ends {
    input: OwnedFd,
    output: OwnedFd,
    errors: OwnedFd,
    is_terminal: bool,
}

/// Makes a terminal, and returns its master end and the descriptors of a command on it.
pub(super) fn on_terminal(rows: u16, columns: u16) -> io::Result<(OwnedFd, Ends)> {
    let master = open_terminal()?;
    sys::terminal::resize(&master, rows, columns)?;
    let input = sys::terminal::peer(&master)?;
    let ends = Ends {
        output: input.try_clone()?,
        errors: input.try_clone()?,
        input,
        is_terminal: true,
    };
    Ok((master, ends))
}

/// Returns the descriptors of a command that came with the order.
pub(super) fn on_pipes(fds: Vec<OwnedFd>, has_input: bool) -> io::Result<Ends> {
    let mut fds = fds.into_iter();
    let mut next = || {
        fds.next()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    };
    let input = if has_input {
        next()?
    } else {
        File::open("/dev/null")?.into()
    };
    Ok(Ends {
        input,
        output: next()?,
        errors: next()?,
        is_terminal: false,
    })
}

/// Makes the terminal with this number.
pub(super) fn terminal(number: u32) -> io::Result<OwnedFd> {
    // The kernel gives the lowest free number; those before are given back at the end.
    let mut lower = Vec::new();
    for _ in 0..TERMINALS_MAX {
        let master = open_terminal()?;
        match sys::terminal::number(&master)? {
            found if found == number => return Ok(master),
            found if found > number => return Err(io::Error::from_raw_os_error(libc::EBUSY)),
            _ => lower.push(master),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ENOSPC))
}

fn open_terminal() -> io::Result<OwnedFd> {
    let master = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open("/dev/pts/ptmx")?;
    sys::terminal::unlock(&master)?;
    Ok(master.into())
}

/// Starts a command and waits until it is executed.
pub(super) fn start(init: &Init<'_>, command: &Command, ends: &Ends) -> Result<Child, Refused> {
    let identity = match &command.user {
        Some(user) => Some(users::find(user).ok_or(Refused::User)?),
        None => None,
    };
    let (heard, said) = pipe2(OFlag::O_CLOEXEC)?;
    let Some(child) = sys::clone::fork_into(init.tree.as_fd())? else {
        let reason = become_command(init, command, identity.as_ref(), ends);
        let errno = reason.raw_os_error().unwrap_or(libc::EIO);
        drop(File::from(said).write_all(&errno.to_ne_bytes()));
        sys::clone::exit_now(127);
    };
    drop(said);
    let mut errno = [0; 4];
    match File::from(heard).read_exact(&mut errno) {
        // Closed by the execution.
        Err(reason) if reason.kind() == io::ErrorKind::UnexpectedEof => Ok(child),
        Err(reason) => Err(reason.into()),
        Ok(()) => {
            sys::pidfd::reap(&child.pidfd)?;
            Err(Refused::Exec(i32::from_ne_bytes(errno)))
        }
    }
}

/// Turns this process into the command. Returns only if that fails.
fn become_command(
    init: &Init<'_>,
    command: &Command,
    identity: Option<&users::Identity>,
    ends: &Ends,
) -> io::Error {
    match prepare(init, command, identity, ends) {
        Ok(()) => execute(command),
        Err(reason) => reason,
    }
}

fn prepare(
    init: &Init<'_>,
    command: &Command,
    identity: Option<&users::Identity>,
    ends: &Ends,
) -> io::Result<()> {
    setsid()?;
    if ends.is_terminal {
        sys::terminal::take_control(&ends.input)?;
    }
    dup2_stdin(&ends.input)?;
    dup2_stdout(&ends.output)?;
    dup2_stderr(&ends.errors)?;
    confine::set_resource_limits()?;
    // A daemon that is spared by the killer of the memory-hungry does not spare its boxes.
    drop(fs::write("/proc/self/oom_score_adj", "0"));
    let keep = confine::capabilities() & sys::creds::permitted()?;
    sys::creds::bound(keep)?;
    match identity {
        Some(identity) => {
            let groups: Vec<Gid> = identity.groups.iter().copied().map(Gid::from_raw).collect();
            let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
            setgroups(&groups)?;
            setresgid(gid, gid, gid)?;
            setresuid(uid, uid, uid)?;
            if identity.uid == 0 {
                sys::creds::limit(keep)?;
            }
        }
        None => {
            setgroups(&[])?;
            sys::creds::limit(keep)?;
        }
    }
    chdir(command.cwd.as_slice())?;
    set_no_new_privs()?;
    confine::apply_filters(&init.filters)?;
    sys::clone::default_signals();
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// Executes the command, looking for it as a shell does. Returns only if that fails.
fn execute(command: &Command) -> io::Error {
    let strings = |all: &[Vec<u8>]| {
        all.iter()
            .map(|text| CString::new(text.as_slice()))
            .collect::<Result<Vec<_>, _>>()
    };
    let (Ok(argv), Ok(env)) = (strings(&command.argv), strings(&command.env)) else {
        return io::Error::from_raw_os_error(libc::EINVAL);
    };
    let Some(name) = command.argv.first().filter(|name| !name.is_empty()) else {
        return io::Error::from_raw_os_error(libc::ENOENT);
    };
    if name.contains(&b'/') {
        return match argv.first() {
            Some(program) => sys::clone::exec(program, &argv, &env),
            None => io::Error::from_raw_os_error(libc::ENOENT),
        };
    }
    let path = command
        .env
        .iter()
        .find_map(|one| one.strip_prefix(b"PATH="))
        .unwrap_or(PATH);
    let mut result = io::Error::from_raw_os_error(libc::ENOENT);
    for dir in path.split(|byte| *byte == b':') {
        let file = [if dir.is_empty() { b"." } else { dir }, b"/", name].concat();
        let Ok(file) = CString::new(file) else {
            continue;
        };
        let reason = sys::clone::exec(&file, &argv, &env);
        match reason.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            // There may be one further on that may be executed.
            Some(libc::EACCES) => result = reason,
            _ => return reason,
        }
    }
    result
}

/// Makes a child that waits, with the first of `fds` as [`SEED_FD`], nothing else open and all of init's rights.
pub(super) fn seed(init: &Init<'_>, fds: Vec<OwnedFd>) -> io::Result<Child> {
    let given = fds
        .into_iter()
        .next()
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
    let (heard, said) = pipe2(OFlag::O_CLOEXEC)?;
    let Some(child) = sys::clone::fork_into(init.tree.as_fd())? else {
        // Closing everything is what it says when it is ready.
        if let Err(reason) = be_seed(&given) {
            let errno = reason.raw_os_error().unwrap_or(libc::EIO);
            drop(File::from(said).write_all(&errno.to_ne_bytes()));
        }
        sys::clone::exit_now(1);
    };
    drop(said);
    let mut errno = [0; 4];
    match File::from(heard).read_exact(&mut errno) {
        Err(reason) if reason.kind() == io::ErrorKind::UnexpectedEof => Ok(child),
        Err(reason) => Err(reason),
        Ok(()) => Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno))),
    }
}

/// Waits for good. Whoever traces this process makes of it what is wanted.
fn be_seed(given: &OwnedFd) -> io::Result<()> {
    confine::set_resource_limits()?;
    drop(fs::write("/proc/self/oom_score_adj", "0"));
    fcntl(given, FcntlArg::F_DUPFD(SEED_FD))?;
    sys::clone::default_signals();
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    sys::clone::close_all_but(SEED_FD)?;
    loop {
        pause();
    }
}
