//! Boxes: what is asked and answered. `docs/json.md` describes the answers.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Place;
use super::path::{WireBytes, WirePath};

/// A command for a box.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    /// The program and its arguments.
    pub(crate) argv: Vec<WireBytes>,
    /// What the environment has beyond the usual, as `NAME=value`.
    pub(crate) env: Vec<WireBytes>,
    /// The working directory.
    pub(crate) cwd: Option<WirePath>,
    /// Who runs it.
    pub(crate) user: Option<String>,
    /// The size of its terminal, in lines and characters, if it is to have one.
    pub(crate) terminal: Option<(u16, u16)>,
    /// Whether it gets input.
    pub(crate) input: bool,
}

/// Where a new box works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Origin {
    /// On this branch, or, if the box is known by name, on its own.
    Branch(Place),
    /// On a new branch made from this state, called like the box.
    From(String),
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum BoxRequest {
    /// Starts a box.
    Start {
        /// Its name, by default that of the branch.
        name: Option<String>,
        /// Where it works.
        origin: Origin,
        /// The base that the store must have.
        base: Option<WirePath>,
        /// The most memory in bytes.
        memory_bytes: Option<u64>,
        /// The most processes.
        pids: Option<u64>,
        /// The most processor time, in thousandths of a processor.
        cpu_millis: Option<u64>,
        /// Its first command.
        run: Option<Run>,
    },
    /// Runs a command; a stream to its user comes along unless it is to run alone.
    Exec {
        /// In which box.
        name: String,
        /// What.
        run: Run,
        /// Whether nobody is attached.
        detach: bool,
    },
    /// Attaches the stream that comes along to a session.
    Attach {
        /// `BOX/NUMBER` or `BOX`.
        session: String,
    },
    /// All boxes, one an item.
    List {},
    /// One box with all that is known of it.
    Show {
        /// Which.
        name: String,
    },
    /// What came out of a session lately.
    Logs {
        /// `BOX/NUMBER` or `BOX`.
        session: String,
    },
    /// Forwards a port, or lists what is forwarded, one an item.
    Port {
        /// Of which box.
        name: String,
        /// What is added: where on the host, and the port in the box.
        add: Option<(SocketAddr, u16)>,
        /// The port of the host that is removed.
        remove: Option<u16>,
    },
    /// Takes a checkpoint of files and processes.
    Checkpoint {
        /// Of which box.
        name: String,
        /// A name for it.
        label: Option<String>,
        /// Waits for the disk.
        durable: bool,
    },
    /// Lets a box go on from a checkpoint.
    Rollback {
        /// Which.
        name: String,
        /// Where to.
        checkpoint: String,
        /// The branch that what is left becomes.
        keep: Option<String>,
    },
    /// Makes siblings, one an item.
    Fork {
        /// Of a box or a checkpoint with processes.
        of: String,
        /// How many.
        count: u32,
    },
    /// Merges a box into the one that it was forked of, and lets its processes take that one's place.
    Merge {
        /// Which.
        child: String,
        /// Another one than that.
        into: Option<String>,
    },
    /// Ends a box.
    Stop {
        /// Which.
        name: String,
        /// How long its processes may take, in seconds; nothing kills them at once.
        timeout: Option<u32>,
    },
    /// Forgets a box.
    Remove {
        /// Which.
        name: String,
        /// Ends it first.
        force: bool,
    },
}

/// A box.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoxInfo {
    /// What names it: the same as `name`.
    pub(crate) id: String,
    /// Its name.
    pub(crate) name: String,
    /// `running` or `stopped`.
    pub(crate) state: BoxState,
    /// The branch on which it works.
    pub(crate) branch: String,
    /// When it was made, in microseconds since 1970.
    pub(crate) created_us: u64,
    /// Its limits.
    pub(crate) limits: BoxLimits,
    /// Its forwarded ports.
    pub(crate) ports: Vec<BoxPort>,
    /// Its sessions, oldest first.
    pub(crate) sessions: Vec<BoxSession>,
    /// Its processes but the first, by pid; `list` has only their count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processes: Option<Vec<BoxProcess>>,
    /// How many there are.
    pub(crate) process_count: u64,
    /// Its first process, as the host numbers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) init_pid: Option<i32>,
    /// How long the operation took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) elapsed_us: Option<u64>,
}

/// Whether a box runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BoxState {
    /// Its first process runs.
    Running,
    /// It can be started again.
    Stopped,
}

/// What a box may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BoxLimits {
    /// The most memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_bytes: Option<u64>,
    /// The most processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pids: Option<u64>,
    /// The most processor time, in thousandths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_millis: Option<u64>,
}

