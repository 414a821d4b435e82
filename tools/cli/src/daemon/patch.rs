//! What differs between two versions of a file: lines for people, patches for `git apply`.

mod binary;
mod git;
mod moved;

use std::sync::Arc;
use std::time::Duration;

use branchpoint_fs::attr::{Attr, FileKind};
use branchpoint_fs::diff::{Change, ChangeKind};
use branchpoint_fs::view::View;
use similar::{Algorithm, ChangeTag, TextDiff};

use crate::failure::Result;

use git::Sides;
pub(crate) use moved::Moved;

/// Larger files are not compared: nobody reads such a patch, and comparing takes memory.
const COMPARED_BYTES_MAX: u64 = 4 << 20;

/// After this time the rest of a file is shown as replaced.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Lines shown around each change.
const CONTEXT_LINES: usize = 3;

/// How two contents differ.
#[derive(Debug, PartialEq, Eq)]
enum Compared {
    /// They do not, or they are neither files nor links.
    Nothing,
    /// In a way that cannot be shown as lines.
    Binary {
        /// What turns one into the other, unless they are too large.
        patch: Option<String>,
    },
    /// In lines.
    Text {
        /// A unified diff without its two header lines.
        hunks: String,
        /// Lines only in the new version.
        insertions: u64,
        /// Lines only in the old version.
        deletions: u64,
    },
}

/// What is to be said about the content of one change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Detail {
    /// Lines only in the new version, of text.
    pub(crate) insertions: Option<u64>,
    /// Lines only in the old version, of text.
    pub(crate) deletions: Option<u64>,
    /// Whether the content differs and is not text.
    pub(crate) binary: bool,
    /// The change as `git apply` takes it.
    pub(crate) patch: String,
}

impl Detail {
    fn add(&mut self, sides: Sides<'_>, compared: &Compared) {
        match compared {
            Compared::Nothing => {}
            Compared::Binary { .. } => self.binary = true,
            Compared::Text {
                insertions,
                deletions,
                ..
            } => {
                *self.insertions.get_or_insert(0) += insertions;
                *self.deletions.get_or_insert(0) += deletions;
            }
        }
        self.patch.push_str(&git::entry(sides, compared));
    }
}

/// Compares the content of what `change` is about, before in `old` and after in `new`.
pub(crate) fn detail(old: &Arc<View>, new: &Arc<View>, change: &Change) -> Result<Detail> {
    let mut detail = Detail::default();
    let from = change.renamed_from.as_deref().unwrap_or(&change.path);
    let before = change.old.as_ref().map(|attr| (from, attr));
    let after = change
        .new
        .as_ref()
        .map(|attr| (change.path.as_slice(), attr));
    let steps = if change.kind == ChangeKind::TypeChanged {
        // Git removes the one thing and makes the other.
        vec![(before, None), (None, after)]
    } else {
        vec![(before, after)]
    };
    for (before, after) in steps {
        let compared = compare(
            (old, before.map(|(_, attr)| attr)),
            (new, after.map(|(_, attr)| attr)),
        )?;
        let sides = Sides {
            old: before,
            new: after,
        };
        detail.add(sides, &compared);
    }
    Ok(detail)
}

/// One side of a comparison.
type Side<'a> = (&'a Arc<View>, Option<&'a Attr>);

fn compare(old: Side<'_>, new: Side<'_>) -> Result<Compared> {
    let has_content = |side: &Side<'_>| side.1.is_some_and(|attr| git::mode(attr).is_some());
    if !has_content(&old) && !has_content(&new) {
        return Ok(Compared::Nothing);
    }
    let large =
        |side: &Side<'_>| has_content(side) && side.1.is_some_and(|a| a.size > COMPARED_BYTES_MAX);
    if large(&old) || large(&new) {
        return Ok(Compared::Binary { patch: None });
    }
    let (old, new) = (read(old)?, read(new)?);
    Ok(compare_bytes(old.as_deref(), new.as_deref()))
}

fn read((view, attr): Side<'_>) -> Result<Option<Vec<u8>>> {
    let Some(attr) = attr else { return Ok(None) };
    let mut content = Vec::new();
    match attr.kind {
        FileKind::Regular => {}
        FileKind::Symlink => return Ok(Some(view.readlink(attr.ino)?)),
        _ => return Ok(None),
    }
    while u64::try_from(content.len()).unwrap_or(u64::MAX) < attr.size {
        let before = content.len();
        let offset = u64::try_from(before).unwrap_or(u64::MAX);
        view.read(attr.ino, offset, 1 << 20, &mut content)?;
        if content.len() == before {
            break;
        }
    }
    Ok(Some(content))
}

fn compare_bytes(old: Option<&[u8]>, new: Option<&[u8]>) -> Compared {
    let (before, after) = (old.unwrap_or_default(), new.unwrap_or_default());
    if before == after {
        return Compared::Nothing;
    }
    let (Some(before), Some(after)) = (lines(before), lines(after)) else {
        return Compared::Binary {
            patch: Some(binary::patch(old, new)),
        };
    };
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(TIME_MAX)
        .newline_terminated(true)
        .diff_slices(&before, &after);
    let (mut insertions, mut deletions) = (0, 0);
    for change in diff.iter_all_changes() {
        match change.tag() {
            ChangeTag::Insert => insertions += 1,
            ChangeTag::Delete => deletions += 1,
            ChangeTag::Equal => {}
        }
    }
    Compared::Text {
        hunks: diff
            .unified_diff()
            .context_radius(CONTEXT_LINES)
            .to_string(),
        insertions,
        deletions,
    }
}

/// Returns the lines of a text, each with its end, if that is what it is.
fn lines(bytes: &[u8]) -> Option<Vec<&str>> {
    // A carriage return at the very end would be taken for the end of a line.
    if bytes.contains(&0) || bytes.ends_with(b"\r") {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    Some(text.split_inclusive('\n').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare_text(old: &[u8], new: &[u8]) -> (String, u64, u64) {
        match compare_bytes(Some(old), Some(new)) {
            Compared::Text {
                hunks,
                insertions,
                deletions,
            } => (hunks, insertions, deletions),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_are_shown_and_counted() {
        let (hunks, insertions, deletions) = compare_text(b"a\nb\nc\n", b"a\nB\nc\nd");
        assert_eq!((insertions, deletions), (2, 1));
        assert_eq!(
            hunks,
            "@@ -1,3 +1,4 @@\n a\n-b\n+B\n c\n+d\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn only_line_feeds_end_lines() {
        let (hunks, ..) = compare_text(b"a\rb\nc\r\n", b"a\rB\nc\r\n");
        assert_eq!(hunks, "@@ -1,2 +1,2 @@\n-a\rb\n+a\rB\n c\r\n");
    }

    #[test]
    fn what_is_no_text_is_called_binary() {
        let binary = |old: &[u8], new: &[u8]| {
            matches!(
                compare_bytes(Some(old), Some(new)),
                Compared::Binary { patch: Some(_) }
            )
        };
        assert!(binary(b"a\0", b"b"));
        assert!(binary(b"\xff\xfe", b""));
        assert!(binary(b"a", b"b\r"));
        assert_eq!(
            compare_bytes(Some(b"\xff"), Some(b"\xff")),
            Compared::Nothing
        );
    }
}
