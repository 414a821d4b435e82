//! The mounts of this process, as `/proc/self/mountinfo` lists them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use branchpoint_fs::fuse::store_of_source;

use crate::failure::{Failure, Result};

/// The part of the filesystem type after `fuse.` by which our mounts are known.
pub(crate) const FS_TYPE: &str = "fuse.branchpoint";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// Where it is.
    pub(crate) dir: PathBuf,
    /// The type of its filesystem.
    pub(crate) fs_type: String,
    /// What it shows: for our mounts, the store and the branch, as [`store_of_source`] reads them.
    pub(crate) source: PathBuf,
}

impl MountEntry {
    /// Says whether the mount is one of ours.
    pub(crate) fn is_ours(&self) -> bool {
        self.fs_type == FS_TYPE
    }

    /// Returns the store that the mount shows, if it is one of ours and the store is there.
    pub(crate) fn store(&self) -> Option<PathBuf> {
        self.named_store().filter(|store| store.is_dir())
    }

    /// Says whether the mount is one of `store`, an absolute path without links.
    pub(crate) fn is_of(&self, store: &Path) -> bool {
        self.named_store().is_some_and(|named| named == store)
    }

    fn named_store(&self) -> Option<PathBuf> {
        if !self.is_ours() {
            return None;
        }
        store_of_source(self.source.as_os_str().as_bytes())
    }
}

/// Returns what names the mount namespace of this process.
pub(crate) fn namespace() -> Option<PathBuf> {
    std::fs::read_link("/proc/self/ns/mnt").ok()
}

/// Returns all mounts, in the order in which they were made.
pub(crate) fn read() -> Result<Vec<MountEntry>> {
    let bytes = std::fs::read("/proc/self/mountinfo")
        .map_err(|reason| Failure::io("read /proc/self/mountinfo", &reason))?;
    Ok(parse(&bytes))
}

/// Returns the mount through which `path`, an absolute path without links, is reached.
pub(crate) fn covering<'a>(entries: &'a [MountEntry], path: &Path) -> Option<&'a MountEntry> {
    // Of those at the same place the youngest hides the others, and it stands last.
    entries
        .iter()
        .filter(|entry| path.starts_with(&entry.dir))
        .max_by_key(|entry| entry.dir.components().count())
}

/// Returns the mounts that `bytes` lists; a line that does not fit the format is left out.
fn parse(bytes: &[u8]) -> Vec<MountEntry> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`: the number of
/// fields before the dash varies.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let dir = fields.nth(4)?;
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = rest.next()?;
    let source = rest.next()?;
    Some(MountEntry {
        dir: PathBuf::from(unescape(dir)),
        fs_type: String::from_utf8_lossy(unescape(fs_type).as_bytes()).into_owned(),
        source: PathBuf::from(unescape(source)),
    })
}

/// Turns `\040` and its like back into the bytes that they stand for.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| {
                let text = std::str::from_utf8(digits).ok()?;
                u8::from_str_radix(text, 8).ok()
            });
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
23 22 0:20 / /proc rw shared:5 master:2 - proc proc rw\n\
40 22 0:44 / /mnt/a\\040b rw,nosuid - fuse.branchpoint /tmp:a%3Ab rw,user_id=0\n\
41 40 0:45 / /mnt/a\\040b/in rw - tmpfs none rw\n\
42 22 0:46 / /mnt/a\\040b rw - fuse.branchpoint /stores/t%20wo:x rw\n\
garbage\n";

    #[test]
    fn fields_are_found_and_unescaped() {
        let entries = parse(TEXT);
        assert_eq!(entries.len(), 5);
        assert_eq!(entries[2].dir, Path::new("/mnt/a b"));
        assert_eq!(entries[2].store().as_deref(), Some(Path::new("/tmp")));
        assert!(entries[4].is_of(Path::new("/stores/t wo")));
        assert!(!entries[4].is_of(Path::new("/stores/t")));
        assert_eq!(entries[1].store(), None);
    }

    #[test]
    fn the_innermost_and_youngest_mount_covers_a_path() {
        let entries = parse(TEXT);
        let at = |path: &str| covering(&entries, Path::new(path)).unwrap().source.clone();
        assert_eq!(at("/mnt/a b/x"), Path::new("/stores/t%20wo:x"));
        assert_eq!(at("/mnt/a b/in/x"), Path::new("none"));
        assert_eq!(at("/mnt/a bc"), Path::new("/dev/root"));
    }
}
