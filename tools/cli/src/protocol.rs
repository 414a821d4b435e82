//! What the command line and the daemon say to each other.
//!
//! Lines of JSON over the Unix socket in the store's directory. The daemon says `hello` to whom it
//! accepts, so that a client which hears nothing knows that nothing of it was carried out. A client
//! sends `{"version":1,"request":{…}}`; the daemon answers with any number of `progress` and `item`
//! lines and then exactly one `done` or `failed` line. A connection may carry several requests,
//! one after the other. A descriptor that a request needs (`export`, `import`; for commands in boxes the
//! stream over which terminal and daemon talk) travels beside its line as `SCM_RIGHTS`, so that bytes
//! never go through JSON.
//!
//! The version changes when a peer of another version could misunderstand; the daemon answers
//! only its own, except that [`Request::Stop`] is understood whatever the version, so that a new
//! program can always end an old daemon.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::failure::{Failure, FailureKind};

pub(crate) mod base64;
pub(crate) mod boxes;
pub(crate) mod channel;
pub(crate) mod path;
pub(crate) mod reply;

use path::WirePath;

/// The version of everything in this module.
pub(crate) const VERSION: u32 = 1;

/// The longest request in bytes. A path is at most 4 KiB, a label and a name far shorter.
pub(crate) const REQUEST_BYTES_MAX: usize = 256 << 10;

/// The longest line of an answer in bytes: one item, which may hold the patch of one file.
pub(crate) const RESPONSE_BYTES_MAX: usize = 64 << 20;

/// Which branch or state is meant: by name, or by the view in which the client works.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    /// A name given by the user.
    pub(crate) named: Option<String>,
    /// The mount point above the client's working directory.
    pub(crate) view: Option<WirePath>,
}

/// Which mounts are meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Target {
    /// The one at this directory.
    Dir(WirePath),
    /// The one of this branch.
    Branch(String),
    /// All of them.
    All,
    /// The only one.
    Only,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Ends the daemon.
    Stop {
        /// Detaches mounts that are in use instead of refusing.
        #[serde(default)]
        force: bool,
    },
    /// Counts and sizes.
    Stats {},
    /// Shows a branch, or a checkpoint read-only, at a directory.
    Mount {
        /// A branch, or with `read_only` anything that names a state.
        revision: String,
        /// Where.
        dir: WirePath,
        /// Refuses writes.
        read_only: bool,
        /// The client's mount namespace: a mount in another one would not be seen there.
        namespace: Option<WirePath>,
        /// Allows a directory that holds something.
        over: bool,
        /// Switches of the kernel adapter that are not to have their default.
        options: Map<String, Value>,
    },
    /// Removes mounts.
    Unmount {
        /// Which.
        target: Target,
        /// Detaches one that is in use instead of refusing.
        force: bool,
    },
    /// Lets a mount show another branch.
    Switch {
        /// The branch to show.
        branch: String,
        /// Which mount.
        target: Target,
    },
    /// Makes a branch.
    BranchCreate {
        /// Its name.
        name: String,
        /// Where it starts.
        from: Place,
    },
    /// All branches, one an item.
    BranchList {},
    /// One branch.
    BranchShow {
        /// Which.
        branch: Place,
    },
    /// Gives a branch another name.
    BranchRename {
        /// The name it has.
        old: String,
        /// The name it gets.
        new: String,
    },
    /// Removes a branch.
    BranchDelete {
        /// Which.
        name: String,
    },
    /// Makes a checkpoint.
    CheckpointCreate {
        /// Of which branch.
        branch: Place,
        /// A name for it.
        label: Option<String>,
        /// Waits for the disk.
        durable: bool,
    },
    /// All checkpoints, one an item.
    CheckpointList {},
    /// One checkpoint.
    CheckpointShow {
        /// Which.
        revision: String,
    },
    /// Removes a checkpoint.
    CheckpointDelete {
        /// Which.
        revision: String,
    },
    /// Brings a branch back to a checkpoint.
    Rollback {
        /// Which branch.
        branch: Place,
        /// The state to go back to.
        to: String,
        /// Keeps what is left behind as a branch of this name.
        keep: Option<String>,
    },
    /// Something about boxes.
    Boxes(boxes::BoxRequest),
    /// The tree of branches and checkpoints, one node an item.
    Log {},
    /// What differs between two states, one change an item.
    Diff {
        /// The old state.
        a: String,
        /// The new state.
        b: Place,
        /// Adds the text that changed.
        patch: bool,
        /// Adds the counts of lines that changed.
        stat: bool,
    },
    /// Brings the changes of one branch into another.
    Merge {
        /// Whose changes.
        source: String,
        /// Who gets them.
        into: Place,
    },
    /// Brings the changes of a branch into a real directory.
    Apply {
        /// Whose changes.
        source: String,
        /// The directory, the store's base by default.
        to: Option<WirePath>,
        /// Only says what would be done.
        dry_run: bool,
    },
    /// Writes a tar archive to the descriptor sent along.
    Export {
        /// Of which state.
        source: Place,
    },
    /// Reads a tar archive from the descriptor sent along.
    Import {
        /// Into which branch.
        branch: Place,
    },
    /// Frees what nothing can see any more.
    Collect {
        /// Only says what would be freed.
        dry_run: bool,
    },
    /// Verifies the store.
    Check {},
}

/// The outermost form of a request.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope {
    version: u32,
    request: Value,
}

/// How far a long operation is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgressLine {
    /// Steps done.
    pub(crate) done: u64,
    /// Steps in all, if that is known.
    pub(crate) total: Option<u64>,
    /// What is counted.
    pub(crate) what: String,
}

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// The daemon is there and will read requests.
    Hello {
        /// The version that it speaks.
        version: u32,
    },
    /// The operation goes on.
    Progress(ProgressLine),
    /// One of several results.
    Item(Value),
    /// The end of an operation that succeeded.
    Done(Value),
    /// The end of an operation that did not.
    Failed(Failure),
}

/// Returns the line, without its end, that carries `request`.
pub(crate) fn encode_request(request: &Request) -> Result<Vec<u8>, Failure> {
    let request = serde_json::to_value(request).map_err(unserialisable)?;
    serde_json::to_vec(&Envelope {
        version: VERSION,
        request,
    })
    .map_err(unserialisable)
}

/// Reads the request in `line`, which anybody may have sent.
pub(crate) fn decode_request(line: &[u8]) -> Result<Request, Failure> {
    let malformed = |reason: serde_json::Error| {
        Failure::new(
            FailureKind::Daemon,
            "the daemon does not understand the request",
        )
        .cause(reason.to_string())
    };
    let envelope: Envelope = serde_json::from_slice(line).map_err(malformed)?;
    let version = envelope.version;
    match serde_json::from_value(envelope.request) {
        Ok(request @ Request::Stop { .. }) => Ok(request),
        Ok(request) if version == VERSION => Ok(request),
        Err(reason) if version == VERSION => Err(malformed(reason)),
        _ => Err(Failure::new(
            FailureKind::Daemon,
            format!("the daemon speaks protocol {VERSION}, this program speaks {version}"),
        )
        .hint("`branchpoint stop` ends the daemon; the next command starts one that fits")),
    }
}

fn unserialisable(reason: serde_json::Error) -> Failure {
    Failure::new(FailureKind::Internal, "a message cannot be written").cause(reason.to_string())
}

#[cfg(test)]
mod tests;