/// A forwarded port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BoxPort {
    /// Where the host listens, address and port.
    pub(crate) host: SocketAddr,
    /// The port in the box.
    #[serde(rename = "box")]
    pub(crate) inside: u16,
}

/// A session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoxSession {
    /// `BOX/NUMBER`.
    pub(crate) id: String,
    /// Its command.
    pub(crate) command: String,
    /// Whether it has a terminal.
    pub(crate) terminal: bool,
    /// Its process, as the box numbers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pid: Option<i32>,
    /// Whether somebody is attached.
    pub(crate) attached: bool,
    /// How it ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u8>,
    /// How many bytes have come out of it.
    pub(crate) output_bytes: u64,
}

/// A process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoxProcess {
    /// Its pid in the box.
    pub(crate) pid: i32,
    /// Its parent's pid in the box.
    pub(crate) parent_pid: i32,
    /// Its pid on the host.
    pub(crate) host_pid: i32,
    /// Its user.
    pub(crate) uid: u32,
    /// Its state, a letter as in `ps`.
    pub(crate) state: char,
    /// Its memory.
    pub(crate) resident_bytes: u64,
    /// The count of its threads.
    pub(crate) threads: u64,
    /// Its program and arguments, or the name of the program in brackets.
    pub(crate) command: String,
}

/// How being attached to a session ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoxLeft {
    /// The session, `BOX/NUMBER`.
    pub(crate) id: String,
    /// The command's status, if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u8>,
    /// Whether somebody else is attached now.
    pub(crate) replaced: bool,
}

/// What came out of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoxLog {
    /// The session, `BOX/NUMBER`.
    pub(crate) id: String,
    /// What is kept of it.
    pub(crate) output: String,
    /// The exact bytes, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_base64: Option<String>,
    /// How many bytes came in all; more than are kept if it has said much.
    pub(crate) output_bytes: u64,
}

/// A checkpoint of a box.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoxCheckpoint {
    /// Its id.
    pub(crate) id: String,
    /// Its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    /// The box.
    pub(crate) name: String,
    /// The branch on which it works.
    pub(crate) branch: String,
    /// The checkpoint before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<String>,
    /// How long the processes stood still.
    pub(crate) pause_us: u64,
    /// How long all of it took.
    pub(crate) total_us: u64,
    /// How much memory was copied.
    pub(crate) memory_bytes: u64,
    /// Whether it was on the disk before this was said.
    pub(crate) durable: bool,
    /// What was not kept exactly, and how.
    pub(crate) report: Vec<ReportLine>,
}

/// What became of one piece of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReportLine {
    /// `exact`, `degraded` or `refused`.
    pub(crate) verdict: String,
    /// The process, as the box numbers it.
    pub(crate) pid: i32,
    /// What it is about.
    pub(crate) what: String,
    /// Why.
    pub(crate) reason: String,
    /// What can be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) way_out: Option<String>,
}

/// A box that went back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoxRollback {
    /// The checkpoint.
    pub(crate) id: String,
    /// The box.
    pub(crate) name: String,
    /// The branch on which it works.
    pub(crate) branch: String,
    /// The branch that what was left has become.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<String>,
    /// From the request until the processes ran again.
    pub(crate) switch_us: u64,
    /// How long all of it took.
    pub(crate) total_us: u64,
    /// How many processes there are.
    pub(crate) processes: u64,
}

/// A sibling, or why there is none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoxFork {
    /// What names it: the same as `name`.
    pub(crate) id: String,
    /// The checkpoint from which it goes on.
    pub(crate) checkpoint: String,
    /// Its name.
    pub(crate) name: String,
    /// The branch on which it works.
    pub(crate) branch: String,
    /// Why it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// How long it took.
    pub(crate) elapsed_us: u64,
}

/// A box that has become another one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BoxMerge {
    /// The box that goes on with its processes.
    pub(crate) id: String,
    /// The box that it was; its branch stays.
    pub(crate) merged: String,
    /// The checkpoint that was taken of it.
    pub(crate) checkpoint: String,
    /// The branch into which its files were merged.
    pub(crate) branch: String,
    /// Paths added.
    pub(crate) added: u64,
    /// Paths removed.
    pub(crate) removed: u64,
    /// Paths whose content changed.
    pub(crate) modified: u64,
    /// Paths whose attributes alone changed.
    pub(crate) metadata: u64,
    /// Paths renamed.
    pub(crate) renamed: u64,
    /// From the request until the processes ran in their new place.
    pub(crate) switch_us: u64,
    /// How long all of it took.
    pub(crate) total_us: u64,
}
