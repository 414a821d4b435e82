//! `box`: the command line of boxes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::text;

/// Runs process trees whose files are a branch
///
/// A box is a process tree of its own (own processes, users as on the host, own network, own /dev and
/// /proc) whose root directory is a branch. Its name, its sessions and its forwarded ports stay when its
/// processes are replaced. Boxes need root.
#[derive(Debug, Subcommand)]
pub(crate) enum BoxCommand {
    Start(BoxStart),
    Exec(BoxExec),
    Shell(BoxShell),
    Attach(BoxAttach),
    List(BoxList),
    Show(BoxShow),
    Logs(BoxLogs),
    Port(BoxPort),
    Checkpoint(BoxCheckpoint),
    Rollback(BoxRollback),
    Fork(BoxFork),
    Merge(BoxMerge),
    Stop(BoxStop),
    Kill(BoxKill),
    Remove(BoxRemove),
}

/// Starts a box
///
/// Without --branch and --from, the box works on the branch of the mount you are in, or the only branch. The
/// COMMAND runs in the background as the box's first session: `box logs` shows what it says, `box attach` goes there.
/// When it ends, the box stays until `box stop`. A box that was stopped is started again by its name.
#[derive(Debug, Args)]
pub(crate) struct BoxStart {
    /// The name of the box, also its host name [default: the name of the branch]
    #[arg(long, value_parser = text())]
    pub(crate) name: Option<String>,
    /// The branch on which it works
    #[arg(long, value_name = "BRANCH", value_parser = text(), conflicts_with = "from")]
    pub(crate) branch: Option<String>,
    /// Makes a branch from this state, called like the box, to work on
    #[arg(long, value_name = "BRANCH|CHECKPOINT", value_parser = text(), requires = "name")]
    pub(crate) from: Option<String>,
    /// If there is no store yet, makes one on this base; / gives a box this machine's programs
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) base: Option<PathBuf>,
    /// The most memory: 512M, 2G [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Limits")]
    pub(crate) memory: Option<u64>,
    /// The most processes and threads [default: no limit]
    #[arg(long, value_name = "COUNT", help_heading = "Limits")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) pids: Option<u64>,
    /// The most processor time, in processors: 1.5 [default: no limit]
    #[arg(long, value_name = "COUNT", value_parser = processors, help_heading = "Limits")]
    pub(crate) cpu: Option<u64>,
    /// Gives the command a terminal
    #[arg(short = 't', long)]
    pub(crate) terminal: bool,
    /// How the command is run
    #[command(flatten)]
    pub(crate) how: BoxHow,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// How a command is run.
#[derive(Debug, Args)]
pub(crate) struct BoxHow {
    /// Sets a variable of the environment, or hands on the one of this name
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<std::ffi::OsString>,
    /// The working directory in the box [default: /]
    #[arg(short = 'w', long, value_name = "DIR")]
    pub(crate) workdir: Option<PathBuf>,
    /// Who runs it: a name or number of the box's own /etc/passwd [default: root]
    #[arg(short = 'u', long, value_name = "USER[:GROUP]", value_parser = text())]
    pub(crate) user: Option<String>,
}

