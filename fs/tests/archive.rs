//! Trees out of a store and into it as archives, and what other programs make of them.
#![allow(clippy::unwrap_used)]

#[path = "support/trees.rs"]
mod trees;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use branchpoint_fs::archive::{export, import};
use branchpoint_fs::attr::{Caller, FileKind};
use branchpoint_fs::error::{Error, ErrorKind};
use branchpoint_fs::id::Ino;
use branchpoint_fs::store::Store;

use trees::*;

fn exported(store: &Arc<Store>, branch: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let layer = store.branch(branch).unwrap().head;
    export(store, layer, &mut bytes, &mut quiet).unwrap();
    bytes
}

fn tar(dir: &Path, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("tar")
        .args(args)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "tar {args:?}");
    output.stdout
}

#[test]
fn gnu_tar_unpacks_an_equal_tree() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path(), "store", None);
    let main = store.view("main").unwrap();
    plant(&main);
    let bytes = exported(&store, "main");
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let args = ["-xp", "--numeric-owner", "--xattrs", "--xattrs-include=*"];
    tar(&out, &args, &bytes);
    let other = open_store(dir.path(), "other", Some(&out));
    assert_same(&describe(&main), &describe(&other.view("main").unwrap()));
}

#[test]
fn an_export_imports_as_an_equal_tree_and_exports_as_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path(), "store", None);
    plant(&store.view("main").unwrap());
    let bytes = exported(&store, "main");
    let other = open_store(dir.path(), "other", None);
    let old_view = other.view("main").unwrap();
    let outcome = import(&other, "main", bytes.as_slice(), &mut quiet).unwrap();
    assert_eq!((outcome.hard_links, outcome.special_files), (2, 3));
    assert!(old_view.getattr(Ino::ROOT).is_err(), "its view has ended");
    let want = describe(&store.view("main").unwrap());
    assert_same(&want, &describe(&other.view("main").unwrap()));
    assert!(want.len() > 15);
    assert!(exported(&other, "main") == bytes);
    // Once more into the same branch changes nothing.
    import(&other, "main", bytes.as_slice(), &mut quiet).unwrap();
    assert_same(&want, &describe(&other.view("main").unwrap()));
}

#[test]
fn sockets_are_left_out_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path(), "store", None);
    let main = store.view("main").unwrap();
    main.mknod(Caller::ROOT, Ino::ROOT, b"s", FileKind::Socket, 0o600, 0, 0)
        .unwrap();
    let mut bytes = Vec::new();
    let outcome = export(&store, main.head(), &mut bytes, &mut quiet).unwrap();
    assert_eq!((outcome.sockets_skipped, outcome.directories), (1, 1));
    assert_eq!(tar(dir.path(), &["-t"], &bytes), b"./\n");
}

#[test]
fn archives_of_gnu_tar_of_every_format_come_in_whole() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    std::fs::create_dir_all(from.join("a").join("x".repeat(80))).unwrap();
    std::fs::write(from.join("a/file"), vec![3; 10_000]).unwrap();
    std::fs::write(
        from.join("a").join("x".repeat(80)).join("y".repeat(60)),
        "long",
    )
    .unwrap();
    std::fs::hard_link(from.join("a/file"), from.join("b")).unwrap();
    std::os::unix::fs::symlink("a/file", from.join("c")).unwrap();
    let sparse = std::fs::File::create(from.join("sparse")).unwrap();
    sparse.set_len(5_000_000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"x", 4_000_000).unwrap();
    drop(sparse);
    let source = open_store(dir.path(), "source", Some(&from));
    let want = describe(&source.view("main").unwrap());
    for (number, args) in [
        &["--format=pax", "-cf", "-", "."][..],
        &["--format=gnu", "-cf", "-", "."],
        &["--format=oldgnu", "-cf", "-", "."],
    ]
    .iter()
    .enumerate()
    {
        let bytes = tar(&from, args, b"");
        let store = open_store(dir.path(), &format!("store{number}"), None);
        import(&store, "main", bytes.as_slice(), &mut quiet).unwrap();
        let got = describe(&store.view("main").unwrap());
        assert_eq!(got.len(), want.len());
        for (path, want) in &want {
            // The formats of GNU have whole seconds.
            let cut = |text: &str| {
                let (a, b) = text.split_once(" mtime ").unwrap();
                let (whole, b) = b.split_once('.').unwrap();
                let (nanos, b) = b.split_once(' ').unwrap();
                let nanos = if number == 0 { nanos } else { "" };
                format!("{a} {whole} {nanos} {b}")
            };
            assert_eq!(cut(want), cut(&got[path]), "{path} {args:?}");
        }
    }
}

