//! What the filesystem says about itself.

use branchpoint_tests::rig::Rig;
use nix::sys::statvfs::statvfs;

#[test]
fn free_space_is_that_of_the_disk_below() {
    let Some(rig) = Rig::new() else { return };
    let below = statvfs(rig.scratch.path()).unwrap();
    let mount = statvfs(&rig.dir).unwrap();
    assert_eq!(mount.name_max(), 255);
    let bytes = |stat: &nix::sys::statvfs::Statvfs| {
        (
            stat.blocks() * stat.fragment_size(),
            stat.blocks_available() * stat.fragment_size(),
        )
    };
    let ((total, free), (total_below, free_below)) = (bytes(&mount), bytes(&below));
    assert_eq!(total, total_below);
    // Others use the disk too.
    assert!(
        free.abs_diff(free_below) < total / 20,
        "{free} and {free_below} of {total}"
    );
    assert!(mount.files_free() > 0);
}
