//! The shortest way through everything: make a store over a base, write, branch, roll back.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use branchpoint_fs::attr::{Caller, FileKind};
use branchpoint_fs::id::Ino;
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_fs::view::View;

fn read_all(view: &View, ino: Ino) -> Vec<u8> {
    let mut bytes = Vec::new();
    view.read(ino, 0, 1 << 20, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_file_of_the_base_is_changed_in_one_branch_only() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    std::fs::create_dir(&base).unwrap();
    let old: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(base.join("file"), &old).unwrap();
    let path = dir.path().join("store");
    Store::create(&path, &StoreOptions { base: Some(base) }).unwrap();
    let store = Store::open(&path).unwrap();

    let main = store.view("main").unwrap();
    let file = main.lookup(Ino::ROOT, b"file").unwrap().ino;
    assert_eq!(read_all(&main, file), old);
    main.write(file, 5000, b"changed", false).unwrap();
    let mut new = old.clone();
    new[5000..5007].copy_from_slice(b"changed");
    assert_eq!(read_all(&main, file), new);

    let before = store.checkpoint("main", Some("changed"), true).unwrap();
    main.unlink(Ino::ROOT, b"file").unwrap();
    assert!(main.lookup(Ino::ROOT, b"file").is_err());
    let made = main
        .mknod(
            Caller::ROOT,
            Ino::ROOT,
            b"new",
            FileKind::Regular,
            0o644,
            0,
            0,
        )
        .unwrap();
    main.write(made.ino, 0, &vec![7; 200_000], false).unwrap();
    assert_eq!(read_all(&main, made.ino), vec![7; 200_000]);

    let revision = store.resolve("changed").unwrap();
    store.branch_create("side", &revision).unwrap();
    let side = store.view("side").unwrap();
    assert_eq!(read_all(&side, file), new);
    assert!(side.lookup(Ino::ROOT, b"new").is_err());

    store
        .rollback(
            "main",
            &store.resolve(&before.id.to_string()).unwrap(),
            None,
        )
        .unwrap();
    assert!(main.getattr(file).is_err(), "the old view has ended");
    let main = store.view("main").unwrap();
    assert_eq!(read_all(&main, file), new);
    let mut names = Vec::new();
    main.readdir(Ino::ROOT, 0, &mut |entry| {
        names.push(String::from_utf8(entry.name.clone()).unwrap());
        true
    })
    .unwrap();
    assert_eq!(names, [".", "..", "file"]);
}
