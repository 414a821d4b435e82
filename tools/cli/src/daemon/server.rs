//! Accepts connections and, at the end, takes everything down in order.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Uid;
use parking_lot::{Condvar, Mutex};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::endpoint::{Endpoint, State};
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::Response;
use crate::protocol::channel::Channel;

use super::responder::Responder;
use super::session::{self, End};
use super::syncer::Syncer;
use super::{Daemon, handlers};

/// Requests that are worked on at once. Each costs a thread; whoever comes too much is told so.
const SESSIONS_MAX: usize = 256;

/// How often the daemon looks whether it can still be reached.
const REACHABLE_INTERVAL_MS: u16 = 2_000;

/// How long requests that are being worked on may take to end before the daemon does.
const DRAIN_LIMIT: Duration = Duration::from_secs(20);

/// What wakes the accepting thread: a signal or a request to stop.
#[derive(Debug)]
pub(crate) struct Wake {
    receiver: UnixStream,
    sender: UnixStream,
}

impl Wake {
    /// Returns one that the signals which ask a daemon to end wake.
    pub(crate) fn on_signals() -> Result<Self> {
        let fail = |reason: io::Error| Failure::io("listen for signals", &reason);
        let (receiver, sender) = UnixStream::pair().map_err(fail)?;
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            let sender = sender.try_clone().map_err(fail)?;
            signal_hook::low_level::pipe::register(signal, sender).map_err(fail)?;
        }
        Ok(Self { receiver, sender })
    }
}

/// The sessions that are running.
#[derive(Debug, Default)]
struct Sessions {
    open: Mutex<HashMap<u64, UnixStream>>,
    ended: Condvar,
}

/// A daemon that listens.
#[derive(Debug)]
pub(crate) struct Server {
    daemon: Arc<Daemon>,
    endpoint: Endpoint,
    listener: UnixListener,
    wake: Wake,
    sessions: Arc<Sessions>,
}

impl Server {
    /// Returns a server that has not yet accepted anything.
    pub(crate) fn new(
        daemon: Arc<Daemon>,
        endpoint: Endpoint,
        listener: UnixListener,
        wake: Wake,
    ) -> Self {
        Self {
            daemon,
            endpoint,
            listener,
            wake,
            sessions: Arc::default(),
        }
    }

    /// Serves until a signal or a request ends it.
    pub(crate) fn run(mut self) -> Result<()> {
        let syncer = Syncer::start(Arc::clone(&self.daemon.store))
            .map_err(|reason| Failure::io("start a thread", &reason))?;
        let accepted = self.accept_until_woken();
        self.daemon.stopping.store(true, Ordering::SeqCst);
        // Whoever is attached to a command in a box waits for its end.
        handlers::end_boxes(&self.daemon);
        self.drain();
        // After a `stop` nothing is mounted any more. A signal cannot be refused: what is in use is
        // detached.
        handlers::unmount_all(&self.daemon, true);
        drop(syncer);
        let synced = self.daemon.store.sync();
        if let Err(reason) = self.endpoint.remove_socket() {
            log::warn!("cannot remove the socket: {reason}");
        }
        log::info!("ended");
        synced?;
        accepted
    }

