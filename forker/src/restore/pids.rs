//! The place of a restore, with the numbers of what was made.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::resource::files::{Outside, Place};

/// Adds the numbers to a place.
pub(super) struct Numbered<'a> {
    pub(super) place: &'a dyn Place,
    pub(super) pids: HashMap<i32, i32>,
}

impl Place for Numbered<'_> {
    fn root(&self) -> BorrowedFd<'_> {
        self.place.root()
    }

    fn network(&self) -> Option<BorrowedFd<'_>> {
        self.place.network()
    }

    fn open_inode(&self, ino: u64, flags: i32) -> io::Result<OwnedFd> {
        self.place.open_inode(ino, flags)
    }

    fn pid(&self, inside: i32) -> Option<i32> {
        self.pids.get(&inside).copied()
    }

    fn outside(&self, name: &str, what: Outside) -> io::Result<OwnedFd> {
        self.place.outside(name, what)
    }
}
