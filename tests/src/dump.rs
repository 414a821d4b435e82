//! What a directory of the running system looks like, in full.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use branchpoint_fs::attr::FileKind;

use crate::exec::path::ours;
use crate::sys;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of stat")]
pub struct Entry {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u64,
    pub rdev: u64,
    /// Of regular files and symbolic links; filesystems differ on directories.
    pub size: u64,
    /// Content of a regular file, target of a symbolic link.
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path, in order of names, of the same inode.
    pub first_path: Vec<u8>,
    pub mtime: (i64, i64),
}

impl Entry {
    /// Returns the differences to `other`, without times, for people.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let mut said = Vec::new();
        let mut say = |what: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
            said.push(format!("{what} {a:?} and {b:?}"));
        };
        if self.mode != other.mode {
            say(
                "modes",
                &format!("{:o}", self.mode),
                &format!("{:o}", other.mode),
            );
        }
        if (self.uid, self.gid) != (other.uid, other.gid) {
            say("owners", &(self.uid, self.gid), &(other.uid, other.gid));
        }
        if self.nlink != other.nlink {
            say("link counts", &self.nlink, &other.nlink);
        }
        if self.rdev != other.rdev {
            say("devices", &self.rdev, &other.rdev);
        }
        if self.size != other.size {
            say("sizes", &self.size, &other.size);
        }
        if self.content != other.content {
            let at = self
                .content
                .iter()
                .zip(&other.content)
                .position(|(a, b)| a != b);
            say("contents from byte", &at, &"there on");
        }
        if self.xattrs != other.xattrs {
            say("xattrs", &self.xattrs, &other.xattrs);
        }
        if self.first_path != other.first_path {
            say("hard links with", &self.first_path, &other.first_path);
        }
        (!said.is_empty()).then(|| said.join("; "))
    }
}

/// Reads everything below `root`.
pub fn read(root: &Path) -> BTreeMap<Vec<u8>, Entry> {
    let mut entries = BTreeMap::new();
    let mut inodes = BTreeMap::new();
    read_entry(root, Vec::new(), &mut entries, &mut inodes);
    entries
}

fn read_entry(
    path: &Path,
    below: Vec<u8>,
    entries: &mut BTreeMap<Vec<u8>, Entry>,
    inodes: &mut BTreeMap<u64, Vec<u8>>,
) {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = FileKind::from_mode(meta.mode()).unwrap();
    let first_path = inodes
        .entry(meta.ino())
        .or_insert_with(|| below.clone())
        .clone();
    let content = match kind {
        FileKind::Regular => fs::read(path).unwrap(),
        FileKind::Symlink => fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec(),
        _ => Vec::new(),
    };
    let sized = matches!(kind, FileKind::Regular | FileKind::Symlink);
    let names = sys::list_xattrs(path)
        .unwrap()
        .into_iter()
        .filter(|name| ours(name));
    let xattrs = names
        .map(|name| (name.clone(), sys::get_xattr(path, &name).unwrap()))
        .collect();
    let entry = Entry {
        mode: meta.mode(),
        uid: meta.uid(),
        gid: meta.gid(),
        nlink: meta.nlink(),
        rdev: meta.rdev(),
        size: if sized { meta.size() } else { 0 },
        content,
        xattrs,
        first_path,
        mtime: (meta.mtime(), meta.mtime_nsec()),
    };
    entries.insert(below.clone(), entry);
    if kind == FileKind::Directory {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        for name in names {
            let below = [below.as_slice(), b"/", name.as_bytes()].concat();
            read_entry(&path.join(&name), below, entries, inodes);
        }
    }
}
