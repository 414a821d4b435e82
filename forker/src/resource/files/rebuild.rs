//! Makes all descriptions of an image again, in the caller's process.

use std::io;
use std::os::fd::OwnedFd;

use super::inside::{Argument, InsideCall};
use super::model::{Description, Files, Kind};
use super::place::Place;
use super::trouble::Error;
use super::{
    device, epoll, event, inotify, lock, memfd, pipe, process, regular, signal, socket, sys,
    terminal, timer,
};

/// Descriptions that were made again. They close when this is dropped, which must happen once the
/// processes have theirs: a pipe held here never ends.
#[derive(Debug)]
pub struct Rebuilt {
    /// One file for each of [`Files::descriptions`], in the same order, and behind them those that
    /// only [`Rebuilt::inside`] needs.
    pub files: Vec<OwnedFd>,
    /// What processes of the tree have to do, in this order, when all of them exist and have their
    /// descriptors.
    pub inside: Vec<InsideCall>,
    /// Timers to be armed when the tree is woken.
    timers: Vec<(OwnedFd, timer::Timer)>,
}

/// Timers that wait for the moment at which the tree is woken.
#[derive(Debug, Default)]
pub struct Timers(Vec<(OwnedFd, timer::Timer)>);

impl Timers {
    /// Arms them.
    ///
    /// # Errors
    /// If one cannot be armed; the others are.
    pub fn arm(&self) -> io::Result<()> {
        let mut result = Ok(());
        for (file, state) in &self.0 {
            let armed = timer::arm(file, state);
            result = result.and(armed);
        }
        result
    }
}

impl Rebuilt {
    /// The timers, which outlive the other descriptions here.
    pub fn take_timers(&mut self) -> Timers {
        Timers(std::mem::take(&mut self.timers))
    }
}

/// Makes all descriptions again. The processes must exist already where a pidfd or a file of `/proc`
/// names one.
///
/// # Errors
/// If one cannot be made; nothing is left behind.
pub fn rebuild(files: &Files, place: &dyn Place) -> Result<Rebuilt, Error> {
    let mut build = Build {
        files,
        place,
        made: files.descriptions.iter().map(|_| None).collect(),
    };
    let pipes = files.pipes.iter().map(|state| build.pipe(state));
    let mut pipes = pipes.collect::<Result<Vec<_>, _>>()?;
    let mut terminals = build.terminals()?;
    let memfds = files.memfds.iter().map(memfd::rebuild);
    let memfds = memfds
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| Error::Other {
            what: "making a memory file",
            source,
        })?;
    let sockets = |source| Error::Other {
        what: "making the sockets",
        source,
    };
    let mut unix = socket::rebuild_unix(files, place).map_err(sockets)?;
    let mut tcp = socket::rebuild_tcp(files, place).map_err(sockets)?;
    let mut udp = socket::udp::rebuild(files, place).map_err(sockets)?;
    build.each(|place, index, description| match &description.kind {
        Kind::Unix(_) => unix.take(index).map(Some),
        Kind::Tcp(_) => Ok(tcp.remove(&index)),
        Kind::Udp(_) => Ok(udp.remove(&index)),
        Kind::Netlink(state) => socket::netlink::rebuild(place, state).map(Some),
        Kind::Regular(state) => regular::rebuild(place, state, description).map(Some),
        Kind::Device(state) => device::rebuild(place, state, description).map(Some),
        Kind::Event(state) => event::rebuild(*state, description).map(Some),
        Kind::Timer(state) => timer::rebuild(state, description).map(Some),
        Kind::Signal(state) => signal::rebuild(*state, description).map(Some),
        Kind::Process(state) => process::rebuild(place, *state, description).map(Some),
        Kind::Epoll(_) => sys::epoll().map(Some),
        Kind::Memfd(index) => {
            let file = memfds.get(*index).ok_or(io::ErrorKind::InvalidData)?;
            memfd::open_again(file, description).map(Some)
        }
        Kind::Pipe(index) => {
            let built = pipes.get_mut(*index).ok_or(io::ErrorKind::InvalidData)?;
            pipe::end(built, description).map(Some)
        }
        Kind::Terminal(end) => {
            let built = terminals.get_mut(end.terminal);
            let built = built.ok_or(io::ErrorKind::InvalidData)?;
            terminal::end(built, end, description).map(Some)
        }
        Kind::Inotify(_) => Ok(None),
    })?;
    drop(pipes);
    // Watches see what is opened beside them, so they are set when everything else is.
    build.each(|place, _, description| match &description.kind {
        Kind::Inotify(state) => inotify::rebuild(place, state, description).map(Some),
        _ => Ok(None),
    })?;
    unix.finish(files, &build.made, place).map_err(sockets)?;
    build.socket_flags()?;
    build.finish(terminals, &memfds)
}

struct Build<'a> {
    files: &'a Files,
    place: &'a dyn Place,
    made: Vec<Option<OwnedFd>>,
}

