//! The daemon's end of the socket to a box's init.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

use super::Event;
use crate::error::{Error, Result};
use crate::wire::{self, Order, Word};

/// What init answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) word: Word,
    pub(super) fds: Vec<OwnedFd>,
}

/// A connection to an init.
#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    /// Where the listening thread puts answers; locked from an order to its answer.
    answers: Mutex<Option<Receiver<Answer>>>,
    listener: Option<JoinHandle<()>>,
}

impl Link {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            answers: Mutex::new(None),
            listener: None,
        }
    }

    /// Gives the first order and waits for its answer, before anybody listens.
    pub(super) fn first(&mut self, order: &Order, fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.send(order, fds)?;
        match wire::receive(&self.stream) {
            Ok(Some((word, fds))) => done(Answer { word, fds }).map(drop),
            Ok(None) => Err(Error::Ended),
            Err(reason) => Err(Error::system("hear from the init of a box", reason)),
        }
    }

    /// Starts the thread that listens to init.
    pub(super) fn listen(&mut self, events: impl Fn(Event) + Send + 'static) -> Result<()> {
        let failed = |reason: io::Error| Error::system("start a thread", reason);
        let stream = self.stream.try_clone().map_err(failed)?;
        let (sender, receiver) = channel();
        let listener = thread::Builder::new()
            .name("box-link".to_owned())
            .spawn(move || {
                loop {
                    match wire::receive(&stream) {
                        Ok(Some((Word::Exited { session, status }, _))) => {
                            events(Event::Exited { session, status });
                        }
                        // Nobody waits for an answer any more only while the instance is dropped.
                        Ok(Some((word, fds))) => drop(sender.send(Answer { word, fds })),
                        Ok(None) => break,
                        Err(reason) => {
                            log::error!("the init of a box cannot be understood: {reason}");
                            break;
                        }
                    }
                }
                drop(sender);
                events(Event::Ended);
            })
            .map_err(failed)?;
        *self.answers.get_mut() = Some(receiver);
        self.listener = Some(listener);
        Ok(())
    }

    /// Gives an order and waits for its answer.
    pub(super) fn ask(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> Result<Answer> {
        let answers = self.answers.lock();
        self.send(order, fds)?;
        let answer = answers
            .as_ref()
            .and_then(|answers| answers.recv().ok())
            .ok_or(Error::Ended)?;
        done(answer)
    }

    /// Waits for the listening thread; init must have ended.
    pub(super) fn join(&mut self) {
        drop(self.stream.shutdown(std::net::Shutdown::Both));
        if let Some(listener) = self.listener.take() {
            // An event may drop the last handle to the instance: a thread does not wait for itself.
            if listener.thread().id() != thread::current().id() && listener.join().is_err() {
                log::error!("a listener to the init of a box has panicked");
            }
        }
    }

    fn send(&self, order: &Order, fds: &[BorrowedFd<'_>]) -> Result<()> {
        wire::send(&self.stream, order, fds).map_err(|reason| match reason.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Error::Ended,
            _ => Error::system("talk to the init of a box", reason),
        })
    }
}

fn done(answer: Answer) -> Result<Answer> {
    match answer.word {
        Word::Failed { step, errno } => {
            Err(Error::system(step, io::Error::from_raw_os_error(errno)))
        }
        _ => Ok(answer),
    }
}
