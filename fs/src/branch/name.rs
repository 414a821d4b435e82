//! Which names branches and labels can have.

use crate::error::{Error, Result};
use crate::id::CheckpointId;

const BRANCH_BYTES_MAX: usize = 255;
const LABEL_CHARS_MAX: usize = 255;

/// Refuses what cannot be the name of a branch: what commands, paths or revisions would misread.
pub(super) fn check_branch(name: &str) -> Result<()> {
    match branch_problem(name) {
        None => Ok(()),
        Some(reason) => Err(Error::BadName {
            name: name.to_owned(),
            reason,
        }),
    }
}

fn branch_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("a branch's name has at least one character");
    }
    if name.len() > BRANCH_BYTES_MAX {
        return Some("a branch's name has at most 255 bytes");
    }
    if name.chars().any(char::is_control) {
        return Some("it contains a control character");
    }
    if name.trim() != name {
        return Some("it begins or ends with white space");
    }
    if name.contains('/') {
        return Some("it contains '/'");
    }
    if name.contains('~') {
        return Some("it contains '~', which counts checkpoints back from a branch");
    }
    if name.starts_with('-') {
        return Some("it begins with '-', as options do");
    }
    if name.starts_with('.') {
        return Some("it begins with '.'");
    }
    if name.parse::<CheckpointId>().is_ok() {
        return Some("it looks like the id of a checkpoint");
    }
    None
}

/// Refuses what cannot be a checkpoint's label.
pub(super) fn check_label(label: &str) -> Result<()> {
    let reason = if label.is_empty() {
        "a label has at least one character"
    } else if label.chars().count() > LABEL_CHARS_MAX {
        "a label has at most 255 characters"
    } else if label.chars().any(char::is_control) {
        "it contains a control character"
    } else {
        return Ok(());
    };
    Err(Error::BadName {
        name: label.to_owned(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_branches() {
        let longest = "ä".repeat(127);
        for good in [
            "a",
            "main",
            "feature.1",
            "try 2",
            "ümlaut",
            "a-b",
            "deadbeef",
            &longest,
        ] {
            assert_eq!(branch_problem(good), None, "{good}");
        }
        let too_long = "ä".repeat(128);
        let id = "0123456789abcdef";
        for bad in [
            "",
            "a/b",
            "a\nb",
            "\u{7f}",
            " a",
            "a\u{3000}",
            "-x",
            ".x",
            ".",
            "a~1",
            id,
            &too_long,
        ] {
            assert!(branch_problem(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn labels() {
        for good in ["a", "-x", "before / after~1", " ", &"ä".repeat(255)] {
            check_label(good).unwrap();
        }
        for bad in ["", "a\tb", &"ä".repeat(256)] {
            assert!(
                matches!(check_label(bad), Err(Error::BadName { .. })),
                "{bad:?}"
            );
        }
    }
}
