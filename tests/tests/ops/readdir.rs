//! Listing directories while they change.

use std::collections::BTreeSet;
use std::fs::{self, File};

use branchpoint_tests::rig::Rig;

const COUNT: usize = 3000;

fn fill(rig: &Rig) {
    fs::create_dir(rig.path("d")).unwrap();
    for n in 0..COUNT {
        File::create(rig.path(&format!("d/file {n}"))).unwrap();
    }
}

#[test]
fn every_entry_is_listed_once() {
    let Some(rig) = Rig::new() else { return };
    fill(&rig);
    let names = crate::names(&rig.path("d"));
    assert_eq!(names.len(), COUNT);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), COUNT);
}

#[test]
fn entries_can_be_removed_while_listing() {
    let Some(rig) = Rig::new() else { return };
    fill(&rig);
    let mut removed = 0;
    for entry in fs::read_dir(rig.path("d")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    assert_eq!(removed, COUNT);
    fs::remove_dir(rig.path("d")).unwrap();
}

#[test]
fn entries_that_stay_are_listed_while_others_come_and_go() {
    let Some(rig) = Rig::new() else { return };
    fill(&rig);
    let mut seen = Vec::new();
    for (n, entry) in fs::read_dir(rig.path("d")).unwrap().enumerate() {
        seen.push(entry.unwrap().file_name().into_string().unwrap());
        if n % 3 == 0 {
            File::create(rig.path(&format!("d/new {n}"))).unwrap();
        }
        if n % 5 == 0 && n > 0 {
            drop(fs::remove_file(rig.path(&format!("d/new {}", n - n % 3))));
        }
    }
    let old: Vec<&String> = seen
        .iter()
        .filter(|name| name.starts_with("file"))
        .collect();
    assert_eq!(old.len(), COUNT, "something was left out or listed twice");
    assert_eq!(old.iter().collect::<BTreeSet<_>>().len(), COUNT);
}

#[test]
fn rewinding_shows_what_is_new() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir(rig.path("d")).unwrap();
    let flags = nix::fcntl::OFlag::O_RDONLY | nix::fcntl::OFlag::O_DIRECTORY;
    let mut dir =
        nix::dir::Dir::open(&rig.path("d"), flags, nix::sys::stat::Mode::empty()).unwrap();
    assert_eq!(dir.iter().count(), 2);
    File::create(rig.path("d/f")).unwrap();
    assert_eq!(dir.iter().count(), 3);
    fs::remove_file(rig.path("d/f")).unwrap();
    assert_eq!(dir.iter().count(), 2);
}

#[test]
fn kinds_and_inodes_of_entries_are_those_of_stat() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir(rig.path("dir")).unwrap();
    File::create(rig.path("file")).unwrap();
    std::os::unix::fs::symlink("x", rig.path("link")).unwrap();
    for entry in fs::read_dir(&rig.dir).unwrap().map(Result::unwrap) {
        let meta = entry.path().symlink_metadata().unwrap();
        assert_eq!(entry.file_type().unwrap(), meta.file_type());
        let ino = std::os::unix::fs::DirEntryExt::ino(&entry);
        assert_eq!(ino, std::os::unix::fs::MetadataExt::ino(&meta));
    }
}
