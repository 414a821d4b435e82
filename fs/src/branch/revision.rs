//! From what a person types to a branch or a checkpoint.

use std::sync::Arc;

use crate::branch::Revision;
use crate::error::{Error, Result};
use crate::id::CheckpointId;
use crate::layout::record::CheckpointRecord;
use crate::store::Store;

/// Fewer digits than this are not taken for the beginning of an id.
const PREFIX_DIGITS_MIN: usize = 4;
const ID_DIGITS: usize = 16;

impl Store {
    /// Returns what `revision` stands for. Tried in this order, the first that fits wins:
    ///
    /// 1. the name of a branch;
    /// 2. the full id of a checkpoint, 16 hexadecimal digits;
    /// 3. `BRANCH~N`: the newest checkpoint of a branch (N = 0), the one before it (1), and so on;
    /// 4. a label, if only one checkpoint has it;
    /// 5. the first four or more digits of an id, if only one begins so.
    ///
    /// # Errors
    /// [`Error::NoSuchRevision`], [`Error::AmbiguousRevision`], [`Error::TooFarBack`], and those of
    /// the engine.
    pub fn resolve(self: &Arc<Self>, revision: &str) -> Result<Revision> {
        if let Some(branch) = self.find_branch(revision)? {
            return Ok(Revision::Branch {
                name: revision.to_owned(),
                head: branch.head,
            });
        }
        if let Ok(id) = revision.parse::<CheckpointId>()
            && let Some(record) = self.find_checkpoint(id)?
        {
            return Ok(Revision::Checkpoint {
                id,
                layer: record.layer,
            });
        }
        if let Some((branch, back)) = steps_back(revision)
            && let Some(found) = self.behind(branch, back)?
        {
            return Ok(found);
        }
        if let Some(found) = only(revision, self.labelled(revision)?)? {
            return Ok(found);
        }
        if let Some(found) = only(revision, self.with_prefix(revision)?)? {
            return Ok(found);
        }
        Err(Error::NoSuchRevision {
            name: revision.to_owned(),
        })
    }

    /// Refuses a label under which its checkpoint could not be found, because something that
    /// [`Store::resolve`] tries before fits it now.
    pub(super) fn require_findable(self: &Arc<Self>, label: &str) -> Result<()> {
        let reason = if self.find_branch(label)?.is_some() {
            "a branch has this name, and is found first"
        } else if label.parse::<CheckpointId>().is_ok() {
            "it looks like the id of a checkpoint"
        } else if let Some((branch, _)) = steps_back(label)
            && self.find_branch(branch)?.is_some()
        {
            "it counts checkpoints back from a branch"
        } else {
            return Ok(());
        };
        Err(Error::BadName {
            name: label.to_owned(),
            reason,
        })
    }

    /// Returns the checkpoint `back` steps behind the newest of a branch; [`None`] if there is no
    /// such branch.
    fn behind(&self, branch: &str, back: u64) -> Result<Option<Revision>> {
        let Some(record) = self.find_branch(branch)? else {
            return Ok(None);
        };
        let (mut have, mut found) = (0, None);
        self.each_behind(record.checkpoint, &mut |id, checkpoint| {
            if have == back {
                found = Some(Revision::Checkpoint {
                    id,
                    layer: checkpoint.layer,
                });
                return false;
            }
            have += 1;
            true
        })?;
        match found {
            Some(found) => Ok(Some(found)),
            None => Err(Error::TooFarBack {
                branch: branch.to_owned(),
                have,
                want: back,
            }),
        }
    }

    fn labelled(&self, label: &str) -> Result<Vec<(CheckpointId, CheckpointRecord)>> {
        let mut found = Vec::new();
        self.each_checkpoint(CheckpointId(0), &mut |id, record| {
            if record.label.as_deref() == Some(label) {
                found.push((id, record));
            }
            true
        })?;
        Ok(found)
    }

    fn with_prefix(&self, prefix: &str) -> Result<Vec<(CheckpointId, CheckpointRecord)>> {
        let mut found = Vec::new();
        let Some((first, last)) = ids_with_prefix(prefix) else {
            return Ok(found);
        };
        self.each_checkpoint(first, &mut |id, record| {
            let fits = id <= last;
            if fits {
                found.push((id, record));
            }
            fits
        })?;
        Ok(found)
    }
}

/// Splits `BRANCH~N`.
fn steps_back(revision: &str) -> Option<(&str, u64)> {
    let (branch, back) = revision.rsplit_once('~')?;
    // Only digits: a number's parser would take a sign as well.
    let digits = !back.is_empty() && back.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .then(|| back.parse().ok())
        .flatten()
        .map(|back| (branch, back))
}

/// Returns the smallest and the greatest id that begin with `prefix`.
fn ids_with_prefix(prefix: &str) -> Option<(CheckpointId, CheckpointId)> {
    let digits = prefix.len();
    if !(PREFIX_DIGITS_MIN..ID_DIGITS).contains(&digits)
        || !prefix.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return None;
    }
    let number = u64::from_str_radix(prefix, 16).ok()?;
    let rest = 4 * (ID_DIGITS - digits);
    let first = number << rest;
    Some((CheckpointId(first), CheckpointId(first | ((1 << rest) - 1))))
}

/// Returns the one checkpoint in `found`, if there is any.
fn only(name: &str, found: Vec<(CheckpointId, CheckpointRecord)>) -> Result<Option<Revision>> {
    match found.as_slice() {
        [] => Ok(None),
        [(id, record)] => Ok(Some(Revision::Checkpoint {
            id: *id,
            layer: record.layer,
        })),
        _ => Err(Error::AmbiguousRevision {
            name: name.to_owned(),
            candidates: found.into_iter().map(|(id, _)| id).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_ranges_of_ids() {
        let range = |prefix| ids_with_prefix(prefix).map(|(first, last)| (first.0, last.0));
        assert_eq!(
            range("dead"),
            Some((0xdead << 48, (0xdead << 48) | 0xffff_ffff_ffff))
        );
        assert_eq!(range("DEAD"), range("dead"));
        assert_eq!(
            range("ffffffffffffffe"),
            Some((0xffff_ffff_ffff_ffe0, 0xffff_ffff_ffff_ffef))
        );
        assert_eq!(range("0000"), Some((0, 0xffff_ffff_ffff)));
        for none in [
            "",
            "dea",
            "deag",
            "+dead",
            "dead dead",
            "0123456789abcdef",
            "äää",
        ] {
            assert_eq!(range(none), None, "{none}");
        }
    }

    #[test]
    fn steps_back_are_digits_after_the_last_tilde() {
        assert_eq!(steps_back("main~0"), Some(("main", 0)));
        assert_eq!(steps_back("a~b~12"), Some(("a~b", 12)));
        for none in [
            "main",
            "main~",
            "main~+1",
            "main~-1",
            "main~x",
            "main~99999999999999999999",
        ] {
            assert_eq!(steps_back(none), None, "{none}");
        }
    }
}
