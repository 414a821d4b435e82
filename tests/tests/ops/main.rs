//! What programs do to files, through a mount: one file for each family of operations.
//!
//! Each test mounts a store of its own, and `check` must be clean after it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod acl;
mod allocate;
mod attr;
mod base;
mod copy;
mod create;
mod directory;
mod exec;
mod link;
mod lock;
mod map;
mod names;
mod notify;
mod permission;
mod readdir;
mod rename;
mod special;
mod statfs;
mod switch;
mod time;
mod truncate;
mod unlink;
mod write;
mod xattr;

use std::fmt::Debug;
use std::io;
use std::path::Path;

/// Checks that a call failed with this errno.
#[track_caller]
fn fails<T: Debug>(result: io::Result<T>, errno: i32) {
    let error = result.expect_err("it should have failed");
    assert_eq!(error.raw_os_error(), Some(errno), "{error}");
}

fn nlink(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(&path.symlink_metadata().unwrap())
}

fn ino(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&path.symlink_metadata().unwrap())
}

fn mode(path: &Path) -> u32 {
    std::os::unix::fs::MetadataExt::mode(&path.symlink_metadata().unwrap()) & 0o7777
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
