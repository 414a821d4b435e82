//! The command line's end of the socket: finds the daemon, or starts it.

use std::io::{self, BufRead as _, BufReader};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::endpoint::Endpoint;
use crate::failure::{Failure, FailureKind, Result};
use crate::output::note;
use crate::progress::Progress;
use crate::protocol::channel::{Channel, ReadError};
use crate::protocol::reply::Readiness;
use crate::protocol::{RESPONSE_BYTES_MAX, Request, Response, encode_request};

/// How long a daemon may take to open its store: after a crash the engine replays its log.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long to wait for a process that holds the store but does not listen: one that starts or ends.
const BUSY_LIMIT: Duration = Duration::from_secs(15);

/// How long a daemon may take to accept a connection.
const HELLO_LIMIT: Duration = Duration::from_secs(30);

/// How long a daemon may take to end after it has answered.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// How long to wait between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Client {
    channel: Channel,
    log: PathBuf,
}

impl Client {
    /// Connects to the daemon of `store`, starting one if none is there.
    pub(crate) fn connect(store: &Path) -> Result<Self> {
        let endpoint = Endpoint::of(store)?;
        let start = Instant::now();
        let mut told = false;
        loop {
            if let Some(client) = Self::try_connect(&endpoint)? {
                return Ok(client);
            }
            let failure = match start_daemon(store, &endpoint)? {
                Readiness::Ready { stale_mounts } => {
                    for dir in stale_mounts {
                        note(&format!(
                            "note: the daemon had died; its mount at '{dir}' was removed, \
                             `branchpoint mount` brings it back"
                        ));
                    }
                    continue;
                }
                Readiness::Failed(failure) => failure,
            };
            // Somebody else holds the store: another command's daemon that does not listen yet, or
            // one that is about to end. Whoever it is, the lock tells, not the socket.
            if failure.kind != FailureKind::Busy || start.elapsed() > BUSY_LIMIT {
                return Err(failure);
            }
            if !told && start.elapsed() > Duration::from_secs(1) {
                note(&format!("waiting: {}", failure.message));
                told = true;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Connects to the daemon of `store` if there is one.
    pub(crate) fn connect_if_running(store: &Path) -> Result<Option<Self>> {
        Self::try_connect(&Endpoint::of(store)?)
    }

    fn try_connect(endpoint: &Endpoint) -> Result<Option<Self>> {
        match endpoint.connect() {
            Ok(stream) => Self::greet(stream, endpoint),
            Err(reason) => match reason.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                io::ErrorKind::PermissionDenied => Err(Failure::new(
                    FailureKind::Denied,
                    "the store's daemon belongs to another user",
                )
                .hint("work as the user who owns the store")),
                _ => Err(Failure::io("connect to the daemon", &reason)),
            },
        }
    }

    /// Waits for the daemon's greeting. One that dies before has carried out nothing, and is as
    /// good as none.
    fn greet(stream: UnixStream, endpoint: &Endpoint) -> Result<Option<Self>> {
        let mut channel = Channel::new(stream);
        let line = match channel.read_line(RESPONSE_BYTES_MAX, Some(HELLO_LIMIT)) {
            Ok(Some(line)) => line,
            Ok(None) | Err(ReadError::Cut) => return Ok(None),
            Err(ReadError::Io(reason)) => {
                return Err(Failure::io("read from the daemon", &reason));
            }
            Err(ReadError::TooLong) => return Err(misunderstood("a line is too long")),
            Err(ReadError::TimedOut) => {
                return Err(
                    Failure::new(FailureKind::Daemon, "the daemon does not answer")
                        .hint(format!("its log is '{}'", endpoint.log_path().display())),
                );
            }
        };
        match serde_json::from_slice(&line) {
            Ok(Response::Hello { .. }) => Ok(Some(Self {
                channel,
                log: endpoint.log_path(),
            })),
            Ok(Response::Failed(failure)) => Err(failure),
            _ => Err(misunderstood("it does not begin with a greeting")),
        }
    }

    /// Asks for something that has one result.
    pub(crate) fn call<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T> {
        self.call_each(request, None, |_: Value| Ok(()))
    }

    /// Asks for something, with a descriptor, and hands on each item that comes before the result.
    pub(crate) fn call_each<I: DeserializeOwned, T: DeserializeOwned>(
        &mut self,
        request: &Request,
        fd: Option<BorrowedFd<'_>>,
        mut item: impl FnMut(I) -> Result<()>,
    ) -> Result<T> {
        let line = encode_request(request)?;
        // A daemon that turns a client away writes its reason before it closes: read it even then.
        let sent = self.channel.write_line(&line, fd);
        let mut progress = Progress::new();
        loop {
            let line = match self.channel.read_line(RESPONSE_BYTES_MAX, None) {
                Ok(Some(line)) => line,
                Ok(None) | Err(ReadError::Cut) => return Err(self.lost(sent.err())),
                Err(ReadError::TooLong) => return Err(misunderstood("a line is too long")),
                Err(ReadError::TimedOut) => return Err(self.lost(None)),
                Err(ReadError::Io(reason)) => return Err(self.lost(Some(reason))),
            };
            let response: Response = serde_json::from_slice(&line)
                .map_err(|reason| misunderstood(reason.to_string()))?;
            match response {
                Response::Progress(line) => progress.update(&line),
                Response::Item(value) => {
                    progress.finish();
                    item(typed(value)?)?;
                }
                Response::Hello { .. } => {}
                Response::Done(value) => return typed(value),
                Response::Failed(failure) => return Err(failure),
            }
        }
    }

    /// Waits until the daemon, which has been asked to end, is gone.
    pub(crate) fn wait_for_end(&mut self) {
        // Its end of the connection closes with the process.
        drop(self.channel.read_line(RESPONSE_BYTES_MAX, Some(STOP_LIMIT)));
    }

    fn lost(&self, reason: Option<io::Error>) -> Failure {
        let failure = Failure::new(FailureKind::Daemon, "the daemon ended before it answered")
            .hint(format!(
                "its log is '{}'; try again to start a new one",
                self.log.display()
            ));
        match reason {
            Some(reason) => failure.cause(reason.to_string()),
            None => failure,
        }
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|reason| misunderstood(reason.to_string()))
}

fn misunderstood(reason: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Daemon, "the daemon's answer makes no sense")
        .cause(reason)
        .hint("`branchpoint stop` ends it; the next command starts one that fits")
}

/// Starts a daemon and returns what it says when it is ready, or why it is not.
fn start_daemon(store: &Path, endpoint: &Endpoint) -> Result<Readiness> {
    let log = endpoint.open_log().map_err(|reason| {
        Failure::io(
            format!("open the log '{}'", endpoint.log_path().display()),
            &reason,
        )
    })?;
    let mut child = Command::new(program())
        .arg("--store")
        .arg(store)
        .args(["serve", "--background"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|reason| Failure::io("start the daemon", &reason))?;
    let Some(out) = child.stdout.take() else {
        return Err(Failure::new(
            FailureKind::Internal,
            "the daemon has no output",
        ));
    };
    // The reading is left to a thread because a pipe has no timeout; if the limit passes, the thread
    // ends with this process.
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(out).read_line(&mut line);
        drop(sender.send(read.map(|_| line)));
    });
    let see_log = format!("its log is '{}'", endpoint.log_path().display());
    match receiver.recv_timeout(START_LIMIT) {
        Ok(Ok(line)) if !line.is_empty() => {
            let readiness: Readiness =
                serde_json::from_str(&line).map_err(|reason| misunderstood(reason.to_string()))?;
            if matches!(readiness, Readiness::Failed(_)) {
                // It is about to end; collecting it keeps a waiting command from piling up corpses.
                drop(child.wait());
            }
            Ok(readiness)
        }
        Ok(_) => {
            let failure = Failure::new(FailureKind::Daemon, "the daemon did not start");
            let failure = match child.wait() {
                Ok(status) => failure.cause(format!("it ended with {status}")),
                Err(reason) => failure.cause(reason.to_string()),
            };
            Err(failure.hint(see_log))
        }
        Err(_) => Err(Failure::new(
            FailureKind::Daemon,
            format!(
                "the daemon was not ready within {} s",
                START_LIMIT.as_secs()
            ),
        )
        .hint(format!(
            "it goes on starting as process {}; {see_log}",
            child.id()
        ))),
    }
}

/// Returns this program's file, which an upgrade may have replaced meanwhile.
fn program() -> PathBuf {
    std::env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

/// Says on standard output, which leads to the command that started this daemon, how it went.
pub(crate) fn announce(readiness: &Readiness) -> Result<()> {
    #[derive(Serialize)]
    struct Line<'a>(&'a Readiness);
    let line = serde_json::to_string(&Line(readiness))
        .map_err(|reason| Failure::new(FailureKind::Internal, reason.to_string()))?;
    crate::output::write_out(&format!("{line}\n"))
}
