//! What the tests of whole-layer operations share: a store over a base, and a branch used by path.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use branchpoint_fs::attr::{Attr, Caller, FileKind, RenameMode, SetAttr, XattrMode};
use branchpoint_fs::diff::Change;
use branchpoint_fs::id::{Ino, LayerId};
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_fs::view::View;

/// A store in a temporary directory.
pub struct Fixture {
    pub dir: tempfile::TempDir,
    pub store: Arc<Store>,
}

impl Fixture {
    /// A store over a base that `fill` makes.
    pub fn new(fill: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        std::fs::create_dir(&base).unwrap();
        fill(&base);
        let path = dir.path().join("store");
        Store::create(&path, &StoreOptions { base: Some(base) }).unwrap();
        let store = Store::open(&path).unwrap();
        Self { dir, store }
    }

    pub fn base(&self) -> PathBuf {
        self.dir.path().join("base")
    }

    pub fn branch(&self, name: &str) -> Branch {
        Branch {
            view: self.store.view(name).unwrap(),
        }
    }

    pub fn fork(&self, name: &str, from: &str) -> Branch {
        let from = self.store.resolve(from).unwrap();
        self.store.branch_create(name, &from).unwrap();
        self.branch(name)
    }

    pub fn layer(&self, revision: &str) -> LayerId {
        self.store.resolve(revision).unwrap().layer()
    }

    pub fn checkpoint(&self, branch: &str) -> LayerId {
        self.store.checkpoint(branch, None, false).unwrap().layer
    }

    /// The tree of a frozen layer.
    pub fn tree(&self, layer: LayerId) -> BTreeMap<String, Node> {
        Branch {
            view: self.store.view_at(layer).unwrap(),
        }
        .tree()
    }

    /// The tree of a branch.
    pub fn tree_of(&self, branch: &str) -> BTreeMap<String, Node> {
        self.branch(branch).tree()
    }
}

/// What can be seen of a file; equal trees have equal nodes at equal paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: FileKind,
    pub perm: u32,
    pub owner: (u32, u32),
    pub nlink: u32,
    pub rdev: u32,
    pub mtime: Option<(i64, u32)>,
    /// Bytes of a file, target of a link.
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path, by name, of the same inode.
    pub same_as: String,
}

/// A view used by path.
pub struct Branch {
    pub view: Arc<View>,
}

