//! Makes unix sockets again: first all sockets with their names and connections, then, when every
//! other description exists as well, what is queued in them, and last what would have been in the
//! way.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::sched::{CloneFlags, unshare};

use super::super::model::{Files, Kind};
use super::super::place::{Outside, Place};
use super::super::sys;
use super::unix::{FAMILY, Message, Peer, Unix};
use super::{Options, unix_path, within};

/// Unix sockets under construction.
#[derive(Debug, Default)]
pub(in super::super) struct Making {
    made: BTreeMap<usize, OwnedFd>,
    /// The other ends of those whose peer is closed, by the description that they belong to.
    peers: BTreeMap<usize, OwnedFd>,
}

type All<'a> = BTreeMap<usize, &'a Unix>;

fn all(files: &Files) -> All<'_> {
    let descriptions = files.descriptions.iter().enumerate();
    descriptions
        .filter_map(|(index, description)| match &description.kind {
            Kind::Unix(unix) => Some((index, unix)),
            _ => None,
        })
        .collect()
}

/// Runs `work` in the new tree's network, with its root directory.
fn at_home<T: Send>(
    place: &dyn Place,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let root = place.root();
    within(place.network(), move || {
        unshare(CloneFlags::CLONE_FS)?;
        enter(root)?;
        work()
    })
}

fn enter(root: BorrowedFd<'_>) -> io::Result<()> {
    nix::unistd::fchdir(root)?;
    Ok(nix::unistd::chroot(".")?)
}

/// Makes all sockets.
pub(in super::super) fn rebuild(files: &Files, place: &dyn Place) -> io::Result<Making> {
    let all = all(files);
    let mut making = Making::default();
    if all.is_empty() {
        return Ok(making);
    }
    for (&index, unix) in &all {
        if let Peer::Outside(name) = &unix.peer {
            let file = place.outside(name, Outside::Unix(unix.ino))?;
            making.made.insert(index, file);
        }
    }
    at_home(place, || {
        making.listeners(&all)?;
        making.streams(&all)?;
        making.waiting(&all)?;
        making.others(&all)?;
        Ok(making)
    })
}

fn by_ino(all: &All<'_>, ino: u64) -> Option<usize> {
    let found = all.iter().find(|(_, unix)| unix.ino == ino);
    found.map(|(&index, _)| index)
}

fn named(unix: &Unix) -> bool {
    unix.name.len() > FAMILY
}

fn new(unix: &Unix) -> io::Result<OwnedFd> {
    let socket = sys::socket(libc::AF_UNIX, unix.kind, 0)?;
    unix.options.before_bind(&socket)?;
    Ok(socket)
}

fn bind(socket: &OwnedFd, unix: &Unix) -> io::Result<()> {
    if named(unix) {
        unix_path::bind(socket, &unix.name, unix.path.as_ref())?;
    }
    Ok(())
}

fn connect(socket: &OwnedFd, to: &Unix) -> io::Result<()> {
    if let Some(path) = &to.path {
        unix_path::start_from(&to.name, &path.path)?;
    }
    sys::address(socket, sys::With::Connect, &to.name)
}

/// Does something as a certain user, because the kernel remembers who did it.
fn as_user<T>(ids: Option<(u32, u32)>, mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let Some((uid, gid)) = ids.filter(|&ids| ids != (0, 0)) else {
        return work();
    };
    sys::become_user(uid, gid)?;
    let result = work();
    sys::become_user(0, 0)?;
    // The rights can have changed since.
    match result {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => work(),
        other => other,
    }
}

impl Making {
    /// Gives a description its file.
    pub(in super::super) fn take(&mut self, index: usize) -> io::Result<OwnedFd> {
        let gone = || io::Error::other("this unix socket was not made");
        self.made.remove(&index).ok_or_else(gone)
    }

    fn listeners(&mut self, all: &All<'_>) -> io::Result<()> {
        for (&index, unix) in all {
            if let Peer::Listening { backlog, .. } = unix.peer {
                let socket = new(unix)?;
                bind(&socket, unix)?;
                let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
                as_user(unix.peer_ids, || sys::listen(&socket, backlog))?;
                self.made.insert(index, socket);
            }
        }
        Ok(())
    }

