//! Random histories of a store, and a way to compare what branches show.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use branchpoint_fs::attr::{AllocateMode, Attr, Caller, FileKind, RenameMode, SetAttr, XattrMode};
use branchpoint_fs::branch::Revision;
use branchpoint_fs::check::{CheckReport, check};
use branchpoint_fs::id::Ino;
use branchpoint_fs::kv::Kv;
use branchpoint_fs::kv::memory::MemoryKv;
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_fs::view::View;

/// A small generator of numbers that are the same each time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

pub(crate) fn new_memory() -> Arc<MemoryKv> {
    let kv = Arc::new(MemoryKv::new());
    Store::create_in(&*kv, &StoreOptions::default()).unwrap();
    kv
}

pub(crate) fn open<K: Kv + 'static>(dir: &Path, kv: &Arc<K>) -> Arc<Store> {
    Store::open_in(dir, Box::new(Arc::clone(kv))).unwrap()
}

/// Does one random thing to a view. What POSIX refuses does not matter here.
pub(crate) fn act(view: &View, random: &mut Random) {
    let dirs: Vec<Ino> = tree(view)
        .values()
        .filter(|(attr, _)| attr.kind == FileKind::Directory)
        .map(|(attr, _)| attr.ino)
        .collect();
    let files: Vec<Ino> = tree(view)
        .values()
        .filter(|(attr, _)| attr.kind == FileKind::Regular)
        .map(|(attr, _)| attr.ino)
        .collect();
    let dir = dirs[random.below(dirs.len() as u64) as usize];
    let other = dirs[random.below(dirs.len() as u64) as usize];
    let file = files
        .get(random.below(files.len().max(1) as u64) as usize)
        .copied();
    let name = format!("n{}", random.below(6)).into_bytes();
    let new = format!("n{}", random.below(6)).into_bytes();
    let me = Caller::ROOT;
    let _ = match random.below(16) {
        0 | 1 => view.mkdir(me, dir, &name, 0o755, 0).map(drop),
        2 | 3 => view
            .mknod(me, dir, &name, FileKind::Regular, 0o644, 0, 0)
            .map(drop),
        4 => view.symlink(me, dir, &name, b"target").map(drop),
        5 => view.unlink(dir, &name),
        6 => view.rmdir(dir, &name),
        7 => view.rename(me, dir, &name, other, &new, RenameMode::Replace),
        8 => view.rename(me, dir, &name, other, &new, RenameMode::Exchange),
        9 => view.rename(me, dir, &name, other, &new, RenameMode::Whiteout),
        kind => {
            let Some(file) = file else { return };
            let at = random.below(80_000);
            match kind {
                10 => view.link(file, other, &new).map(drop),
                11 => {
                    let size = Some(random.below(90_000));
                    view.setattr(
                        me,
                        file,
                        &SetAttr {
                            size,
                            ..SetAttr::default()
                        },
                    )
                    .map(drop)
                }
                12 => view.setxattr(me, file, b"user.x", b"value", XattrMode::Either),
                13 => {
                    let source = files[random.below(files.len() as u64) as usize];
                    view.copy_range(source, 0, file, 4096 * random.below(8), 40_000)
                        .map(drop)
                }
                14 => view.allocate(file, AllocateMode::PunchHole, at, 9000),
                _ => {
                    let len = [10, 5000, 70_000][random.below(3) as usize];
                    let byte = random.below(256) as u8;
                    view.write(file, at, &vec![byte; len], false)
                }
            }
        }
    };
}

/// Writes to branches, makes, deletes, checkpoints and rolls them back.
pub(crate) fn live(store: &Arc<Store>, random: &mut Random, rounds: u64) {
    for _ in 0..rounds {
        let branches = store.branches().unwrap();
        let branch = &branches[random.below(branches.len() as u64) as usize].name;
        {
            let view = store.view(branch).unwrap();
            for _ in 0..random.below(12) {
                act(&view, random);
            }
        }
        let checkpoints = store.checkpoints().unwrap();
        let checkpoint = checkpoints
            .get(random.below(checkpoints.len().max(1) as u64) as usize)
            .cloned();
        match random.below(8) {
            0 | 1 => drop(store.checkpoint(branch, None, false).unwrap()),
            2 => {
                let name = format!("b{}", random.below(1 << 40));
                let revision = store.resolve(branch).unwrap();
                store.branch_create(&name, &revision).unwrap();
            }
            3 if branches.len() > 2 => store.branch_delete(branch).unwrap(),
            4 | 5 => {
                let Some(checkpoint) = checkpoint else {
                    continue;
                };
                let to = Revision::Checkpoint {
                    id: checkpoint.id,
                    layer: checkpoint.layer,
                };
                let keep = format!("k{}", random.below(1 << 40));
                let keep = (random.below(3) == 0).then_some(keep);
                store.rollback(branch, &to, keep.as_deref()).unwrap();
            }
            6 => {
                let Some(checkpoint) = checkpoint else {
                    continue;
                };
                store.checkpoint_delete(checkpoint.id).unwrap();
            }
            _ => {}
        }
    }
}

/// Everything in a view, by path: attributes and content.
pub(crate) type Tree = BTreeMap<Vec<u8>, (Attr, Vec<u8>)>;

pub(crate) fn tree(view: &View) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![(Vec::new(), Ino::ROOT)];
    while let Some((path, ino)) = todo.pop() {
        let attr = view.getattr(ino).unwrap();
        let mut content = Vec::new();
        match attr.kind {
            FileKind::Regular => view.read(ino, 0, 1 << 20, &mut content).unwrap(),
            FileKind::Symlink => content = view.readlink(ino).unwrap(),
            FileKind::Directory => view
                .readdir(ino, 0, &mut |entry| {
                    if entry.name != b"." && entry.name != b".." {
                        let mut path = path.clone();
                        path.push(b'/');
                        path.extend_from_slice(&entry.name);
                        todo.push((path, entry.ino));
                    }
                    true
                })
                .unwrap(),
            _ => {}
        }
        tree.insert(path, (attr, content));
    }
    tree
}

/// What all branches and checkpoints show.
pub(crate) fn world(store: &Arc<Store>) -> BTreeMap<String, Tree> {
    let mut world = BTreeMap::new();
    for branch in store.branches().unwrap() {
        let mut shown = tree(&store.view(&branch.name).unwrap());
        // Looking renews access times.
        for (attr, _) in shown.values_mut() {
            attr.atime = attr.mtime;
        }
        world.insert(branch.name, shown);
    }
    for checkpoint in store.checkpoints().unwrap() {
        let shown = tree(&store.view_at(checkpoint.layer).unwrap());
        let shown = shown.into_iter().map(|(path, (mut attr, content))| {
            attr.atime = attr.mtime;
            (path, (attr, content))
        });
        world.insert(checkpoint.id.to_string(), shown.collect());
    }
    world
}

pub(crate) fn checked(store: &Arc<Store>) -> CheckReport {
    check(store, &mut |_| Ok(())).unwrap()
}

pub(crate) fn assert_clean(store: &Arc<Store>, when: &str) {
    let report = checked(store);
    assert!(report.is_clean(), "{when}: {:#?}", report.problems);
}
