//! What the work on descriptors asks its caller for.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Something of the tree whose other half its surroundings hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// A terminal whose other end is outside: its index.
    Terminal(u32),
    /// A pipe likewise: its inode number.
    Pipe(u64),
    /// A unix socket whose peer is outside: the peer's inode number.
    Unix(u64),
}

/// Where a tree is captured.
pub trait Source {
    /// Root directory of the tree.
    fn root(&self) -> BorrowedFd<'_>;

    /// Opens a file of the view that no path leads to.
    ///
    /// # Errors
    /// If there is no such inode, or it cannot be opened like this.
    fn open_inode(&self, ino: u64, flags: i32) -> io::Result<OwnedFd>;

    /// The name under which [`Place::outside`] finds a counterpart of this at restore; `None` if the
    /// caller knows nothing of it.
    fn outside(&self, what: Outside) -> Option<String>;

    /// A duplicate of the master of a terminal that [`Source::outside`] has named, so that queued
    /// input can be read and put back. The caller must not write to it meanwhile.
    fn master(&self, index: u32) -> Option<OwnedFd>;
}

/// Where a tree is rebuilt.
pub trait Place {
    /// Root directory of the new tree.
    fn root(&self) -> BorrowedFd<'_>;

    /// Its network namespace, `None` for the calling thread's own.
    fn network(&self) -> Option<BorrowedFd<'_>>;

    /// Opens a file of the view that no path leads to.
    ///
    /// # Errors
    /// If there is no such inode, or it cannot be opened like this.
    fn open_inode(&self, ino: u64, flags: i32) -> io::Result<OwnedFd>;

    /// The caller's pid for a process or thread inside, if that has been made.
    fn pid(&self, inside: i32) -> Option<i32>;

    /// The counterpart of what [`Source::outside`] has named: a terminal's master with the index
    /// that it had, a pipe's end as the tree holds it, or a connected socket as the tree holds it. The
    /// caller keeps its own duplicate: what is returned here is closed with the last of the tree's.
    ///
    /// # Errors
    /// If it cannot be made.
    fn outside(&self, name: &str, what: Outside) -> io::Result<OwnedFd>;
}
