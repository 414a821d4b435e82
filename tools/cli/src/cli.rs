//! The command line as types. The doc comments are the help text and the manual pages.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;

use crate::exit;

pub(crate) mod boxes;

/// Checkpoint, branch and roll back a directory tree in less than a millisecond.
///
/// A store holds all states of a tree. Its branches can be mounted like any filesystem, worked in with
/// any program, frozen as checkpoints, brought back, compared and merged. The first command that
/// needs it starts a daemon for the store, which goes on serving the mounts until `branchpoint stop`.
///
/// Wherever a CHECKPOINT is asked for, its id, four or more of its first digits, its label, or BRANCH~N
/// will do: BRANCH~0 is the youngest checkpoint of BRANCH, BRANCH~1 the one before. If several fit,
/// a branch goes before an id, an id before BRANCH~N, then a label, then first digits. Inside of a
/// mounted branch the commands mean that branch and its store unless told otherwise.
#[derive(Debug, Parser)]
#[command(name = "branchpoint", version, max_term_width = 100)]
#[command(after_help = exit::HELP, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// What holds for every command.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What holds for every command.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The store [default: that of the mount you are in, else branchpoint in the user's data
    /// directory]
    #[arg(
        long,
        global = true,
        help_heading = "Everywhere",
        env = "BRANCHPOINT_STORE",
        hide_env_values = true
    )]
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) store: Option<PathBuf>,
    /// Prints results as JSON: one object, or one a line (docs/json.md)
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(Init),
    Mount(Mount),
    #[command(visible_alias = "umount")]
    Unmount(Unmount),
    #[command(subcommand)]
    Branch(Branch),
    Checkpoint(Checkpoint),
    Rollback(Rollback),
    Switch(Switch),
    #[command(subcommand, name = "box")]
    Boxes(boxes::BoxCommand),
    Log(Log),
    Diff(Diff),
    Merge(Merge),
    Apply(Apply),
    Export(Export),
    Import(Import),
    Gc(Gc),
    Stats(Stats),
    Check(Check),
    Doctor(Doctor),
    Serve(Serve),
    Stop(Stop),
    Completions(Completions),
    Man(Man),
}

/// Makes a store
///
/// The directory must be empty or not exist yet. The store starts with one branch, main.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Where; the directory is made if it does not exist [default: as with --store]
    #[arg(value_name = "STORE", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
    /// A directory whose content all branches start from; it is read in place, never written and
    /// not copied
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) base: Option<PathBuf>,
}

/// Shows a branch at a directory
///
/// Whatever is written there goes to the branch. With --read-only, shows a checkpoint.
#[derive(Debug, Args)]
pub(crate) struct Mount {
    /// The branch, or with --read-only a checkpoint
    #[arg(value_name = "BRANCH|CHECKPOINT", value_parser = text())]
    pub(crate) revision: String,
    /// An empty directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
    /// Shows a checkpoint, which nobody can change
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Mounts over a directory that is not empty and hides what it holds
    #[arg(long)]
    pub(crate) over: bool,
    /// Sets a switch of the kernel adapter, for measuring what it is worth: writeback_cache=false,
    /// threads=1; a wrong name lists them all
    #[arg(long, value_name = "SWITCH=VALUE", value_parser = switch, hide_short_help = true)]
    #[arg(help_heading = "Measuring")]
    pub(crate) fuse: Vec<(String, serde_json::Value)>,
}

/// Removes a mount
///
/// Everything written there reaches its branch before. A mount in use is not removed.
#[derive(Debug, Args)]
pub(crate) struct Unmount {
    /// The directory or the branch [default: the only mount]
    #[arg(value_name = "DIR|BRANCH", value_hint = ValueHint::DirPath)]
    pub(crate) target: Option<PathBuf>,
    /// Removes all mounts of the store
    #[arg(long, conflicts_with = "target")]
    pub(crate) all: bool,
    /// Detaches the mount even if programs are using it; what they write after that is lost
    #[arg(long)]
    pub(crate) force: bool,
}

/// Makes, lists and removes branches
#[derive(Debug, Subcommand)]
pub(crate) enum Branch {
    Create(BranchCreate),
    List(BranchList),
    Show(BranchShow),
    Rename(BranchRename),
    Delete(BranchDelete),
}