/// Runs a command in a box
///
/// Ends with the command's status. Signals, and with -t the size of the terminal, are passed on. If this
/// program goes away, the command is hung up, as by ssh. With -t, Ctrl-] d leaves the command running, to be found again
/// by `box attach`.
#[derive(Debug, Args)]
pub(crate) struct BoxExec {
    /// Gives the command a terminal
    #[arg(short = 't', long)]
    pub(crate) terminal: bool,
    /// Passes standard input on
    #[arg(short = 'i', long)]
    pub(crate) interactive: bool,
    /// Returns at once and leaves the command running as a session
    #[arg(short = 'd', long, conflicts_with = "interactive")]
    pub(crate) detach: bool,
    /// How the command is run
    #[command(flatten)]
    pub(crate) how: BoxHow,
    /// Which box
    #[arg(value_name = "BOX", value_parser = text())]
    pub(crate) name: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// Opens a shell in a box
///
/// The same as `box exec -t -i BOX` with bash, or sh where there is no bash.
#[derive(Debug, Args)]
pub(crate) struct BoxShell {
    /// Which box
    #[arg(value_name = "BOX", value_parser = text())]
    pub(crate) name: String,
    /// How the shell is run
    #[command(flatten)]
    pub(crate) how: BoxHow,
}

/// Goes to a session that is running
///
/// Shows what came out of it lately, then what comes. Ctrl-] d leaves it running.
#[derive(Debug, Args)]
pub(crate) struct BoxAttach {
    /// BOX/NUMBER, or BOX for its youngest session
    #[arg(value_name = "SESSION", value_parser = text())]
    pub(crate) session: String,
}

/// Lists the boxes
#[derive(Debug, Args)]
pub(crate) struct BoxList {}

/// Shows a box: its processes, sessions, ports and limits
#[derive(Debug, Args)]
pub(crate) struct BoxShow {
    /// Which box
    #[arg(value_name = "BOX", value_parser = text())]
    pub(crate) name: String,
}

/// Shows what came out of a session lately
///
/// The last 256 KiB of each session are kept while the box runs.
#[derive(Debug, Args)]
pub(crate) struct BoxLogs {
    /// BOX/NUMBER, or BOX for its first session
    #[arg(value_name = "SESSION", value_parser = text())]
    pub(crate) session: String,
}

/// Forwards ports of the host to a box
///
/// Without a port, lists what is forwarded.
#[derive(Debug, Args)]
pub(crate) struct BoxPort {
    /// Which box
    #[arg(value_name = "BOX", value_parser = text())]
    pub(crate) name: String,
    /// A port of the host, and the port of the box that answers; the host listens on 127.0.0.1 unless
    /// an address is given; port 0 of the host is any that is free
    #[arg(value_name = "[ADDRESS:]HOST:BOX", value_parser = ports)]
    pub(crate) ports: Option<(SocketAddr, u16)>,
    /// Forwards this port of the host no more
    #[arg(long, value_name = "HOST", conflicts_with = "ports")]
    pub(crate) remove: Option<u16>,
}

/// Takes a checkpoint of a box: files and processes of one instant
///
/// The box stands still while its memory is copied (`pause_us`) and goes on while that is written to the store. What
/// cannot be kept exactly is reported; what cannot be kept at all is refused, and the box goes on unharmed.
#[derive(Debug, Args)]
pub(crate) struct BoxCheckpoint {
    /// Which box
    #[arg(value_name = "BOX", value_parser = text())]
    pub(crate) name: String,
    /// A name for the checkpoint
    #[arg(short = 'm', long, value_parser = text())]
    pub(crate) label: Option<String>,
    /// Waits until it is on the disk
    #[arg(long)]
    pub(crate) durable: bool,
}

/// Lets a box go on from a checkpoint
///
/// Its name, its sessions and its forwarded ports stay; what ran and what was written since is gone, unless --keep gives
/// the files a branch. If the old processes cannot be rebuilt, the box goes on as it is.
#[derive(Debug, Args)]
pub(crate) struct BoxRollback {
    /// Which box
    #[arg(value_name = "BOX", value_parser = text())]
    pub(crate) name: String,
    /// Where to: an id, a unique beginning of one, a label, or BRANCH~N
    #[arg(value_name = "CHECKPOINT", value_parser = text())]
    pub(crate) checkpoint: String,
    /// Keeps the files as they are now in a branch of this name
    #[arg(long, value_name = "BRANCH", value_parser = text())]
    pub(crate) keep: Option<String>,
}

/// Makes siblings that go on from a box or a checkpoint
///
/// Each runs in a box and on a branch of its own, named after the origin with a number. A box that is forked goes on. What
/// fails for one does not keep the others from running: there is one result for each.
#[derive(Debug, Args)]
pub(crate) struct BoxFork {
    /// A box, or a checkpoint with processes
    #[arg(value_name = "BOX|CHECKPOINT", value_parser = text())]
    pub(crate) of: String,
    /// How many
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) count: u32,
}

/// Lets a sibling take the place of the box that it was forked of
///
/// The sibling's files are merged into that box's branch, three-way as by `merge`; its processes go on under that box's
/// name, with its forwarded ports. What ran there is gone. If there are conflicts, they are listed, and both boxes go on
/// as they are. The sibling's branch stays.
#[derive(Debug, Args)]
pub(crate) struct BoxMerge {
    /// The sibling
    #[arg(value_name = "CHILD", value_parser = text())]
    pub(crate) child: String,
    /// The box that it is to become [default: the one that it was forked of]
    #[arg(long, value_name = "BOX", value_parser = text())]
    pub(crate) into: Option<String>,
}

