//! A mount that is rolled back or switched while programs use it.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;

use branchpoint_tests::act::pattern;
use branchpoint_tests::dump;
use branchpoint_tests::rig::Rig;

use crate::names;

#[test]
fn rollback_brings_everything_back() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir_all(rig.path("d/sub")).unwrap();
    fs::write(rig.path("d/f"), pattern(1, 100_000)).unwrap();
    fs::write(rig.path("gone"), "gone").unwrap();
    let before = dump::read(&rig.dir);
    let checkpoint = rig.checkpoint();
    fs::write(rig.path("d/f"), pattern(2, 50_000)).unwrap();
    fs::rename(rig.path("d/sub"), rig.path("sub")).unwrap();
    fs::remove_file(rig.path("gone")).unwrap();
    fs::write(rig.path("new"), "new").unwrap();
    assert_eq!(names(&rig.dir), ["d", "new", "sub"]);
    rig.rollback(&checkpoint);
    let after = dump::read(&rig.dir);
    assert!(before.keys().eq(after.keys()), "{:?}", names(&rig.dir));
    for (path, entry) in &before {
        assert_eq!(
            entry.difference(&after[path]),
            None,
            "{}",
            path.escape_ascii()
        );
        assert_eq!(entry.mtime, after[path].mtime, "{}", path.escape_ascii());
    }
}

#[test]
fn open_descriptor_follows_its_file_through_a_rollback() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("f"), "old content").unwrap();
    let checkpoint = rig.checkpoint();
    fs::write(rig.path("f"), "new").unwrap();
    let mut file = File::options()
        .read(true)
        .write(true)
        .open(rig.path("f"))
        .unwrap();
    let made_later = File::create(rig.path("later")).unwrap();
    rig.rollback(&checkpoint);
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old content");
    file.write_all_at(b"OLD", 0).unwrap();
    assert_eq!(fs::read_to_string(rig.path("f")).unwrap(), "OLD content");
    assert!(!rig.path("later").exists());
    crate::fails(made_later.metadata(), libc::ESTALE);
}

#[test]
fn unwritten_pages_of_the_old_head_do_not_get_into_the_new_one() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("f"), pattern(1, 300_000)).unwrap();
    let checkpoint = rig.checkpoint();
    for round in 0..10_u8 {
        fs::write(rig.path("f"), pattern(10 + round, 200_000)).unwrap();
        rig.rollback(&checkpoint);
        assert!(
            fs::read(rig.path("f")).unwrap() == pattern(1, 300_000),
            "round {round}"
        );
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(fs::read(rig.path("f")).unwrap() == pattern(1, 300_000));
}

#[test]
fn switching_branches_changes_what_is_seen_and_nothing_else() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("f"), "main").unwrap();
    rig.mount().flush().unwrap();
    let from = rig.store.resolve("main").unwrap();
    rig.store.branch_create("other", &from).unwrap();
    let to = |branch: &str| rig.mount().switch(|| rig.store.view(branch)).unwrap();
    to("other");
    assert_eq!(fs::read_to_string(rig.path("f")).unwrap(), "main");
    fs::write(rig.path("f"), "other").unwrap();
    fs::write(rig.path("only"), "other").unwrap();
    to("main");
    assert_eq!(fs::read_to_string(rig.path("f")).unwrap(), "main");
    assert!(!rig.path("only").exists());
    to("other");
    assert_eq!(fs::read_to_string(rig.path("f")).unwrap(), "other");
    assert_eq!(names(&rig.dir), ["f", "only"]);
}

#[test]
fn writers_go_on_during_many_checkpoints() {
    let Some(rig) = Rig::new() else { return };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..300 {
                let path = rig.path(&format!("f{}", n % 10));
                let text = format!("round {n}");
                fs::write(&path, &text).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
            }
        });
        while !writer.is_finished() {
            rig.checkpoint();
        }
    });
    assert_eq!(names(&rig.dir).len(), 10);
}
