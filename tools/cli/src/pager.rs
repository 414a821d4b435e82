//! Shows what is longer than the screen page by page, if somebody is looking.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGINT;

use crate::failure::{Failure, FailureKind, Result};
use crate::output::write_out;

/// Prints `text`, by way of the user's pager where standard output is a terminal.
///
/// `PAGER` names it, `less` is the default; empty or `cat` is none.
pub(crate) fn show(text: &str) -> Result<()> {
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    if !io::stdout().is_terminal() || matches!(pager.trim(), "" | "cat") {
        return write_out(text);
    }
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(&pager).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Ends at once if all fits the screen, leaves it there, and cuts long lines instead of folding.
        command.env("LESS", "FRXS");
    }
    if std::env::var_os("LESSCHARSET").is_none() {
        command.env("LESSCHARSET", "utf-8");
    }
    let Ok(mut child) = command.spawn() else {
        return write_out(text);
    };
    // Ctrl-C is for the pager, which stays; without this it would be left alone with the terminal.
    let noted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, noted)
        .map_err(|reason| Failure::io("leave signals to the pager", &reason))?;
    if let Some(mut to) = child.stdin.take() {
        match to.write_all(text.as_bytes()) {
            // Whoever leaves early has seen enough.
            Err(reason) if reason.kind() != io::ErrorKind::BrokenPipe => {
                return Err(Failure::io("write to the pager", &reason));
            }
            _ => {}
        }
    }
    let ended = child
        .wait()
        .map_err(|reason| Failure::io("wait for the pager", &reason))?;
    match ended.code() {
        // The shell did not find it.
        Some(126 | 127) => write_out(text),
        Some(0) => Ok(()),
        _ => Err(Failure::new(
            FailureKind::Io,
            format!("the pager '{pager}' ended with {ended}"),
        )
        .hint("PAGER=cat does without")),
    }
}