#[test]
fn sparse_members_come_in_with_their_holes() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    // Few parts fit into a header, many do not.
    let mut want: Vec<(&str, Vec<u8>)> = Vec::new();
    for (name, parts, end) in [
        ("few", 3, 1 << 20),
        ("many", 90, 4 << 20),
        ("hole", 0, 70_000),
    ] {
        let path = std::fs::File::create(dir.path().join(name)).unwrap();
        path.set_len(end).unwrap();
        for part in 0..parts {
            let at = part * 40_960 + 4096;
            path.write_all_at(&[b'a' + (part % 26) as u8; 4096], at)
                .unwrap();
        }
        want.push((name, std::fs::read(dir.path().join(name)).unwrap()));
    }
    for (number, format) in [
        &["--format=gnu"][..],
        &["--format=oldgnu"],
        &["--format=pax", "--sparse-version=0.0"],
        &["--format=pax", "--sparse-version=0.1"],
        &["--format=pax", "--sparse-version=1.0"],
    ]
    .iter()
    .enumerate()
    {
        let args = [
            "-S",
            "--hole-detection=raw",
            "-cf",
            "-",
            "few",
            "many",
            "hole",
        ];
        let bytes = tar(dir.path(), &[format, &args[..]].concat(), b"");
        assert!(bytes.len() < 700_000, "{format:?}: holes are left out");
        let store = open_store(dir.path(), &format!("store{number}"), None);
        import(&store, "main", bytes.as_slice(), &mut quiet).unwrap();
        let view = store.view("main").unwrap();
        assert_eq!(names(&view, Ino::ROOT).len(), 3, "{format:?}");
        for (name, want) in &want {
            let ino = at(&view, name);
            assert!(content(&view, ino) == *want, "{name}, {format:?}");
            let data = want.iter().filter(|byte| **byte != 0).count() as u64;
            assert_eq!(
                view.getattr(ino).unwrap().blocks * 512,
                data,
                "{name}, {format:?}"
            );
        }
        // Cut anywhere, nothing comes in.
        for cut in (512..bytes.len() - 10_240).step_by(20_480) {
            let error = import(&store, "main", &bytes[..cut], &mut quiet).unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::Invalid,
                "{cut}, {format:?}: {error}"
            );
        }
    }
}

/// A sparse member of the old kind.
fn sparse_member(parts: &[(u64, u64)], real_size: u64, stored: u64) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path("holes").unwrap();
    header.set_entry_type(tar::EntryType::GNUSparse);
    header.set_size(stored);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    let octal = |number: u64| -> [u8; 12] {
        let mut field = [0; 12];
        field[..11].copy_from_slice(format!("{number:011o}").as_bytes());
        field
    };
    let gnu = header.as_gnu_mut().unwrap();
    gnu.realsize = octal(real_size);
    for (field, (offset, length)) in gnu.sparse.iter_mut().zip(parts) {
        (field.offset, field.numbytes) = (octal(*offset), octal(*length));
    }
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(vec![
        b'x';
        usize::try_from(stored.next_multiple_of(512)).unwrap()
    ]);
    bytes.extend([0; 1024]);
    bytes
}

#[test]
fn sparse_members_that_contradict_themselves_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path(), "store", None);
    let good = sparse_member(&[(0, 512), (4096, 100)], 8000, 612);
    import(&store, "main", good.as_slice(), &mut quiet).unwrap();
    let before = describe(&store.view("main").unwrap());
    for (parts, real_size, stored) in [
        (&[(0, 512), (100, 512)][..], 8000, 1024),
        (&[(4096, 512), (0, 512)], 8000, 1024),
        (&[(7900, 512)], 8000, 512),
        (&[(0, 512)], 8000, 1024),
        (&[(0, 2048)], 8000, 1024),
    ] {
        let bytes = sparse_member(parts, real_size, stored);
        let error = import(&store, "main", bytes.as_slice(), &mut quiet).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{parts:?}: {error}");
        assert!(error.to_string().contains("sparse"), "{error}");
        assert_same(&before, &describe(&store.view("main").unwrap()));
    }
}

