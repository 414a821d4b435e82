//! The sessions of one box.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use parking_lot::Mutex;

use super::{Ends, Kept, Session, pump};
use crate::error::{Error, Result};
use crate::instance::{Event, Instance, InstanceId, Standard, Started};
use crate::wire::Command;

/// The most sessions of a box that have ended and are kept for `logs`.
const ENDED_MAX: usize = 64;

/// What a command is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A terminal of this size.
    Terminal {
        /// Lines.
        rows: u16,
        /// Characters a line.
        columns: u16,
    },
    /// Pipes.
    Pipes {
        /// Whether there is one for input; `/dev/null` if not.
        input: bool,
    },
}

/// The sessions of one box, by number.
#[derive(Debug, Default)]
pub struct Sessions {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last: u32,
    sessions: BTreeMap<u32, Arc<Session>>,
}

impl Sessions {
    /// Starts a command in `instance` as a new session.
    ///
    /// # Errors
    /// Those of [`Instance::run`].
    pub fn open(&self, instance: &Instance, command: &Command, kind: Kind) -> Result<Arc<Session>> {
        let title = command
            .argv
            .iter()
            .map(|arg| String::from_utf8_lossy(arg))
            .collect::<Vec<_>>()
            .join(" ");
        let (is_terminal, size) = match kind {
            Kind::Terminal { rows, columns } => (true, (rows, columns)),
            Kind::Pipes { .. } => (false, (0, 0)),
        };
        let session = {
            let mut table = self.table.lock();
            table.last = table.last.wrapping_add(1).max(1);
            let session = Session::new(table.last, title, is_terminal, size)?;
            // Before it runs, or its end could be missed.
            table.sessions.insert(session.number, Arc::clone(&session));
            session
        };
        let started = start(&session, instance, command, kind)
            .and_then(|()| pump::start(Arc::clone(&session)));
        match started {
            Ok(()) => {
                self.forget_old();
                Ok(session)
            }
            Err(failure) => {
                self.remove(session.number);
                Err(failure)
            }
        }
    }

    /// Connects a session to its process in a tree that was rebuilt; makes it if it is not there any more, or was
    /// never in this box.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn rebuild(&self, kept: &Kept, process: Started, ends: Ends) -> Result<()> {
        let (session, is_new) = {
            let mut table = self.table.lock();
            match table.sessions.get(&kept.number) {
                // One whose command has ended is not pumped any more.
                Some(session) if !session.state.lock().drained => (Arc::clone(session), false),
                _ => {
                    table.last = table.last.max(kept.number);
                    let title = kept.title.clone();
                    let session = Session::new(kept.number, title, kept.is_terminal, kept.size)?;
                    table.sessions.insert(kept.number, Arc::clone(&session));
                    (session, true)
                }
            }
        };
        session.connect(process, ends)?;
        if is_new {
            pump::start(session)?;
        }
        Ok(())
    }

    /// Returns a session.
    pub fn get(&self, number: u32) -> Option<Arc<Session>> {
        self.table.lock().sessions.get(&number).cloned()
    }

    /// Returns all, oldest first.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.table.lock().sessions.values().cloned().collect()
    }

    /// Notes what happened in an instance of the box. What a session left behind there is no longer of interest.
    pub fn note(&self, instance: InstanceId, event: Event) {
        match event {
            Event::Exited { session, status } => {
                if let Some(session) = self.get(session) {
                    session.exited(instance, status);
                }
            }
            Event::Ended => {
                // Killed together with everything else, and init is not there to say so.
                for session in self.all() {
                    session.exited(instance, 128 + 9);
                }
            }
        }
    }

    /// Closes a session and forgets it.
    pub fn remove(&self, number: u32) {
        let session = self.table.lock().sessions.remove(&number);
        if let Some(session) = session {
            session.close();
        }
    }

    /// Closes and forgets all.
    pub fn clear(&self) {
        for session in self.all() {
            self.remove(session.number);
        }
    }

    fn forget_old(&self) {
        let ended: Vec<u32> = self
            .all()
            .iter()
            .filter(|session| session.state.lock().drained)
            .map(|session| session.number)
            .collect();
        let excess = ended.len().saturating_sub(ENDED_MAX);
        for number in ended.into_iter().take(excess) {
            self.remove(number);
        }
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.clear();
    }
}

fn start(session: &Session, instance: &Instance, command: &Command, kind: Kind) -> Result<()> {
    match kind {
        Kind::Terminal { rows, columns } => {
            let standard = Standard::Terminal { rows, columns };
            let (process, master) = instance.run(session.number, command, &standard)?;
            let ends = Ends {
                input: master,
                ..Ends::default()
            };
            session.connect_new(process, ends)
        }
        Kind::Pipes { input } => {
            let (in_box, to_box) = if input {
                let (read, write) = pipe()?;
                (Some(read), Some(write))
            } else {
                (None, None)
            };
            let (output, out_of_box) = pipe()?;
            let (errors, errors_of_box) = pipe()?;
            let standard = Standard::Pipes {
                input: in_box.as_ref().map(OwnedFd::as_fd),
                output: out_of_box.as_fd(),
                errors: errors_of_box.as_fd(),
            };
            let (process, _) = instance.run(session.number, command, &standard)?;
            let ends = Ends {
                input: to_box,
                output: Some(output),
                errors: Some(errors),
            };
            session.connect_new(process, ends)
        }
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    pipe2(OFlag::O_CLOEXEC).map_err(|errno| Error::system("make a pipe", errno))
}
