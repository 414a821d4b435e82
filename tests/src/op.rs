//! Random operations. They pick what they work on by index modulo what there is, so that a sequence
//! stays meaningful when some of its operations are left out: that makes shrinking work.

mod pick;
mod strategy;

pub use strategy::{Profile, ops};

use branchpoint_fs::attr::{AllocateMode, RenameMode, SeekTo, SetTime, XattrMode};

/// An index modulo the number of candidates.
pub type Pick = u16;

/// Which name an operation uses.
#[derive(Clone, Copy, Debug)]
pub enum Name {
    /// One of a few names, whether it is taken or not.
    Any(u8),
    /// The name of an entry that exists.
    Taken(Pick),
}

/// One random operation.
#[derive(Clone, Debug)]
#[expect(
    missing_docs,
    reason = "they are those of `act::Act` before things are picked"
)]
pub enum Op {
    Lookup {
        dir: Pick,
        name: Name,
    },
    Create {
        dir: Pick,
        name: Name,
        perm: u32,
        umask: bool,
        owner: u8,
    },
    Mkdir {
        dir: Pick,
        name: Name,
        perm: u32,
        umask: bool,
        owner: u8,
    },
    Special {
        dir: Pick,
        name: Name,
        what: u8,
    },
    Symlink {
        dir: Pick,
        name: Name,
        len: u16,
    },
    Link {
        node: Pick,
        dir: Pick,
        name: Name,
    },
    LinkDirectory {
        node: Pick,
        dir: Pick,
    },
    Unlink {
        dir: Pick,
        name: Name,
    },
    Rmdir {
        dir: Pick,
        name: Name,
    },
    Rename {
        dir: Pick,
        name: Name,
        to: Pick,
        to_name: Name,
        mode: RenameMode,
    },
    List {
        dir: Pick,
    },
    Readlink {
        node: Pick,
    },
    Read {
        file: Pick,
        offset: u64,
        len: u64,
    },
    Write {
        file: Pick,
        offset: u64,
        len: u64,
        seed: u8,
        kill: bool,
    },
    Append {
        file: Pick,
        len: u64,
        seed: u8,
    },
    Truncate {
        file: Pick,
        size: u64,
        owner: u8,
    },
    Allocate {
        file: Pick,
        mode: AllocateMode,
        offset: u64,
        len: u64,
    },
    Copy {
        from: Pick,
        from_offset: u64,
        to: Pick,
        to_offset: u64,
        len: u64,
    },
    Seek {
        file: Pick,
        offset: u64,
        to: SeekTo,
    },
    Chmod {
        node: Pick,
        perm: u32,
    },
    Chown {
        node: Pick,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    SetTimes {
        node: Pick,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    },
    SetXattr {
        node: Pick,
        name: u8,
        len: u32,
        seed: u8,
        mode: XattrMode,
    },
    GetXattr {
        node: Pick,
        name: u8,
    },
    ListXattrs {
        node: Pick,
    },
    RemoveXattr {
        node: Pick,
        name: u8,
    },
    Pin {
        file: Pick,
    },
    Unpin {
        pin: Pick,
    },
    /// Compare the whole tree.
    Compare,
    /// Freeze the head, with a label or without.
    Checkpoint {
        label: bool,
        durable: bool,
    },
    /// A new branch from a branch (even) or a checkpoint (odd).
    Branch {
        from: Pick,
    },
    /// Go on with another branch.
    Use {
        branch: Pick,
    },
    /// Roll the branch back to a checkpoint, keeping the abandoned line or not.
    Rollback {
        to: Pick,
        keep: bool,
    },
    /// Delete a branch that is not in use.
    DeleteBranch {
        branch: Pick,
    },
    /// Delete a checkpoint.
    DeleteCheckpoint {
        checkpoint: Pick,
    },
    /// Close the store and open it again.
    Reopen,
    /// Remove what nothing can see.
    Collect,
}