    fn accept_until_woken(&mut self) -> Result<()> {
        let fail = |reason: io::Error| Failure::io("wait for clients", &reason);
        self.listener.set_nonblocking(true).map_err(fail)?;
        let mut number = 0;
        loop {
            let mut watched = [
                PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.wake.receiver.as_fd(), PollFlags::POLLIN),
            ];
            let came = match poll(&mut watched, PollTimeout::from(REACHABLE_INTERVAL_MS)) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(errno) => return Err(fail(errno.into())),
            };
            if came == 0 {
                if !self.stay_reachable() {
                    return Ok(());
                }
                continue;
            }
            if watched.get(1).and_then(PollFd::any).unwrap_or(false) {
                let mut byte = [0];
                drop((&self.wake.receiver).read(&mut byte));
                return Ok(());
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    number += 1;
                    self.begin(number, stream);
                }
                Err(reason) if reason.kind() == io::ErrorKind::WouldBlock => {}
                Err(reason) => {
                    // Out of descriptors, most likely: the client waits in the queue until a
                    // session ends.
                    log::warn!("cannot accept a client: {reason}");
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    /// Listens anew if somebody removed the socket. Returns whether there is still a store to serve.
    fn stay_reachable(&mut self) -> bool {
        match self.endpoint.state() {
            State::Listening => true,
            State::DirectoryGone => {
                log::error!("the store was removed; nothing is left to serve");
                false
            }
            State::SocketGone => {
                let again = self.endpoint.listen().and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    Ok(listener)
                });
                match again {
                    Ok(listener) => {
                        log::warn!("the socket was removed; listening anew");
                        self.listener = listener;
                    }
                    Err(reason) => log::error!("cannot listen anew: {reason}"),
                }
                true
            }
        }
    }

    fn begin(&self, number: u64, stream: UnixStream) {
        if let Err(failure) = self.admit(number, stream) {
            log::warn!("a client was sent away: {failure}");
        }
    }

    fn admit(&self, number: u64, stream: UnixStream) -> Result<()> {
        let fail = |reason: io::Error| Failure::io("serve a client", &reason);
        stream.set_nonblocking(false).map_err(fail)?;
        let handle = stream.try_clone().map_err(fail)?;
        let mut channel = Channel::new(stream);
        if let Err(failure) = self.check_client(&handle) {
            channel
                .limit_writes(Duration::from_millis(100))
                .map_err(fail)?;
            drop(Responder::new(&mut channel).end(&Response::Failed(failure.clone())));
            return Err(failure);
        }
        self.sessions.open.lock().insert(number, handle);
        let (daemon, sessions) = (Arc::clone(&self.daemon), Arc::clone(&self.sessions));
        let wake = self.wake.sender.try_clone().map_err(fail)?;
        let spawned = thread::Builder::new()
            .name("session".to_owned())
            .spawn(move || {
                let end = session::run(&daemon, channel);
                drop(daemon);
                sessions.open.lock().remove(&number);
                sessions.ended.notify_all();
                if let End::Stop(channel) = end {
                    drop(io::Write::write_all(&mut &wake, b"x"));
                    // The client waits until the kernel closes this with the process, when the lock on
                    // the store is released as well.
                    std::mem::forget(channel);
                }
            });
        if let Err(reason) = spawned {
            self.sessions.open.lock().remove(&number);
            return Err(fail(reason));
        }
        Ok(())
    }

    /// Lets only the owner and the superuser in, and not too many at once.
    fn check_client(&self, stream: &UnixStream) -> Result<()> {
        let peer = getsockopt(stream, sockopt::PeerCredentials)
            .map_err(|errno| Failure::io("ask who the client is", &errno.into()))?;
        if peer.uid() != Uid::effective().as_raw() && peer.uid() != 0 {
            return Err(Failure::new(
                FailureKind::Denied,
                "the store's daemon belongs to another user",
            ));
        }
        if self.sessions.open.lock().len() >= SESSIONS_MAX {
            return Err(Failure::new(
                FailureKind::Busy,
                format!("the daemon is working on {SESSIONS_MAX} requests already"),
            )
            .hint("try again in a moment"));
        }
        Ok(())
    }

    /// Lets what is being worked on end, and sends idle clients away.
    fn drain(&self) {
        let deadline = Instant::now() + DRAIN_LIMIT;
        let mut open = self.sessions.open.lock();
        for stream in open.values() {
            // No more requests come in; an answer can still go out.
            drop(stream.shutdown(Shutdown::Read));
        }
        while !open.is_empty() {
            if self
                .sessions
                .ended
                .wait_until(&mut open, deadline)
                .timed_out()
            {
                log::warn!("{} requests are cut off", open.len());
                return;
            }
        }
    }
}
