//! The lines that differ between two versions of a text file.

use std::sync::Arc;
use std::time::Duration;

use branchpoint_fs::attr::{Attr, FileKind};
use branchpoint_fs::view::View;
use similar::{Algorithm, ChangeTag, TextDiff};

use crate::failure::Result;

/// Larger files are called binary: nobody reads such a patch, and comparing takes memory.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// After this time the rest of a file is shown as replaced.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Lines shown around each change.
const CONTEXT_LINES: usize = 3;

/// How two versions differ.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// They do not, or they are no files.
    Nothing,
    /// In a way that cannot be shown as lines.
    Binary,
    /// In lines.
    Text {
        /// A unified diff without its two header lines.
        text: String,
        /// Lines only in the new version.
        insertions: u64,
        /// Lines only in the old version.
        deletions: u64,
    },
}

/// One side of a comparison.
type Side<'a> = (&'a Arc<View>, Option<&'a Attr>);

/// Compares the content of a file in two views.
pub(crate) fn compare(old: Side<'_>, new: Side<'_>) -> Result<Compared> {
    let is_file = |side: &Side<'_>| side.1.is_some_and(|attr| attr.kind == FileKind::Regular);
    if !is_file(&old) && !is_file(&new) {
        return Ok(Compared::Nothing);
    }
    let large = |side: &Side<'_>| is_file(side) && side.1.is_some_and(|a| a.size > TEXT_BYTES_MAX);
    if large(&old) || large(&new) {
        return Ok(Compared::Binary);
    }
    Ok(compare_bytes(&read(old)?, &read(new)?))
}

fn read((view, attr): Side<'_>) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let Some(attr) = attr.filter(|attr| attr.kind == FileKind::Regular) else {
        return Ok(content);
    };
    while u64::try_from(content.len()).unwrap_or(u64::MAX) < attr.size {
        let before = content.len();
        let offset = u64::try_from(before).unwrap_or(u64::MAX);
        view.read(attr.ino, offset, 1 << 20, &mut content)?;
        if content.len() == before {
            break;
        }
    }
    Ok(content)
}

fn compare_bytes(old: &[u8], new: &[u8]) -> Compared {
    if old == new {
        return Compared::Nothing;
    }
    let (Some(old), Some(new)) = (text(old), text(new)) else {
        return Compared::Binary;
    };
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(TIME_MAX)
        .diff_lines(old, new);
    let count = |tag: ChangeTag| {
        diff.iter_all_changes()
            .filter(|change| change.tag() == tag)
            .count()
    };
    let lines = |tag| u64::try_from(count(tag)).unwrap_or(u64::MAX);
    Compared::Text {
        text: diff
            .unified_diff()
            .context_radius(CONTEXT_LINES)
            .to_string(),
        insertions: lines(ChangeTag::Insert),
        deletions: lines(ChangeTag::Delete),
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    if bytes.contains(&0) {
        None
    } else {
        std::str::from_utf8(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shown_and_counted() {
        let Compared::Text {
            text,
            insertions,
            deletions,
        } = compare_bytes(b"a\nb\nc\n", b"a\nB\nc\nd")
        else {
            panic!("text")
        };
        assert_eq!((insertions, deletions), (2, 1));
        assert!(
            text.starts_with("@@ -1,3 +1,4 @@\n a\n-b\n+B\n c\n+d\n"),
            "{text}"
        );
        assert!(text.contains("No newline at end of file"), "{text}");
    }

    #[test]
    fn what_is_no_text_is_called_binary() {
        assert_eq!(compare_bytes(b"a\0", b"b"), Compared::Binary);
        assert_eq!(compare_bytes(b"\xff\xfe", b""), Compared::Binary);
        assert_eq!(compare_bytes(b"\xff", b"\xff"), Compared::Nothing);
    }
}
