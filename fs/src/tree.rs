//! Walking a view's tree in the order of names, which is the same wherever and whenever one walks.

use crate::attr::{Attr, DirEntry, FileKind};
use crate::error::Result;
use crate::id::Ino;
use crate::view::View;

/// Returns the entries of a directory by name, without `.` and `..`.
pub(crate) fn children(view: &View, dir: Ino) -> Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    view.readdir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            entries.push(entry.clone());
        }
        true
    })?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Returns `dir/name`, or `name` alone below the root.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    path.extend_from_slice(dir);
    if !dir.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Splits a path into that of its directory and its last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Visits everything below `dir`, which has the path `path`, each directory before what is in it.
pub(crate) fn walk(
    view: &View,
    dir: Ino,
    path: &[u8],
    visit: &mut dyn FnMut(Vec<u8>, &Attr) -> Result<()>,
) -> Result<()> {
    // No recursion: a tree may be deeper than a stack.
    let mut open = vec![(path.to_vec(), children(view, dir)?.into_iter())];
    while let Some((path, entries)) = open.last_mut() {
        let Some(entry) = entries.next() else {
            open.pop();
            continue;
        };
        let below = join(path, &entry.name);
        let attr = view.getattr(entry.ino)?;
        visit(below.clone(), &attr)?;
        if attr.kind == FileKind::Directory {
            let entries = children(view, entry.ino)?.into_iter();
            open.push((below, entries));
        }
    }
    Ok(())
}
