//! Mounts that a daemon left behind when it was killed.
//!
//! Whoever calls this holds the store's lock, so whatever is still mounted from the store has
//! nobody to serve it: every access fails with "not connected".

use std::path::Path;

use branchpoint_fs::fuse::clean_stale_mount;

use crate::failure::Result;
use crate::mountinfo;

/// Detaches the mounts of `store` that nobody serves and returns where they were.
pub(crate) fn remove(store: &Path) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    // The youngest first: it may lie on top of another.
    for entry in mountinfo::read()?
        .iter()
        .rev()
        .filter(|entry| entry.is_of(store))
    {
        let dir = entry.dir.display().to_string();
        match clean_stale_mount(&entry.dir) {
            Ok(true) => {
                log::warn!("removed the mount at '{dir}', which a daemon that died had left");
                removed.push(dir);
            }
            // Somebody serves it: a copy of this store at the same place in another container.
            Ok(false) => {}
            Err(error) => log::error!("cannot remove the dead mount at '{dir}': {error}"),
        }
    }
    Ok(removed)
}
