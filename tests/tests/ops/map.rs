//! Files mapped into memory.

use std::fs::{self, File};
use std::os::fd::AsFd;

use branchpoint_fs::id::Ino;
use branchpoint_tests::act::pattern;
use branchpoint_tests::rig::Rig;
use branchpoint_tests::sys::SharedMapping;

fn mapped(rig: &Rig, len: usize) -> SharedMapping {
    let path = rig.path("f");
    fs::write(&path, pattern(1, len)).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    SharedMapping::new(file.as_fd(), len).unwrap()
}

#[test]
fn writes_through_a_mapping_are_read_by_others() {
    let Some(rig) = Rig::new() else { return };
    let mapping = mapped(&rig, 20_000);
    mapping.set(10_000, 0);
    assert_eq!(fs::read(rig.path("f")).unwrap()[10_000], 0);
    fs::write(rig.path("f"), pattern(2, 20_000)).unwrap();
    assert_eq!(mapping.get(15_000), pattern(2, 20_000)[15_000]);
    mapping.set(1, 0);
    mapping.sync().unwrap();
}

#[test]
fn page_dirtied_after_close_is_in_the_checkpoint() {
    let Some(rig) = Rig::new() else { return };
    let mapping = mapped(&rig, 20_000);
    rig.checkpoint();
    mapping.set(5_000, 0);
    mapping.set(19_999, 0);
    let checkpoint = rig.checkpoint();
    let layer = rig.store.resolve(&checkpoint).unwrap().layer();
    let view = rig.store.view_at(layer).unwrap();
    let ino = view.lookup(Ino::ROOT, b"f").unwrap().ino;
    let mut bytes = Vec::new();
    view.read(ino, 0, 20_000, &mut bytes).unwrap();
    assert_eq!(
        (bytes[5_000], bytes[19_999]),
        (0, 0),
        "the checkpoint is older than the mapping"
    );
    assert_eq!(bytes[4_999], pattern(1, 20_000)[4_999]);
}

#[test]
fn mapping_keeps_a_removed_file() {
    let Some(rig) = Rig::new() else { return };
    let mapping = mapped(&rig, 20_000);
    fs::remove_file(rig.path("f")).unwrap();
    assert_eq!(mapping.get(12_345), pattern(1, 20_000)[12_345]);
    mapping.set(12_345, 0);
    assert_eq!(mapping.get(12_345), 0);
    mapping.sync().unwrap();
}

#[test]
fn mapping_shows_the_rolled_back_content() {
    let Some(rig) = Rig::new() else { return };
    let mapping = mapped(&rig, 20_000);
    let checkpoint = rig.checkpoint();
    mapping.set(5_000, 0);
    assert_eq!(mapping.get(5_000), 0);
    rig.rollback(&checkpoint);
    assert_eq!(mapping.get(5_000), pattern(1, 20_000)[5_000]);
}
