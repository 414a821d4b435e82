//! Trees for comparing: everything that can be seen of one, by path.
#![allow(dead_code, reason = "each test program uses some of it")]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use branchpoint_fs::attr::{Caller, FileKind, SetAttr, SetTime, Timestamp, XattrMode};
use branchpoint_fs::error::Result;
use branchpoint_fs::id::Ino;
use branchpoint_fs::progress::Progress;
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_fs::view::View;

pub(crate) fn quiet(_: Progress) -> Result<()> {
    Ok(())
}

pub(crate) fn open_store(dir: &Path, name: &str, base: Option<&Path>) -> Arc<Store> {
    let path = dir.join(name);
    let options = StoreOptions {
        base: base.map(Path::to_path_buf),
    };
    Store::create(&path, &options).unwrap();
    Store::open(&path).unwrap()
}

pub(crate) fn names(view: &View, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    let mut names = Vec::new();
    view.readdir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push((entry.name.clone(), entry.ino));
        }
        true
    })
    .unwrap();
    names.sort();
    names
}

pub(crate) fn content(view: &View, ino: Ino) -> Vec<u8> {
    let size = u32::try_from(view.getattr(ino).unwrap().size).unwrap();
    let mut bytes = Vec::new();
    view.read(ino, 0, size, &mut bytes).unwrap();
    bytes
}

pub(crate) fn at(view: &View, path: &str) -> Ino {
    path.split('/').fold(Ino::ROOT, |dir, name| {
        view.lookup(dir, name.as_bytes()).unwrap().ino
    })
}

pub(crate) fn file(view: &View, dir: Ino, name: &[u8], bytes: &[u8]) -> Ino {
    let made = view.mknod(Caller::ROOT, dir, name, FileKind::Regular, 0o644, 0, 0);
    let ino = made.unwrap().ino;
    view.write(ino, 0, bytes, false).unwrap();
    ino
}

pub(crate) fn set_mtime(view: &View, ino: Ino, secs: i64, nanos: u32) {
    let change = SetAttr {
        mtime: Some(SetTime::At(Timestamp { secs, nanos })),
        ..SetAttr::default()
    };
    view.setattr(Caller::ROOT, ino, &change).unwrap();
}

pub(crate) fn set_xattr(view: &View, ino: Ino, name: &[u8], value: &[u8]) {
    view.setxattr(Caller::ROOT, ino, name, value, XattrMode::Either)
        .unwrap();
}

/// One of everything, in `view`.
pub(crate) fn plant(view: &View) {
    let root = Ino::ROOT;
    let dir = |parent, name: &[u8]| {
        view.mkdir(Caller::ROOT, parent, name, 0o755, 0)
            .unwrap()
            .ino
    };
    let sub = dir(root, b"sub");
    let deep = dir(sub, &[b'd'; 120]);
    let plain = file(view, sub, b"plain", b"hello");
    let change = SetAttr {
        uid: Some(3_000_000),
        gid: Some(7),
        ..SetAttr::default()
    };
    view.setattr(Caller::ROOT, plain, &change).unwrap();
    let change = SetAttr {
        perm: Some(0o4751),
        ..SetAttr::default()
    };
    view.setattr(Caller::ROOT, plain, &change).unwrap();
    set_xattr(view, plain, b"user.binary", b"a\0b\nc=d");
    set_xattr(view, plain, b"user.empty", b"");
    set_mtime(view, plain, 1_234_567_890, 123_456_789);
    let old = file(view, deep, &[b'n'; 200], &vec![9; 70_000]);
    set_mtime(view, old, -5, 250_000_000);
    file(view, sub, b"empty", b"");
    file(view, root, b"not\xff\xfeutf8", b"odd name");
    let sparse = file(view, root, b"sparse", b"start");
    view.write(sparse, 3_000_000, b"end", false).unwrap();
    view.link(plain, root, b"zlink").unwrap();
    view.link(plain, deep, &[b'l'; 150]).unwrap();
    view.symlink(Caller::ROOT, sub, b"short", b"plain").unwrap();
    view.symlink(Caller::ROOT, sub, b"long", &[b't'; 300])
        .unwrap();
    view.symlink(Caller::ROOT, sub, b"dangling", b"\xffnowhere")
        .unwrap();
    for (name, kind, rdev) in [
        (&b"pipe"[..], FileKind::Fifo, 0),
        (b"null", FileKind::CharDevice, 0x103),
        (b"disk", FileKind::BlockDevice, 0x0120_08ab),
    ] {
        view.mknod(Caller::ROOT, sub, name, kind, 0o640, 0, rdev)
            .unwrap();
    }
    set_xattr(view, sub, b"user.dir", b"yes");
    set_mtime(view, sub, 1_000_000_000, 1);
    set_mtime(view, deep, 1_000_000_001, 2);
}

/// Describes everything below the root, and the root.
pub(crate) fn describe(view: &View) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut firsts: BTreeMap<Ino, String> = BTreeMap::new();
    let mut open = vec![(".".to_owned(), Ino::ROOT)];
    while let Some((path, ino)) = open.pop() {
        let attr = view.getattr(ino).unwrap();
        let mut xattrs: Vec<(String, Vec<u8>)> = view
            .listxattr(ino)
            .unwrap()
            .into_iter()
            .map(|name| {
                let value = view.getxattr(ino, &name).unwrap();
                (String::from_utf8(name).unwrap(), value)
            })
            .collect();
        xattrs.sort();
        let mut what = format!(
            "{:?} {:o} {}:{} rdev {:x} mtime {}.{:09} xattrs {xattrs:?}",
            attr.kind, attr.perm, attr.uid, attr.gid, attr.rdev, attr.mtime.secs, attr.mtime.nanos
        );
        match attr.kind {
            FileKind::Regular => {
                let bytes = content(view, ino);
                what += &format!(" {} bytes {:x}", bytes.len(), crc(&bytes));
            }
            FileKind::Symlink => what += &format!(" -> {:?}", view.readlink(ino).unwrap()),
            FileKind::Directory => {
                // The greatest name is pushed first, so that the smallest is visited first.
                for (name, child) in names(view, ino).into_iter().rev() {
                    open.push((format!("{path}/{}", name.escape_ascii()), child));
                }
            }
            _ => {}
        }
        if attr.kind != FileKind::Directory {
            what += &format!(" nlink {}", attr.nlink);
            let first = firsts.entry(ino).or_insert_with(|| path.clone());
            what += &format!(" first {first}");
        }
        found.insert(path, what);
    }
    found
}

fn crc(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Fails with the first difference.
pub(crate) fn assert_same(left: &BTreeMap<String, String>, right: &BTreeMap<String, String>) {
    for path in left.keys().chain(right.keys()) {
        assert_eq!(left.get(path), right.get(path), "at {path}");
    }
}