    /// Connected pairs, and those of which one end is left.
    fn streams(&mut self, all: &All<'_>) -> io::Result<()> {
        for (&index, unix) in all {
            let stream = unix.kind != libc::SOCK_DGRAM;
            match unix.peer {
                Peer::Socket(peer) if stream && !self.made.contains_key(&index) => {
                    let missing = || io::Error::other("the peer of a unix socket is missing");
                    let other = by_ino(all, peer).ok_or_else(missing)?;
                    let [one, two] = self.pair(all, unix, all[&other])?;
                    self.made.insert(index, one);
                    self.made.insert(other, two);
                }
                Peer::Closed if stream => {
                    let mut gone = Unix {
                        name: unix.peer_name.clone(),
                        path: None,
                        ..(*unix).clone()
                    };
                    gone.name.resize(gone.name.len().max(FAMILY), 0);
                    let [one, two] = self.pair(all, unix, &gone)?;
                    self.made.insert(index, one);
                    self.peers.insert(index, two);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Two sockets that are connected to each other, with the names that they had.
    fn pair(&self, all: &All<'_>, one: &Unix, two: &Unix) -> io::Result<[OwnedFd; 2]> {
        let listener = |name: &[u8]| {
            all.iter()
                .find(|(_, unix)| unix.name == name && matches!(unix.peer, Peer::Listening { .. }))
        };
        // One of them was accepted, and has the name of the socket that accepted it.
        let swap = match (named(one), named(two)) {
            (false, false) => {
                return as_user(one.peer_ids, || sys::socketpair(one.kind));
            }
            (true, true) => listener(&one.name).is_none(),
            (first, _) => !first,
        };
        let (server, client) = if swap { (two, one) } else { (one, two) };
        let socket = new(client)?;
        bind(&socket, client)?;
        let own;
        let (accepting, address) = match listener(&server.name) {
            Some((index, unix)) => (self.made.get(index), *unix),
            None => {
                own = new(server)?;
                bind(&own, server)?;
                as_user(client.peer_ids, || sys::listen(&own, 1))?;
                (Some(&own), server)
            }
        };
        let accepting = accepting.ok_or_else(|| io::Error::other("a listener is missing"))?;
        let connected = as_user(server.peer_ids, || connect(&socket, address));
        if let Err(error) = connected {
            // The path no longer leads there: connected all the same, without names.
            if unix_path::is_path(&address.name) {
                return as_user(one.peer_ids, || sys::socketpair(one.kind));
            }
            return Err(error);
        }
        let accepted = sys::accept(accepting)?;
        Ok(if swap {
            [socket, accepted]
        } else {
            [accepted, socket]
        })
    }

    /// Connections that nobody has accepted, in their order.
    fn waiting(&mut self, all: &All<'_>) -> io::Result<()> {
        for listener in all.values() {
            let Peer::Listening { waiting, .. } = &listener.peer else {
                continue;
            };
            for &ino in waiting {
                let client = by_ino(all, ino).filter(|_| ino != 0);
                let state = client.map_or(*listener, |index| all[&index]);
                let socket = new(state)?;
                if client.is_some() {
                    bind(&socket, state)?;
                }
                connect(&socket, listener)?;
                if let Some(index) = client {
                    self.made.insert(index, socket);
                }
            }
        }
        Ok(())
    }

    /// Datagram sockets, and those that are not connected.
    fn others(&mut self, all: &All<'_>) -> io::Result<()> {
        for (&index, unix) in all {
            if self.made.contains_key(&index) {
                continue;
            }
            let mutual = match unix.peer {
                Peer::Socket(peer) => {
                    by_ino(all, peer).filter(|other| all[other].peer == Peer::Socket(unix.ino))
                }
                _ => None,
            };
            if named(unix) {
                let socket = new(unix)?;
                bind(&socket, unix)?;
                self.made.insert(index, socket);
            } else if let Some(other) = mutual.filter(|other| !named(all[other])) {
                let [one, two] = as_user(unix.peer_ids, || sys::socketpair(unix.kind))?;
                self.made.insert(index, one);
                self.made.insert(other, two);
            } else if unix.peer == Peer::Closed || !unix.queue.is_empty() {
                let [one, two] = as_user(unix.peer_ids, || sys::socketpair(unix.kind))?;
                self.made.insert(index, one);
                self.peers.insert(index, two);
            } else {
                self.made.insert(index, new(unix)?);
            }
        }
        Ok(())
    }

    /// Fills the queues, connects datagram sockets, and sets what would have been in the way. `made`
    /// has the file of every description.
    pub(in super::super) fn finish(
        self,
        files: &Files,
        made: &[Option<OwnedFd>],
        place: &dyn Place,
    ) -> io::Result<()> {
        let all = all(files);
        if all.is_empty() {
            return Ok(());
        }
        let senders = all.values().flat_map(|unix| &unix.queue);
        let senders = senders.filter_map(|message| message.sender);
        let pids: BTreeMap<i32, i32> = senders
            .filter(|sender| sender.0 != 0)
            .filter_map(|sender| Some((sender.0, place.pid(sender.0)?)))
            .collect();
        let filling = Filling {
            all: &all,
            made,
            pids,
            peers: self.peers,
        };
        at_home(place, move || filling.run())
    }
}

struct Filling<'a> {
    all: &'a All<'a>,
    made: &'a [Option<OwnedFd>],
    /// From pids inside to the caller's.
    pids: BTreeMap<i32, i32>,
    peers: BTreeMap<usize, OwnedFd>,
}

impl Filling<'_> {
    fn file(&self, index: usize) -> io::Result<&OwnedFd> {
        let file = self.made.get(index).and_then(Option::as_ref);
        file.ok_or_else(|| io::Error::other("a description has no file"))
    }

    fn run(self) -> io::Result<()> {
        for (&index, unix) in self.all {
            if unix.kind == libc::SOCK_DGRAM {
                self.datagrams(index, unix)?;
            } else {
                self.stream(index, unix)?;
            }
        }
        for (&index, unix) in self.all {
            let socket = self.file(index)?;
            if unix.kind == libc::SOCK_DGRAM {
                self.connect(index, unix, socket)?;
            }
            for (bit, how) in [(2, libc::SHUT_WR), (1, libc::SHUT_RD)] {
                let connected = matches!(unix.peer, Peer::Socket(_));
                if unix.shutdown & bit != 0 && connected {
                    sys::shutdown(socket, how)?;
                }
            }
            if !matches!(unix.peer, Peer::Outside(_)) {
                unix.options.finish(socket)?;
            }
        }
        Ok(())
    }

    fn send(&self, sender: &OwnedFd, to: &[u8], message: &Message) -> io::Result<()> {
        let mut files = Vec::new();
        for &index in &message.files {
            files.push(self.file(index)?.as_raw_fd());
        }
        let own = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        let who = message.sender.map(|(pid, uid, gid)| {
            let pid = self.pids.get(&pid).copied().unwrap_or(own);
            (pid, uid, gid)
        });
        let mut rest = message.data.as_slice();
        loop {
            let sent = sys::send(sender, rest, to, &files, who)?;
            files.clear();
            rest = rest.get(sent..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    fn stream(&self, index: usize, unix: &Unix) -> io::Result<()> {
        if unix.queue.is_empty() {
            return Ok(());
        }
        let sender = match (&unix.peer, self.peers.get(&index)) {
            (_, Some(peer)) => peer,
            (Peer::Socket(ino), None) => {
                let peer = by_ino(self.all, *ino);
                self.file(peer.ok_or_else(|| io::Error::other("a peer is missing"))?)?
            }
            _ => return Err(io::Error::other("nobody could have sent what is queued")),
        };
        Options::make_room(sender)?;
        for message in &unix.queue {
            self.send(sender, &[], message)?;
        }
        Ok(())
    }

    fn datagrams(&self, index: usize, unix: &Unix) -> io::Result<()> {
        let mut strangers: BTreeMap<&[u8], OwnedFd> = BTreeMap::new();
        for message in &unix.queue {
            let from = message.from.as_slice();
            let known = self.all.iter().find(|(_, other)| {
                from.len() > FAMILY && other.name == from && other.kind == unix.kind
            });
            let peer = match unix.peer {
                Peer::Socket(ino) => by_ino(self.all, ino),
                _ => None,
            };
            let sender = if !named(unix) {
                match (self.peers.get(&index), peer) {
                    (Some(peer), _) => peer,
                    (None, Some(peer)) => self.file(peer)?,
                    (None, None) => return Err(io::Error::other("a sender is missing")),
                }
            } else if let Some((&sender, _)) = known {
                self.file(sender)?
            } else {
                match strangers.entry(from) {
                    std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                    std::collections::btree_map::Entry::Vacant(entry) => {
                        entry.insert(stranger(unix.kind, from)?)
                    }
                }
            };
            Options::make_room(sender)?;
            let to = if named(unix) {
                unix.name.as_slice()
            } else {
                &[]
            };
            if let (Some(path), true) = (&unix.path, named(unix)) {
                unix_path::start_from(&unix.name, &path.path)?;
            }
            self.send(sender, to, message)?;
        }
        Ok(())
    }

    /// Connects a datagram socket to its named peer; only now, as it then takes from nobody else.
    fn connect(&self, index: usize, unix: &Unix, socket: &OwnedFd) -> io::Result<()> {
        match unix.peer {
            Peer::Socket(ino) => {
                let peer = by_ino(self.all, ino).map(|peer| self.all[&peer]);
                match peer.filter(|peer| named(peer)) {
                    Some(peer) => connect(socket, peer),
                    None => Ok(()),
                }
            }
            // Its temporary peer was there to fill the queue only.
            Peer::None if self.peers.contains_key(&index) => {
                sys::address(socket, sys::With::Connect, &[0; FAMILY])
            }
            _ => Ok(()),
        }
    }
}

/// A socket with the name of a sender that is gone; its file, if it makes one, goes at once.
fn stranger(kind: i32, name: &[u8]) -> io::Result<OwnedFd> {
    let socket = sys::socket(libc::AF_UNIX, kind, 0)?;
    if name.len() > FAMILY {
        let text = name.get(2..).unwrap_or_default();
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let absolute = text.first() == Some(&b'/');
        let place = (unix_path::is_path(name) && absolute).then(|| unix_path::Path {
            path: text.to_vec(),
            mode: 0,
            owner: (0, 0),
            removed: true,
        });
        unix_path::bind(&socket, name, place.as_ref())?;
    }
    Ok(socket)
}
