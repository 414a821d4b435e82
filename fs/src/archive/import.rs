//! Reading an archive into a branch.

mod entry;
mod place;
mod reader;
mod sparse;

use std::io::Read;
use std::sync::Arc;

use serde::Serialize;

use crate::attr::{Caller, SetAttr, SetTime, Timestamp};
use crate::error::Result;
use crate::id::Ino;
use crate::progress::{Progress, Watch};
use crate::store::Store;
use crate::view::View;

use entry::Member;
use reader::Reader;

/// What an import brought in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportOutcome {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices and named pipes.
    pub special_files: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Absolute paths that were taken as paths below the root of the branch.
    pub made_relative: u64,
    /// Extended attributes of a kind that a branch does not keep.
    pub attributes_skipped: u64,
}

/// Merges the archive in `input` into a branch: all of it or, if anything goes wrong, nothing. What
/// has the path of a member is replaced by it, as tar does; directories are merged. The branch's
/// open view answers ESTALE afterwards.
///
/// # Errors
/// [`Error::BadInput`](crate::Error::BadInput) for what is no archive, ends early, or has a member that would lie outside of
/// the branch; [`Error::BranchBusy`](crate::Error::BranchBusy) if the branch is changed meanwhile;
/// [`Error::NoSuchBranch`](crate::Error::NoSuchBranch); [`Error::Io`](crate::Error::Io) if `input` fails.
pub fn import(
    store: &Arc<Store>,
    branch: &str,
    input: impl Read,
    progress: &mut Watch<'_>,
) -> Result<ImportOutcome> {
    let scratch = store.scratch_on(branch)?;
    let mut importer = Importer {
        view: scratch.view(),
        outcome: ImportOutcome::default(),
        dir_times: Vec::new(),
    };
    let mut reader = Reader::new(input);
    let mut done = 0;
    while let Some(head) = reader.next()? {
        let member = Member::parse(head, &mut importer.outcome)?;
        importer.member(&member, &mut reader)?;
        done += 1;
        progress(Progress {
            done,
            total: None,
            what: "importing files",
        })?;
    }
    reader.drain()?;
    importer.set_dir_times()?;
    let outcome = importer.outcome;
    store.adopt_scratch(branch, scratch, None)?;
    Ok(outcome)
}

struct Importer<'a> {
    view: &'a View,
    outcome: ImportOutcome,
    /// Set at the end: what is made in a directory changes its time.
    dir_times: Vec<(Ino, Timestamp)>,
}

impl Importer<'_> {
    fn set_dir_times(&self) -> Result<()> {
        for (ino, mtime) in &self.dir_times {
            let change = SetAttr {
                mtime: Some(SetTime::At(*mtime)),
                ..SetAttr::default()
            };
            match self.view.setattr(Caller::ROOT, *ino, &change) {
                // A later member took its place.
                Err(error) if error.errno() == nix::errno::Errno::ESTALE => {}
                other => {
                    other?;
                }
            }
        }
        Ok(())
    }
}
