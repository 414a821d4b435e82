//! `stop`.

use crate::cli::Stop;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::mountinfo;
use crate::output::{harmless, note};
use crate::protocol::Request;
use crate::protocol::reply::Stopped;

use super::mount;

pub(super) fn run(context: &Context, args: &Stop) -> Result<Exit> {
    let client = match context.client_if_running()? {
        // A daemon that was killed left mounts: the next one clears them away as it starts.
        None if left_behind(context)? => Some(context.client()?),
        client => client,
    };
    let stopped = match client {
        Some(mut client) => {
            context.leave_mount()?;
            let stopped: Stopped = client.call(&Request::Stop { force: args.force })?;
            client.wait_for_end();
            stopped
        }
        None => Stopped {
            stopped: false,
            daemon_pid: None,
            mounts: Vec::new(),
            unsynced: None,
        },
    };
    if let Some(reason) = &stopped.unsynced {
        note(&format!(
            "warning: the last of what was written may not survive a power cut: {}",
            harmless(reason)
        ));
    }
    if !stopped.stopped {
        note("note: no daemon is running for this store");
    }
    context.output.print(&stopped, |stopped| {
        let mut text: String = stopped
            .mounts
            .iter()
            .map(|mounted| format!("unmounted {}\n", mount::describe(mounted)))
            .collect();
        if let Some(pid) = stopped.daemon_pid {
            text.push_str(&format!("daemon {pid} ended\n"));
        }
        text
    })?;
    Ok(Exit::Done)
}

/// Says whether something is still mounted from the store.
fn left_behind(context: &Context) -> Result<bool> {
    let store = context
        .store
        .canonicalize()
        .unwrap_or_else(|_| context.store.clone());
    Ok(mountinfo::read()?.iter().any(|entry| entry.is_of(&store)))
}