impl Branch {
    pub fn find(&self, path: &str) -> Option<Attr> {
        let mut attr = self.view.getattr(Ino::ROOT).unwrap();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            attr = self.view.lookup(attr.ino, name.as_bytes()).ok()?;
        }
        Some(attr)
    }

    pub fn ino(&self, path: &str) -> Ino {
        self.find(path).unwrap_or_else(|| panic!("no {path}")).ino
    }

    pub fn place<'a>(&self, path: &'a str) -> (Ino, &'a [u8]) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.ino(dir), name.as_bytes())
    }

    pub fn make(&self, path: &str, kind: FileKind, rdev: u32) -> Ino {
        let (dir, name) = self.place(path);
        self.view
            .mknod(Caller::ROOT, dir, name, kind, 0o644, 0, rdev)
            .unwrap()
            .ino
    }

    /// Makes or replaces the content of a file, in place.
    pub fn write(&self, path: &str, bytes: &[u8]) {
        let ino = match self.find(path) {
            Some(attr) => attr.ino,
            None => self.make(path, FileKind::Regular, 0),
        };
        let size = SetAttr {
            size: Some(bytes.len() as u64),
            ..SetAttr::default()
        };
        self.view.setattr(Caller::ROOT, ino, &size).unwrap();
        self.view.write(ino, 0, bytes, false).unwrap();
    }

    /// Replaces a file as editors do: another one, renamed over it.
    pub fn save(&self, path: &str, bytes: &[u8]) {
        let temp = format!("{path}.tmp");
        self.write(&temp, bytes);
        self.mv(&temp, path);
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.view
            .read(self.ino(path), 0, 1 << 30, &mut bytes)
            .unwrap();
        bytes
    }

    pub fn mkdir(&self, path: &str) {
        let (dir, name) = self.place(path);
        self.view.mkdir(Caller::ROOT, dir, name, 0o755, 0).unwrap();
    }

    pub fn rm(&self, path: &str) {
        let (dir, name) = self.place(path);
        self.view.unlink(dir, name).unwrap();
    }

    pub fn rm_all(&self, path: &str) {
        let attr = self.find(path).unwrap();
        let (dir, name) = self.place(path);
        if attr.kind != FileKind::Directory {
            return self.view.unlink(dir, name).unwrap();
        }
        for name in self.list(attr.ino) {
            self.rm_all(&format!("{path}/{name}"));
        }
        self.view.rmdir(dir, name).unwrap();
    }

    pub fn list(&self, dir: Ino) -> Vec<String> {
        let mut names = Vec::new();
        let mut visit = |entry: &branchpoint_fs::attr::DirEntry| {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
            true
        };
        self.view.readdir(dir, 0, &mut visit).unwrap();
        names.sort();
        names
    }

    pub fn mv(&self, from: &str, to: &str) {
        let ((from, name), (to, new)) = (self.place(from), self.place(to));
        self.view
            .rename(Caller::ROOT, from, name, to, new, RenameMode::Replace)
            .unwrap();
    }

    pub fn swap(&self, from: &str, to: &str) {
        let ((from, name), (to, new)) = (self.place(from), self.place(to));
        self.view
            .rename(Caller::ROOT, from, name, to, new, RenameMode::Exchange)
            .unwrap();
    }

    pub fn link(&self, old: &str, new: &str) {
        let (dir, name) = self.place(new);
        self.view.link(self.ino(old), dir, name).unwrap();
    }

    pub fn symlink(&self, path: &str, target: &[u8]) {
        let (dir, name) = self.place(path);
        self.view.symlink(Caller::ROOT, dir, name, target).unwrap();
    }

    pub fn chmod(&self, path: &str, perm: u32) {
        let change = SetAttr {
            perm: Some(perm),
            ..SetAttr::default()
        };
        self.view
            .setattr(Caller::ROOT, self.ino(path), &change)
            .unwrap();
    }

    pub fn set_xattr(&self, path: &str, name: &str, value: &[u8]) {
        let ino = self.ino(path);
        self.view
            .setxattr(Caller::ROOT, ino, name.as_bytes(), value, XattrMode::Either)
            .unwrap();
    }

    /// Everything below the root, by path.
    pub fn tree(&self) -> BTreeMap<String, Node> {
        let mut tree = BTreeMap::new();
        let mut first: BTreeMap<Ino, String> = BTreeMap::new();
        let mut counts: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut subdirs: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut queue = vec![(String::new(), Ino::ROOT)];
        while let Some((path, dir)) = queue.pop() {
            for name in self.list(dir) {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}/{name}")
                };
                let attr = self.view.lookup(dir, name.as_bytes()).unwrap();
                *counts.entry(attr.ino).or_default() += 1;
                let mut content = Vec::new();
                match attr.kind {
                    FileKind::Regular => {
                        self.view.read(attr.ino, 0, 1 << 30, &mut content).unwrap();
                    }
                    FileKind::Symlink => content = self.view.readlink(attr.ino).unwrap(),
                    FileKind::Directory => {
                        *subdirs.entry(dir).or_default() += 1;
                        queue.push((path.clone(), attr.ino));
                        assert_eq!(
                            self.view.lookup(attr.ino, b"..").unwrap().ino,
                            dir,
                            "{path}"
                        );
                    }
                    _ => {}
                }
                let xattrs = self.view.listxattr(attr.ino).unwrap();
                let xattrs = xattrs
                    .into_iter()
                    .map(|name| (name.clone(), self.view.getxattr(attr.ino, &name).unwrap()));
                let older = first.entry(attr.ino).or_insert_with(|| path.clone());
                if path < *older {
                    *older = path.clone();
                }
                let is_dir = attr.kind == FileKind::Directory;
                let node = Node {
                    kind: attr.kind,
                    perm: attr.perm,
                    owner: (attr.uid, attr.gid),
                    nlink: attr.nlink,
                    rdev: attr.rdev,
                    mtime: (!is_dir).then_some((attr.mtime.secs, attr.mtime.nanos)),
                    content,
                    xattrs: xattrs.collect(),
                    same_as: attr.ino.to_string(),
                };
                let names = self.view.names_of(attr.ino).unwrap();
                assert!(
                    names.contains(&(dir, name.into_bytes())),
                    "{path}: {names:?}"
                );
                tree.insert(path, node);
            }
        }
        for (path, node) in &mut tree {
            let ino = Ino(node.same_as.parse().unwrap());
            node.same_as = first[&ino].clone();
            let expected = match node.kind {
                FileKind::Directory => 2 + subdirs.get(&ino).copied().unwrap_or(0),
                _ => counts[&ino],
            };
            assert_eq!(node.nlink, expected, "link count of {path}");
            assert!(
                self.view.path_of(ino).unwrap().is_some(),
                "{path} has no path back"
            );
        }
        tree
    }
}

/// Changes as lines: kind, path, and where it was before.
pub fn lines(changes: &[Change]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let line = |change: &Change| {
        let from = change
            .renamed_from
            .as_deref()
            .map(|from| format!(" from {}", text(from)));
        format!(
            "{:?} {}{}",
            change.kind,
            text(&change.path),
            from.unwrap_or_default()
        )
    };
    changes.iter().map(line).collect()
}
