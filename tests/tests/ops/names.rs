//! Names of every kind.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;

use branchpoint_tests::rig::Rig;

use crate::fails;

#[test]
fn any_bytes_but_slash_and_nul_are_a_name() {
    let Some(rig) = Rig::new() else { return };
    let long = vec![b'x'; 255];
    let every: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').take(255).collect();
    let odd: [&[u8]; 7] = [
        b"new\nline",
        b"\xff\xfe",
        b" ",
        b"-rf",
        b"..x",
        &long,
        &every,
    ];
    for name in odd {
        let path = rig.dir.join(OsStr::from_bytes(name));
        fs::write(&path, name).unwrap();
        assert_eq!(fs::read(&path).unwrap(), name);
    }
    let mut listed: Vec<Vec<u8>> = fs::read_dir(&rig.dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().as_bytes().to_vec())
        .collect();
    let mut expected: Vec<Vec<u8>> = odd.iter().map(|name| name.to_vec()).collect();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    rig.checkpoint();
    for name in odd {
        fs::remove_file(rig.dir.join(OsStr::from_bytes(name))).unwrap();
    }
}

#[test]
fn names_are_too_long_beyond_255_bytes() {
    let Some(rig) = Rig::new() else { return };
    let long = "x".repeat(256);
    fails(File::create(rig.path(&long)), libc::ENAMETOOLONG);
    fails(fs::metadata(rig.path(&long)), libc::ENAMETOOLONG);
    File::create(rig.path("f")).unwrap();
    fails(
        fs::rename(rig.path("f"), rig.path(&long)),
        libc::ENAMETOOLONG,
    );
}

#[test]
fn case_and_composition_make_different_names() {
    let Some(rig) = Rig::new() else { return };
    for name in ["a", "A", "\u{e9}", "e\u{301}"] {
        fs::write(rig.path(name), name).unwrap();
    }
    for name in ["a", "A", "\u{e9}", "e\u{301}"] {
        assert_eq!(fs::read_to_string(rig.path(name)).unwrap(), name);
    }
}