/// Ends a box
///
/// All processes are asked to end; those that have not within the time are killed. The branch stays, and the box can be
/// started again.
#[derive(Debug, Args)]
pub(crate) struct BoxStop {
    /// Which box
    #[arg(value_name = "BOX", value_parser = text())]
    pub(crate) name: String,
    /// How long its processes may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) timeout: u32,
}

/// Ends a box at once
#[derive(Debug, Args)]
pub(crate) struct BoxKill {
    /// Which box
    #[arg(value_name = "BOX", value_parser = text())]
    pub(crate) name: String,
}

/// Forgets a box that is not running; its branch stays
#[derive(Debug, Args)]
pub(crate) struct BoxRemove {
    /// Which box
    #[arg(value_name = "BOX", value_parser = text())]
    pub(crate) name: String,
    /// Ends it first if it is running
    #[arg(long)]
    pub(crate) force: bool,
}

/// Reads a size with an optional unit.
fn size(argument: &str) -> Result<u64, String> {
    let wrong = || "expected a size like 512M or 2G".to_owned();
    let digits = argument.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = argument.get(digits.len()..).unwrap_or_default();
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(wrong)?;
    // Less than that does not even hold a shell, and the kernel would only say "killed".
    if bytes < 4 << 20 {
        return Err("a box needs at least 4M".to_owned());
    }
    Ok(bytes)
}

/// Reads a count of processors, in thousandths.
fn processors(argument: &str) -> Result<u64, String> {
    let wrong =
        || "expected a count like 1.5, with at most three digits after the point".to_owned();
    let (whole, part) = argument.split_once('.').unwrap_or((argument, "0"));
    if part.is_empty() || part.len() > 3 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let part: u64 = format!("{part:0<3}").parse().map_err(|_| wrong())?;
    let millis = whole
        .checked_mul(1000)
        .and_then(|millis| millis.checked_add(part));
    millis
        .filter(|millis| *millis >= 10)
        .ok_or_else(|| "a box needs at least 0.01 processors".to_owned())
}

/// Reads `[ADDRESS:]HOST:BOX`.
fn ports(argument: &str) -> Result<(SocketAddr, u16), String> {
    let wrong = || "expected HOST:BOX, two ports, or ADDRESS:HOST:BOX".to_owned();
    let (host, inside) = argument.rsplit_once(':').ok_or_else(wrong)?;
    let inside: u16 = inside.parse().map_err(|_| wrong())?;
    if inside == 0 {
        return Err("a box has no port 0".to_owned());
    }
    let (address, port) = match host.rsplit_once(':') {
        Some((address, port)) => {
            let address = address.trim_start_matches('[').trim_end_matches(']');
            (address.parse::<IpAddr>().map_err(|_| wrong())?, port)
        }
        None => (IpAddr::V4(Ipv4Addr::LOCALHOST), host),
    };
    let port: u16 = port.parse().map_err(|_| wrong())?;
    Ok((SocketAddr::new(address, port), inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_processors_are_read() {
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("2GiB"), Ok(2 << 30));
        for wrong in ["", "M", "1X", "1.5G", "99999999999T", "1", "-1M"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(processors("1.5"), Ok(1500));
        assert_eq!(processors("2"), Ok(2000));
        assert_eq!(processors("0.05"), Ok(50));
        for wrong in ["", "0", "1.", "1.2345", "-1", "x"] {
            assert!(processors(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ports_are_read() {
        assert_eq!(
            ports("8080:80"),
            Ok(("127.0.0.1:8080".parse().unwrap(), 80))
        );
        assert_eq!(ports("0.0.0.0:1:2"), Ok(("0.0.0.0:1".parse().unwrap(), 2)));
        assert_eq!(ports("[::1]:1:2"), Ok(("[::1]:1".parse().unwrap(), 2)));
        for wrong in ["", "80", "80:", ":80", "80:0", "x:1:2", "70000:1"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
    }
}
