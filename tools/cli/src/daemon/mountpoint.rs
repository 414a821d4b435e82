//! Whether a directory can be mounted on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, FailureKind, Result};
use crate::mountinfo;

/// Returns the mount point that `dir` means, without links, if nothing speaks against it.
pub(crate) fn accept(dir: &Path, store: &Path, base: Option<&Path>, over: bool) -> Result<PathBuf> {
    let shown = dir.display();
    // What a link leads to can be told of a dead mount, but nothing else.
    let real = dir
        .canonicalize()
        .and_then(|real| fs::metadata(&real).map(|_| real));
    let dir = real.map_err(|reason| match reason.kind() {
        io::ErrorKind::NotFound => {
            Failure::io(format!("mount at '{shown}'"), &reason).hint("make the directory first")
        }
        io::ErrorKind::NotConnected => Failure::io(format!("mount at '{shown}'"), &reason).hint(
            format!("a dead mount is in the way: `umount -l '{shown}'` removes it"),
        ),
        _ => Failure::io(format!("mount at '{shown}'"), &reason),
    })?;
    let refuse = |reason: &str, hint: &str| {
        let message = format!("cannot mount at '{}': {reason}", dir.display());
        Err(Failure::new(FailureKind::Invalid, message).hint(hint))
    };
    let away = "choose a directory elsewhere";
    if !dir.is_dir() {
        return refuse("it is not a directory", "name an empty directory");
    }
    if dir.starts_with(store) {
        return refuse("it lies in the store", away);
    }
    if store.starts_with(&dir) {
        return refuse("the store lies in it and would be hidden", away);
    }
    if base.is_some_and(|base| base.starts_with(&dir)) {
        return refuse("the base lies in it and would be hidden", away);
    }
    let entries = mountinfo::read()?;
    if entries
        .iter()
        .any(|entry| entry.dir == dir && entry.is_ours())
    {
        return refuse("a branch is mounted there already", "unmount that first");
    }
    let mut content = fs::read_dir(&dir)
        .map_err(|reason| Failure::io(format!("look into '{}'", dir.display()), &reason))?;
    if !over && content.next().is_some() {
        return refuse(
            "it is not empty",
            "choose an empty directory, or hide what it holds with --over",
        );
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_place_has_its_reason() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for dir in ["store/db", "base/in", "full/x", "empty", "a/b"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(root.join("store"), root.join("link")).unwrap();
        let (store, base) = (root.join("store"), root.join("base"));
        let reason = |dir: &str| {
            accept(&root.join(dir), &store, Some(&base), false)
                .unwrap_err()
                .to_string()
        };
        assert!(reason("none").contains("No such file"));
        assert!(reason("file").contains("not a directory"));
        assert!(reason("store").contains("lies in the store"));
        assert!(reason("store/db").contains("lies in the store"));
        assert!(reason("link/db").contains("lies in the store"));
        assert!(reason(".").contains("would be hidden"));
        assert!(reason("base").contains("the base lies in it"));
        assert!(reason("full").contains("not empty"));
        assert_eq!(
            accept(&root.join("full"), &store, Some(&base), true).unwrap(),
            root.join("full")
        );
        assert_eq!(
            accept(&root.join("base/in"), &store, Some(&base), false).unwrap(),
            root.join("base/in")
        );
        assert_eq!(
            accept(&root.join("a/../empty"), &store, None, false).unwrap(),
            root.join("empty")
        );
    }
}
