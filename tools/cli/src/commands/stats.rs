//! `stats`.

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::duration;
use crate::protocol::Request;
use crate::protocol::path::printable;
use crate::protocol::reply::Stats;

use super::{mount, number_lines};

pub(super) fn run(context: &Context) -> Result<Exit> {
    let stats: Stats = context.client()?.call(&Request::Stats {})?;
    context.output.print(&stats, describe)?;
    Ok(Exit::Done)
}

fn describe(stats: &Stats) -> String {
    let store = printable(&stats.store, stats.store_base64.as_deref());
    let read_only = if stats.read_only { " (read-only)" } else { "" };
    let mut text = format!("store '{store}'{read_only}\n");
    if let Some(base) = &stats.base {
        text.push_str(&format!("  base: '{base}'\n"));
    }
    text.push_str(&number_lines(&stats.counts));
    text.push_str(&format!(
        "daemon {}\n  running for: {}\n",
        stats.daemon_pid,
        duration(stats.uptime_us)
    ));
    if stats.mounts.is_empty() {
        text.push_str("nothing is mounted\n");
    } else {
        text.push_str("mounted:\n");
        for mounted in &stats.mounts {
            text.push_str(&format!("  {}\n", mount::describe(mounted)));
        }
    }
    text
}
