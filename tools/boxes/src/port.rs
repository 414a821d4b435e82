//! Forwarded ports: connections that the host takes and the box answers.
//!
//! The listening socket belongs to the daemon and lives as long as the box. Each connection is carried by two threads into
//! the network namespace of the instance that the box has at that moment; after a rollback, that is another one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// The most connections that one forwarded port carries at once. Each costs two threads.
const CONNECTIONS_MAX: usize = 256;

/// How long a connection to a program in the box may take to come about.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How much is carried at once, in bytes.
const CHUNK_BYTES: usize = 64 << 10;

/// One forwarded port. Dropping it closes the listening socket and all connections.
#[derive(Debug)]
pub struct Forward {
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
    address: SocketAddr,
}

#[derive(Debug)]
struct Shared {
    /// The port in the box.
    port: u16,
    /// The network namespace of the box's present instance.
    network: Mutex<Option<Arc<File>>>,
    wake: EventFd,
    ended: AtomicBool,
    open: AtomicUsize,
    connections: Mutex<Vec<Arc<Pair>>>,
}

/// Both ends of a connection that is being carried.
#[derive(Debug)]
struct Pair {
    outside: TcpStream,
    inside: TcpStream,
}

impl Pair {
    fn close(&self) {
        for end in [&self.outside, &self.inside] {
            drop(end.shutdown(Shutdown::Both));
        }
    }
}

impl Forward {
    /// Listens at `address` on the host (port 0: any that is free) for the box's `port`.
    ///
    /// # Errors
    /// [`Error::System`], `EADDRINUSE` if somebody else listens there.
    pub fn listen(address: SocketAddr, port: u16, network: BorrowedFd<'_>) -> Result<Self> {
        let failed = |reason: io::Error| Error::system(format!("listen at {address}"), reason);
        let socket = TcpListener::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| Error::system("make an event", errno))?;
        let shared = Arc::new(Shared {
            port,
            network: Mutex::new(Some(copy(network)?)),
            wake,
            ended: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            connections: Mutex::default(),
        });
        let listener = {
            let shared = Arc::clone(&shared);
            thread::Builder::new()
                .name("box-port".to_owned())
                .spawn(move || accept(&shared, &socket))
                .map_err(|reason| Error::system("start a thread", reason))?
        };
        Ok(Self {
            shared,
            listener: Some(listener),
            address,
        })
    }

    /// Returns where it listens on the host.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port in the box.
    pub fn port(&self) -> u16 {
        self.shared.port
    }

    /// Leads new connections into another network, and ends those that are open: the programs that they led to are
    /// gone. Without a network, connections are turned away.
    ///
    /// # Errors
    /// [`Error::System`] without a free descriptor.
    pub fn lead_to(&self, network: Option<BorrowedFd<'_>>) -> Result<()> {
        *self.shared.network.lock() = network.map(copy).transpose()?;
        self.shared.close_all();
        Ok(())
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        let _ = self.shared.wake.write(1);
        if let Some(listener) = self.listener.take()
            && listener.join().is_err()
        {
            log::error!("the listener of a forwarded port has panicked");
        }
        self.shared.close_all();
    }
}

impl Shared {
    fn close_all(&self) {
        for pair in self.connections.lock().drain(..) {
            pair.close();
        }
    }
}

fn copy(network: BorrowedFd<'_>) -> Result<Arc<File>> {
    network
        .try_clone_to_owned()
        .map(|fd| Arc::new(File::from(fd)))
        .map_err(|reason| Error::system("duplicate a descriptor", reason))
}

fn accept(shared: &Arc<Shared>, socket: &TcpListener) {
    while !shared.ended.load(Ordering::SeqCst) {
        let mut watched = [
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(shared.wake.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut watched, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => {
                log::error!("a forwarded port is given up: {errno}");
                return;
            }
        }
        match socket.accept() {
            Ok((outside, _)) => begin(shared, outside),
            Err(reason) if reason.kind() == io::ErrorKind::WouldBlock => {}
            Err(reason) => {
                // Out of descriptors, most likely; the client waits in the queue.
                log::warn!("a connection to a forwarded port is not taken: {reason}");
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Carries a connection, or drops it, which its client sees.
fn begin(shared: &Arc<Shared>, outside: TcpStream) {
    if shared.open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
        shared.open.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let counted = Counted(Arc::clone(shared));
    let spawned = thread::Builder::new()
        .name("box-connect".to_owned())
        .spawn(move || {
            if let Err(reason) = carry(&counted.0, outside) {
                log::debug!("a forwarded connection ended: {reason}");
            }
            drop(counted);
        });
    if let Err(reason) = spawned {
        log::warn!("a forwarded connection has no thread: {reason}");
    }
}

/// Counts a connection until it is dropped.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn carry(shared: &Arc<Shared>, outside: TcpStream) -> io::Result<()> {
    outside.set_nonblocking(false)?;
    let network = shared.network.lock().clone();
    let Some(network) = network else {
        return Ok(());
    };
    // This thread goes into the box's network and stays there until it ends.
    setns(network.as_fd(), CloneFlags::CLONE_NEWNET)?;
    drop(network);
    let inside = connect(shared.port)?;
    for end in [&outside, &inside] {
        end.set_nodelay(true)?;
    }
    let pair = Arc::new(Pair { outside, inside });
    {
        let mut connections = shared.connections.lock();
        if shared.ended.load(Ordering::SeqCst) {
            return Ok(());
        }
        connections.push(Arc::clone(&pair));
    }
    let back = {
        let pair = Arc::clone(&pair);
        thread::Builder::new()
            .name("box-carry".to_owned())
            .spawn(move || one_way(&pair.inside, &pair.outside))?
    };
    one_way(&pair.outside, &pair.inside);
    drop(back.join());
    shared
        .connections
        .lock()
        .retain(|one| !Arc::ptr_eq(one, &pair));
    Ok(())
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port);
    TcpStream::connect_timeout(&v4, CONNECT_LIMIT)
        .or_else(|_| TcpStream::connect_timeout(&v6, CONNECT_LIMIT))
}

/// Carries what comes from one end to the other until there is no more.
fn one_way(mut from: &TcpStream, mut to: &TcpStream) {
    let mut chunk = vec![0u8; CHUNK_BYTES];
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(reason) if reason.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => {
                // Reset: the other side has to learn of it.
                drop(to.shutdown(Shutdown::Both));
                return;
            }
        };
        if to
            .write_all(chunk.get(..count).unwrap_or_default())
            .is_err()
        {
            drop(from.shutdown(Shutdown::Both));
            return;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}
