//! One difference as `git apply` takes it: header lines, then lines or bytes.
//!
//! Git knows files, executable files and symbolic links. What it has no words for (directories,
//! devices, owners, other bits of a mode) is said in a line beginning with `#`, which it skips.

use branchpoint_fs::attr::{Attr, FileKind};

use super::Compared;

/// Both sides of a difference; a side that is not there is [`None`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides<'a> {
    /// Path and attributes before.
    pub(super) old: Option<(&'a [u8], &'a Attr)>,
    /// Path and attributes after.
    pub(super) new: Option<(&'a [u8], &'a Attr)>,
}

/// Returns the patch for a thing that was, or is, at these places, or nothing if there is nothing to
/// say. `content` is how the contents differ.
pub(super) fn entry(sides: Sides<'_>, content: &Compared) -> String {
    let known = |side: Option<(&[u8], &Attr)>| side.and_then(|(_, attr)| mode(attr));
    let (old_mode, new_mode) = (known(sides.old), known(sides.new));
    let Some(path) = sides.new.or(sides.old).map(|(path, _)| path) else {
        return String::new();
    };
    if old_mode.is_none() && new_mode.is_none() {
        let directory = |side: Option<(&[u8], &Attr)>| {
            side.is_none_or(|(_, attr)| attr.kind == FileKind::Directory)
        };
        // A directory is there because of what is in it.
        if directory(sides.old) && directory(sides.new) {
            return String::new();
        }
        return format!(
            "# {}: special files cannot be in a patch\n",
            quoted(b"", path)
        );
    }
    let old_path = sides.old.map_or(path, |(path, _)| path);
    let (from, to) = (quoted(b"a/", old_path), quoted(b"b/", path));
    let mut head = String::new();
    match (old_mode, new_mode) {
        (None, Some(mode)) => head.push_str(&format!("new file mode {mode}\n")),
        (Some(mode), None) => head.push_str(&format!("deleted file mode {mode}\n")),
        (Some(before), Some(after)) if before != after => {
            head.push_str(&format!("old mode {before}\nnew mode {after}\n"));
        }
        _ => {}
    }
    if old_path != path {
        if *content == Compared::Nothing {
            head.push_str("similarity index 100%\n");
        }
        let (from, to) = (quoted(b"", old_path), quoted(b"", path));
        head.push_str(&format!("rename from {from}\nrename to {to}\n"));
    }
    let body = match content {
        Compared::Nothing => String::new(),
        Compared::Binary { patch: Some(patch) } => patch.clone(),
        Compared::Binary { patch: None } => format!("Binary files {from} and {to} differ\n"),
        Compared::Text { hunks, .. } if hunks.is_empty() => String::new(),
        Compared::Text { hunks, .. } => {
            let name = |there: bool, name: &str| match there {
                false => "/dev/null".to_owned(),
                // What is behind a tab is a time stamp to those who read this; without it they
                // would end a name at its first blank.
                true if name.contains(' ') => format!("{name}\t"),
                true => name.to_owned(),
            };
            format!(
                "--- {}\n+++ {}\n{hunks}",
                name(old_mode.is_some(), &from),
                name(new_mode.is_some(), &to)
            )
        }
    };
    if head.is_empty() && body.is_empty() {
        return format!(
            "# {}: only attributes changed that cannot be in a patch\n",
            quoted(b"", path)
        );
    }
    format!("diff --git {from} {to}\n{head}{body}")
}

/// Returns the mode under which git knows such a thing, if it does.
pub(super) fn mode(attr: &Attr) -> Option<&'static str> {
    match attr.kind {
        FileKind::Regular if attr.perm & 0o100 != 0 => Some("100755"),
        FileKind::Regular => Some("100644"),
        FileKind::Symlink => Some("120000"),
        _ => None,
    }
}

/// Returns a name as git writes it: in quotes, with escapes, if it is not plain text.
fn quoted(prefix: &[u8], path: &[u8]) -> String {
    let name = [prefix, path].concat();
    let plain = |text: &str| !text.contains(|c: char| c.is_control() || matches!(c, '"' | '\\'));
    match String::from_utf8(name) {
        Ok(text) if plain(&text) => text,
        other => {
            let name = other.map_or_else(|error| error.into_bytes(), String::into_bytes);
            let mut text = String::from("\"");
            for byte in name {
                match byte {
                    b'"' => text.push_str("\\\""),
                    b'\\' => text.push_str("\\\\"),
                    b'\n' => text.push_str("\\n"),
                    b'\t' => text.push_str("\\t"),
                    0x20..0x7f => text.push(char::from(byte)),
                    _ => text.push_str(&format!("\\{byte:03o}")),
                }
            }
            text.push('"');
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_git_does() {
        assert_eq!(quoted(b"a/", b"plain name"), "a/plain name");
        assert_eq!(quoted(b"", "grün".as_bytes()), "grün");
        assert_eq!(
            quoted(b"b/", b"n\nt\tq\"b\\\xff\x1b"),
            "\"b/n\\nt\\tq\\\"b\\\\\\377\\033\""
        );
    }
}