impl Build<'_> {
    /// Makes every description for which `make` gives a file.
    fn each(
        &mut self,
        mut make: impl FnMut(&dyn Place, usize, &Description) -> io::Result<Option<OwnedFd>>,
    ) -> Result<(), Error> {
        let descriptions = self.files.descriptions.iter();
        for (index, (description, made)) in descriptions.zip(&mut self.made).enumerate() {
            let result = make(self.place, index, description);
            if let Some(file) = result.map_err(|source| failed(description, source))? {
                *made = Some(file);
            }
        }
        Ok(())
    }

    /// Sockets are filled before they are what they were, so their flags come late.
    fn socket_flags(&self) -> Result<(), Error> {
        for (description, made) in self.files.descriptions.iter().zip(&self.made) {
            let socket = matches!(
                description.kind,
                Kind::Unix(_) | Kind::Tcp(_) | Kind::Udp(_) | Kind::Netlink(_)
            );
            if let (true, Some(file)) = (socket, made) {
                let flags = description.flags & libc::O_NONBLOCK;
                sys::fcntl(file, libc::F_SETFL, flags)
                    .map_err(|source| failed(description, source))?;
            }
        }
        Ok(())
    }

    fn pipe(&self, state: &pipe::Pipe) -> Result<pipe::Built, Error> {
        pipe::rebuild(self.place, state).map_err(|source| Error::Other {
            what: "making a pipe",
            source,
        })
    }

    /// In the order of their numbers, or one that is needed would be skipped over.
    fn terminals(&self) -> Result<Vec<terminal::Built>, Error> {
        let mut order: Vec<usize> = (0..self.files.terminals.len()).collect();
        order.sort_by_key(|&at| {
            let terminal = &self.files.terminals[at];
            (terminal.outside.is_none(), terminal.index)
        });
        let mut built: Vec<(usize, terminal::Built)> = Vec::new();
        for at in order {
            let one = terminal::rebuild(self.place, &self.files.terminals[at]);
            built.push((
                at,
                one.map_err(|source| Error::Other {
                    what: "making a terminal",
                    source,
                })?,
            ));
        }
        built.sort_by_key(|(at, _)| *at);
        Ok(built.into_iter().map(|(_, one)| one).collect())
    }

    fn finish(self, terminals: Vec<terminal::Built>, memfds: &[OwnedFd]) -> Result<Rebuilt, Error> {
        let other = |what| move |source| Error::Other { what, source };
        let mut inside =
            epoll::fill(self.files, &self.made).map_err(other("filling epoll sets"))?;
        let made: Option<Vec<OwnedFd>> = self.made.into_iter().collect();
        let mut files = made.ok_or(Error::Image("a description has no file"))?;
        for (state, file) in self.files.memfds.iter().zip(memfds) {
            memfd::seal(file, state).map_err(other("sealing a memory file"))?;
        }
        let mut timers = Vec::new();
        for (index, description) in self.files.descriptions.iter().enumerate() {
            let file = &files[index];
            for held in &description.locks {
                lock::take(file, held).map_err(|source| failed(description, source))?;
            }
            if let Kind::Timer(state) = &description.kind
                && timer::armed(state)
            {
                let file = file
                    .try_clone()
                    .map_err(|source| failed(description, source))?;
                timers.push((file, *state));
            }
            inside.extend(owner(index, description));
        }
        for session in &self.files.sessions {
            let built = terminals.get(session.terminal);
            let built = built.ok_or(Error::Image("a session's terminal is missing"))?;
            let slave = terminal::slave(built).map_err(other("opening a terminal"))?;
            inside.extend(terminal::control(session, files.len()));
            files.push(slave);
        }
        for (built, state) in terminals.into_iter().zip(&self.files.terminals) {
            terminal::finish(built, state).map_err(other("finishing a terminal"))?;
        }
        for table in &self.files.tables {
            for (fd, held) in &table.locks {
                let call = lock::posix(table, *fd, held).map_err(other("a POSIX lock"))?;
                inside.extend(call);
            }
        }
        Ok(Rebuilt {
            files,
            inside,
            timers,
        })
    }
}

fn failed(description: &Description, source: io::Error) -> Error {
    Error::Rebuild {
        pid: description.seen.0,
        fd: description.seen.1,
        kind: description.kind.name(),
        source,
    }
}

// From linux/fcntl.h.
const F_SETSIG: i32 = 10;
const F_SETOWN_EX: i32 = 15;

/// The calls by which signals go to whom they went. They need the pids of the box, so that a process
/// of it makes them: the one that the signals go to, or any other that has the file.
fn owner(file: usize, description: &Description) -> Vec<InsideCall> {
    let Some(owner) = description.owner else {
        return Vec::new();
    };
    let call = |what, command: i32, argument| InsideCall {
        pid: description.seen.0,
        what,
        file: Some(file),
        number: libc::SYS_fcntl,
        arguments: vec![Argument::File, Argument::number(command), argument],
    };
    let mut calls = Vec::new();
    if owner.pid != 0 {
        let mut who = owner.kind.to_ne_bytes().to_vec();
        who.extend_from_slice(&owner.pid.to_ne_bytes());
        let argument = Argument::Bytes(who);
        calls.push(call("say who is signalled", F_SETOWN_EX, argument));
    }
    if owner.signal != 0 {
        let argument = Argument::number(owner.signal);
        calls.push(call("set the signal of a descriptor", F_SETSIG, argument));
    }
    calls
}