#[test]
fn an_archive_cut_anywhere_or_damaged_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let source = open_store(dir.path(), "source", None);
    let view = source.view("main").unwrap();
    file(&view, Ino::ROOT, b"one", &vec![1; 1500]);
    file(&view, Ino::ROOT, b"two", b"2");
    let bytes = exported(&source, "main");
    let store = open_store(dir.path(), "store", None);
    let main = store.view("main").unwrap();
    file(&main, Ino::ROOT, b"one", b"mine");
    let before = describe(&main);
    let end = bytes.len() - 1024;
    let refused = |input: &[u8], what: &str| {
        let error = import(&store, "main", input, &mut quiet).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
        assert_same(&before, &describe(&store.view("main").unwrap()));
    };
    for cut in (0..=end).step_by(100).chain((0..=end).step_by(512)) {
        refused(&bytes[..cut], &format!("cut at {cut}"));
    }
    let mut damaged = bytes.clone();
    damaged[0] ^= 1;
    refused(&damaged, "damaged");
    refused(&vec![b'x'; 4096], "no archive");
    // The view that was open all the time has not been disturbed.
    assert_same(&before, &describe(&main));
    import(&store, "main", bytes.as_slice(), &mut quiet).unwrap();
    assert_eq!(names(&store.view("main").unwrap(), Ino::ROOT).len(), 2);
}

fn member(name: &[u8], kind: tar::EntryType, link: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
    header.set_entry_type(kind);
    for set in [
        tar::Header::set_uid,
        tar::Header::set_gid,
        tar::Header::set_mtime,
    ] {
        set(&mut header, 0);
    }
    header.set_mode(0o644);
    header.set_size(0);
    header.set_cksum();
    header.as_bytes().to_vec()
}

#[test]
fn members_that_lead_outside_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path(), "store", None);
    let main = store.view("main").unwrap();
    let full = main
        .mkdir(Caller::ROOT, Ino::ROOT, b"full", 0o755, 0)
        .unwrap();
    file(&main, full.ino, b"file", b"x");
    let before = describe(&main);
    let regular = tar::EntryType::Regular;
    let link = member(b"link", tar::EntryType::Symlink, b"/etc");
    for (name, members) in [
        ("../out", vec![member(b"../out", regular, b"")]),
        ("a/../../out", vec![member(b"a/../../out", regular, b"")]),
        (
            "link/passwd",
            vec![link.clone(), member(b"link/passwd", regular, b"")],
        ),
        (
            "hard",
            vec![link, member(b"hard", tar::EntryType::Link, b"link/passwd")],
        ),
        (
            "hard",
            vec![member(b"hard", tar::EntryType::Link, b"../../etc/passwd")],
        ),
        (
            "hard",
            vec![member(b"hard", tar::EntryType::Link, b"missing")],
        ),
        ("full", vec![member(b"full", regular, b"")]),
        ("full/file/x", vec![member(b"full/file/x", regular, b"")]),
    ] {
        let input = [members.concat(), vec![0; 1024]].concat();
        let error = import(&store, "main", input.as_slice(), &mut quiet).unwrap_err();
        assert!(matches!(error, Error::BadInput { .. }), "{error:?}");
        assert!(error.to_string().contains(&format!("'{name}'")), "{error}");
        assert_same(&before, &describe(&store.view("main").unwrap()));
    }
    let input = [member(b"/etc/name", regular, b""), vec![0; 1024]].concat();
    let outcome = import(&store, "main", input.as_slice(), &mut quiet).unwrap();
    assert_eq!((outcome.made_relative, outcome.files), (1, 1));
    at(&store.view("main").unwrap(), "etc/name");
}

#[test]
fn a_branch_changed_during_an_import_keeps_its_change() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path(), "store", None);
    let main = store.view("main").unwrap();
    file(&main, Ino::ROOT, b"old", b"x");
    let input = [member(b"new", tar::EntryType::Regular, b""), vec![0; 1024]].concat();
    let mut once = true;
    let error = import(&store, "main", input.as_slice(), &mut |_| {
        if std::mem::take(&mut once) {
            file(&main, Ino::ROOT, b"meanwhile", b"y");
        }
        Ok(())
    })
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let left: Vec<_> = names(&main, Ino::ROOT).into_iter().map(|n| n.0).collect();
    assert_eq!(left, [b"meanwhile".to_vec(), b"old".to_vec()]);
}
