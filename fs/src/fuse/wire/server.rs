//! A session: the agreement at its start, and the threads that answer until its end.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::errno::Errno;

use crate::fuse::options::MountOptions;
use crate::fuse::pace::Pace;
use crate::fuse::wire::abi::MAJOR;
use crate::fuse::wire::channel::Channel;
use crate::fuse::wire::dispatch::{Dispatcher, Outcome};
use crate::fuse::wire::init::{Agreed, encode_version};
use crate::fuse::wire::request::{Header, Operation};

/// Room for the header and the structure of a request beside the bytes of a WRITE.
const MARGIN_BYTES: usize = 4096;

/// The kernel sends nothing to a smaller buffer.
const BUFFER_BYTES_MIN: usize = 8192;

/// Agrees with the kernel on the far side of `device`, which has just been mounted.
pub(in crate::fuse) fn agree(
    device: &Arc<OwnedFd>,
    options: &MountOptions,
    passthrough: bool,
) -> io::Result<Agreed> {
    let channel = Channel::new(Arc::clone(device));
    let mut buffer = vec![0; BUFFER_BYTES_MIN + MARGIN_BYTES];
    loop {
        let Some(bytes) = channel.receive(&mut buffer)? else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let (header, body) =
            Header::split(&buffer[..bytes]).map_err(|error| invalid(error.to_string()))?;
        let hello = match Operation::decode(header.opcode, body) {
            Ok(Operation::Init(hello)) => hello,
            _ => {
                channel.answer(header.unique, Some(Errno::EIO), &[]);
                let what = format!("the first request is of kind {}", header.opcode);
                return Err(invalid(what));
            }
        };
        let mut out = Vec::new();
        if hello.major > MAJOR {
            encode_version(&mut out);
            channel.answer(header.unique, None, &out);
            continue;
        }
        return match Agreed::on(&hello, options, passthrough) {
            Ok(agreed) => {
                agreed.encode(&mut out);
                channel.answer(header.unique, None, &out);
                Ok(agreed)
            }
            Err(errno) => {
                channel.answer(header.unique, Some(errno), &[]);
                let (major, minor) = (hello.major, hello.minor);
                let what = format!("the kernel speaks version {major}.{minor} of FUSE");
                Err(io::Error::new(io::ErrorKind::Unsupported, what))
            }
        };
    }
}

/// The threads of a session. They end when the session does: by unmounting or by force.
#[derive(Debug)]
pub(in crate::fuse) struct Server {
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Starts the threads that answer what comes from `device`.
    pub(in crate::fuse) fn start(
        device: &Arc<OwnedFd>,
        dispatcher: Dispatcher,
        options: &MountOptions,
        agreed: &Agreed,
        pace: Arc<Pace>,
    ) -> io::Result<Self> {
        let first = Channel::new(Arc::clone(device));
        let dispatcher = Arc::new(dispatcher);
        let bytes = usize::try_from(agreed.write_bytes_max).unwrap_or(usize::MAX);
        let bytes = bytes.max(BUFFER_BYTES_MIN).saturating_add(MARGIN_BYTES);
        let mut threads = Vec::new();
        for index in 0..options.threads.max(1) {
            let own = (index > 0 && options.clone_device).then(|| first.cloned());
            let channel = match own {
                Some(Ok(channel)) => channel,
                None => first.clone(),
                // Whoever mounts with the setuid helper need not be allowed to open the device.
                Some(Err(error)) => {
                    log::info!("the threads of the session share one descriptor: {error}");
                    first.clone()
                }
            };
            let (dispatcher, pace) = (Arc::clone(&dispatcher), Arc::clone(&pace));
            let thread = std::thread::Builder::new()
                .name(format!("bp-fuse-{index}"))
                .spawn(move || serve(&channel, &dispatcher, &pace, bytes))?;
            threads.push(thread);
        }
        Ok(Self { threads })
    }

    /// Returns whether the session has ended.
    pub(in crate::fuse) fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end of the session.
    pub(in crate::fuse) fn join(self) -> io::Result<()> {
        let mut ended = Ok(());
        for thread in self.threads {
            let result = thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a thread of the session panicked")));
            ended = ended.and(result);
        }
        ended
    }
}

/// Answers requests until the session ends.
fn serve(
    channel: &Channel,
    dispatcher: &Dispatcher,
    pace: &Pace,
    buffer_bytes: usize,
) -> io::Result<()> {
    let mut buffer = vec![0; buffer_bytes];
    let mut out = Vec::new();
    while let Some(bytes) = channel.receive(&mut buffer)? {
        out.clear();
        // Without a header there is nobody to answer.
        let Ok((header, body)) = Header::split(&buffer[..bytes]) else {
            log::error!("the kernel sent {bytes} bytes that are no request");
            continue;
        };
        match carry_out(dispatcher, &header, body, &mut out) {
            Outcome::Done => channel.answer(header.unique, None, &out),
            Outcome::Failed(errno) => channel.answer(header.unique, Some(errno), &[]),
            Outcome::Silent => continue,
        }
        pace.answered(channel.device());
    }
    Ok(())
}

/// Carries out one request. A mistake of ours in it must not keep the program waiting for ever, nor
/// take a thread away from the others.
fn carry_out(dispatcher: &Dispatcher, header: &Header, body: &[u8], out: &mut Vec<u8>) -> Outcome {
    let Ok(operation) = Operation::decode(header.opcode, body) else {
        log::error!("a request of kind {} is too short", header.opcode);
        return Outcome::Failed(Errno::EIO);
    };
    let done = catch_unwind(AssertUnwindSafe(|| {
        dispatcher.carry_out(header, &operation, out)
    }));
    done.unwrap_or_else(|_| {
        log::error!("a request of kind {} ended in a panic", header.opcode);
        Outcome::Failed(Errno::EIO)
    })
}