/// Makes a branch; takes the same time whatever the size
#[derive(Debug, Args)]
pub(crate) struct BranchCreate {
    /// The name of the new branch
    #[arg(value_parser = text())]
    pub(crate) name: String,
    /// Where it starts [default: the branch of the mount you are in, or the only branch]
    #[arg(long, value_name = "BRANCH|CHECKPOINT", value_parser = text())]
    pub(crate) from: Option<String>,
}

/// Lists the branches
#[derive(Debug, Args)]
pub(crate) struct BranchList {}

/// Shows one branch
#[derive(Debug, Args)]
pub(crate) struct BranchShow {
    /// Which [default: the branch of the mount you are in, or the only branch]
    #[arg(value_name = "BRANCH", value_parser = text())]
    pub(crate) name: Option<String>,
}

/// Gives a branch another name
///
/// The branch may be mounted meanwhile.
#[derive(Debug, Args)]
pub(crate) struct BranchRename {
    /// The name it has
    #[arg(value_name = "OLD", value_parser = text())]
    pub(crate) old: String,
    /// The name it gets
    #[arg(value_name = "NEW", value_parser = text())]
    pub(crate) new: String,
}

/// Removes a branch; its checkpoints stay
///
/// What was written to it since its youngest checkpoint is gone.
#[derive(Debug, Args)]
pub(crate) struct BranchDelete {
    /// Which
    #[arg(value_name = "BRANCH", value_parser = text())]
    pub(crate) name: String,
}

/// Freezes the state of a branch under an id
///
/// `branchpoint checkpoint [BRANCH]` makes one. A branch that is called like one of the commands
/// below is named after two dashes: `branchpoint checkpoint -- list`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Checkpoint {
    /// Lists, shows and removes checkpoints.
    #[command(subcommand)]
    pub(crate) command: Option<CheckpointCommand>,
    /// Making one.
    #[command(flatten)]
    pub(crate) create: CheckpointCreate,
}

/// How a checkpoint is made.
#[derive(Debug, Args)]
pub(crate) struct CheckpointCreate {
    /// Of which branch [default: the branch of the mount you are in, or the only branch]
    #[arg(value_name = "BRANCH", value_parser = text())]
    pub(crate) branch: Option<String>,
    /// A name by which the checkpoint can be found
    #[arg(short = 'm', long, value_parser = text())]
    pub(crate) label: Option<String>,
    /// Returns only when the checkpoint would survive a power cut
    #[arg(long)]
    pub(crate) durable: bool,
}

/// What can be done with checkpoints beyond making them.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    List(CheckpointList),
    Show(CheckpointShow),
    Delete(CheckpointDelete),
}

/// Lists the checkpoints, oldest first
#[derive(Debug, Args)]
pub(crate) struct CheckpointList {}

/// Shows one checkpoint
#[derive(Debug, Args)]
pub(crate) struct CheckpointShow {
    /// Which
    #[arg(value_name = "CHECKPOINT", value_parser = text())]
    pub(crate) revision: String,
}

/// Removes a checkpoint; what only it could see is freed by gc
#[derive(Debug, Args)]
pub(crate) struct CheckpointDelete {
    /// Which
    #[arg(value_name = "CHECKPOINT", value_parser = text())]
    pub(crate) revision: String,
}

/// Brings a branch back to a checkpoint
///
/// What was written since the youngest checkpoint is dropped, unless it is kept under a new name. Newer
/// checkpoints stay, so a second rollback can go forward again. A mount of the branch shows the old
/// state at once; open files stay open and have its content.
#[derive(Debug, Args)]
pub(crate) struct Rollback {
    /// The state to go back to
    #[arg(value_name = "CHECKPOINT", value_parser = text())]
    pub(crate) to: String,
    /// Which branch [default: the branch of the mount you are in, or the only branch]
    #[arg(long, value_name = "BRANCH", value_parser = text())]
    pub(crate) branch: Option<String>,
    /// Keeps what is left behind as a new branch
    #[arg(long, value_name = "NAME", value_parser = text())]
    pub(crate) keep: Option<String>,
}

/// Lets a mount show another branch, in place
///
/// The mount point stays, and open files stay open with the content of the other branch.
#[derive(Debug, Args)]
pub(crate) struct Switch {
    /// The branch to show
    #[arg(value_parser = text())]
    pub(crate) branch: String,
    /// Which mount [default: the one you are in, or the only one]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) at: Option<PathBuf>,
}

