//! What an image says of processes.

use serde::{Deserialize, Serialize};

use super::order::Relation;
use crate::resource::settings::Settings;
use crate::resource::signals::Actions;
use crate::resource::thread::Thread;
use crate::resource::timers::Timers;

/// A process of an image. All numbers are those inside the box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number, parent, group and session.
    pub relation: Relation,
    /// What it is.
    pub life: Life,
}

/// Whether a process lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// It has ended with this status, as `waitpid` gives it, and its parent has not noticed.
    Zombie(i32),
    /// It lives.
    Alive(Box<Alive>),
}

/// A living process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// Its threads, the first one first.
    pub threads: Vec<Thread>,
    /// What it does with signals.
    pub actions: Actions,
    /// Signals pending for it, as `siginfo_t`.
    pub pending: Vec<Vec<u8>>,
    /// Its timers.
    pub timers: Timers,
    /// Other settings.
    pub settings: Settings,
    /// The signal by which it is stopped, 0 if it is not.
    pub stopped: i32,
}
