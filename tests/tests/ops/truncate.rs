//! Changing the size.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use branchpoint_tests::act::pattern;
use branchpoint_tests::rig::{Rig, Scratch};

use crate::fails;

#[test]
fn what_was_cut_off_comes_back_as_zeros() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    let data = pattern(1, 150_000);
    for cut in [0, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 149_999] {
        fs::write(&path, &data).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.sync_all().unwrap();
        file.set_len(cut).unwrap();
        file.set_len(150_000).unwrap();
        let bytes = fs::read(&path).unwrap();
        let cut = usize::try_from(cut).unwrap();
        assert!(bytes[..cut] == data[..cut], "cut at {cut}");
        assert!(bytes[cut..].iter().all(|byte| *byte == 0), "cut at {cut}");
    }
}

#[test]
fn the_same_holds_for_a_file_of_the_base() {
    let scratch = Scratch::new();
    let base = scratch.dir("base");
    let data = pattern(1, 150_000);
    for cut in [0, 1, 4096, 70_000] {
        fs::write(base.join(format!("f{cut}")), &data).unwrap();
    }
    let Some(rig) = Rig::with_base(&base) else {
        return;
    };
    for cut in [0, 1, 4096, 70_000] {
        let path = rig.path(&format!("f{cut}"));
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(cut).unwrap();
        file.set_len(150_000).unwrap();
        rig.checkpoint();
        let bytes = fs::read(&path).unwrap();
        let cut = usize::try_from(cut).unwrap();
        assert!(bytes[..cut] == data[..cut], "cut at {cut}");
        assert!(
            bytes[cut..].iter().all(|byte| *byte == 0),
            "the base shone through at {cut}"
        );
    }
}

#[test]
fn writing_past_the_end_leaves_zeros_between() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.write_all_at(b"abc", 0).unwrap();
    file.write_all_at(b"xyz", 100_000).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(&bytes[..3], b"abc");
    assert!(bytes[3..100_000].iter().all(|byte| *byte == 0));
    assert_eq!(&bytes[100_000..], b"xyz");
}

#[test]
fn only_regular_files_are_truncated() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir(rig.path("d")).unwrap();
    let result = nix::unistd::truncate(&rig.path("d"), 0).map_err(std::io::Error::from);
    fails(result, libc::EISDIR);
    fs::write(rig.path("f"), "x").unwrap();
    let result = nix::unistd::truncate(&rig.path("f"), -1).map_err(std::io::Error::from);
    fails(result, libc::EINVAL);
}