/// Draws the tree of branches and checkpoints
///
/// The oldest on top. Full dots are frozen, rings are heads of branches. Private is what a state holds
/// beyond the one above it, shared is what it has from those above.
#[derive(Debug, Args)]
pub(crate) struct Log {}

/// Lists what differs between two states
///
/// Each is a branch or a checkpoint. The letters: A added, D removed, M content modified, m only
/// attributes changed, R renamed, T became another kind of file.
#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The old state
    #[arg(value_name = "A", value_parser = text())]
    pub(crate) a: String,
    /// The new state [default: the branch of the mount you are in, or the only branch]
    #[arg(value_name = "B", value_parser = text())]
    pub(crate) b: Option<String>,
    /// Prints a patch that `git apply` takes: text, binary files, links, modes and renames
    #[arg(short, long)]
    pub(crate) patch: bool,
    /// Counts the lines that changed in text files
    #[arg(long)]
    pub(crate) stat: bool,
}

/// Brings the changes of one branch into another
///
/// What changed in BRANCH since the common ancestor is taken over, file by file. If both sides changed a file, the conflicts are listed and nothing is merged.
#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// Whose changes: a branch or a checkpoint
    #[arg(value_name = "BRANCH", value_parser = text())]
    pub(crate) source: String,
    /// Who gets them [default: the branch of the mount you are in, or main]
    #[arg(long, value_name = "BRANCH", value_parser = text())]
    pub(crate) into: Option<String>,
}

/// Brings the changes of a branch into a real directory
///
/// Each file is written beside its place, synced and renamed, so a crash leaves the old or the
/// new one.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// Whose changes: a branch or a checkpoint
    #[arg(value_name = "BRANCH", value_parser = text())]
    pub(crate) source: String,
    /// The directory [default: the base of the store]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) to: Option<PathBuf>,
    /// Only says what would be done
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Does not ask before it changes the directory
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Writes a state as a tar archive to standard output
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// A branch or a checkpoint [default: the branch of the mount you are in, or the only branch]
    #[arg(value_name = "BRANCH|CHECKPOINT", value_parser = text())]
    pub(crate) source: Option<String>,
}

/// Reads a tar archive into a branch
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Into which branch
    #[arg(value_name = "BRANCH", value_parser = text())]
    pub(crate) branch: String,
    /// The archive [default: standard input]
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

/// Frees what no branch and no checkpoint can see any more
#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// Only says what would be freed
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Shows counts and sizes of the store and its daemon
#[derive(Debug, Args)]
pub(crate) struct Stats {}

/// Verifies the whole store
///
/// Looks at reachability, checksums, link counts and the index of changes. Says what is broken and which checkpoints and branches depend on it. Ends with exit code 1 if
/// anything is.
#[derive(Debug, Args)]
pub(crate) struct Check {}

/// Shows which abilities of the kernel are there
///
/// Ends with exit code 1 if mounting is impossible here.
#[derive(Debug, Args)]
pub(crate) struct Doctor {}

/// Runs the daemon in the foreground
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Says on standard output when it is ready, then lets go of the terminal
    #[arg(long, hide = true)]
    pub(crate) background: bool,
}

/// Ends the daemon: writes everything to disk and removes its mounts
///
/// Refuses while boxes run or mounts are in use.
#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// Ends boxes, and detaches mounts that programs are using, instead of refusing
    #[arg(long)]
    pub(crate) force: bool,
}

/// Prints completions for a shell
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

/// Prints the manual page, or writes all of them
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Writes branchpoint.1 and a page for each command into this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

/// Reads `name=value`, where the value is a number, true or false.
fn switch(argument: &str) -> Result<(String, serde_json::Value), &'static str> {
    let wrong = "expected NAME=VALUE with a number, true or false";
    let (name, value) = argument.split_once('=').ok_or(wrong)?;
    let value: serde_json::Value = serde_json::from_str(value).map_err(|_| wrong)?;
    if value.is_u64() || value.is_boolean() {
        Ok((name.to_owned(), value))
    } else {
        Err(wrong)
    }
}

/// Reads an argument that must be Unicode, and says which one is not.
fn text() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().try_map(|argument| {
        argument
            .into_string()
            .map_err(|_| "names, labels and ids are UTF-8, this is not")
    })
}

#[cfg(test)]
mod tests;
