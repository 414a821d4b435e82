//! The terminal in which this program runs.

use std::io;
use std::os::fd::AsFd as _;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

use crate::failure::{Failure, Result};
use crate::sys;

/// Returns its size in lines and characters, if there is one.
pub(super) fn size() -> Option<(u16, u16)> {
    let known = |size: &(u16, u16)| size.0 > 0 && size.1 > 0;
    let of_input = sys::terminal_size(io::stdin().as_fd()).filter(known);
    of_input.or_else(|| sys::terminal_size(io::stdout().as_fd()).filter(known))
}

/// Hands every key to the box instead of acting on it, until it is dropped.
#[derive(Debug)]
pub(super) struct Raw {
    before: Termios,
}

impl Raw {
    /// Begins, if standard input is a terminal.
    pub(super) fn begin() -> Result<Option<Self>> {
        let input = io::stdin();
        let Ok(before) = tcgetattr(input.as_fd()) else {
            return Ok(None);
        };
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(input.as_fd(), SetArg::TCSADRAIN, &raw)
            .map_err(|errno| Failure::io("set up the terminal", &errno.into()))?;
        Ok(Some(Self { before }))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs no care.
        let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSADRAIN, &self.before);
    }
}
