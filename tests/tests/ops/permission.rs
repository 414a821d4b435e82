//! Who may do what.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;

use branchpoint_tests::rig::Rig;
use branchpoint_tests::sys::as_user;

use crate::{fails, mode};

fn dir(rig: &Rig, perm: u32) -> PathBuf {
    let dir = rig.path("d");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(perm)).unwrap();
    dir
}

#[test]
fn files_belong_to_who_makes_them() {
    let Some(rig) = Rig::new() else { return };
    let dir = dir(&rig, 0o777);
    as_user(1000, 2000, &[], || File::create(dir.join("f")).unwrap());
    let meta = fs::metadata(dir.join("f")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (1000, 2000));
}

#[test]
fn permissions_are_enforced() {
    let Some(rig) = Rig::new() else { return };
    let dir = dir(&rig, 0o755);
    fs::write(dir.join("f"), "x").unwrap();
    fs::set_permissions(dir.join("f"), Permissions::from_mode(0o640)).unwrap();
    chown(dir.join("f"), None, Some(3000)).unwrap();
    as_user(1000, 1000, &[], || {
        fails(fs::read(dir.join("f")), libc::EACCES);
        fails(File::create(dir.join("g")), libc::EACCES);
        fails(fs::remove_file(dir.join("f")), libc::EACCES);
    });
    as_user(1000, 1000, &[3000], || {
        fs::read(dir.join("f")).unwrap();
        fails(
            File::options().write(true).open(dir.join("f")),
            libc::EACCES,
        );
    });
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    as_user(1000, 1000, &[3000], || {
        fails(fs::read(dir.join("f")), libc::EACCES);
        fails(fs::read_dir(&dir), libc::EACCES);
    });
}

#[test]
fn sticky_directories_protect_the_files_of_others() {
    let Some(rig) = Rig::new() else { return };
    let dir = dir(&rig, 0o1777);
    as_user(1000, 1000, &[], || fs::write(dir.join("f"), "x").unwrap());
    as_user(1001, 1001, &[], || {
        fails(fs::remove_file(dir.join("f")), libc::EPERM);
        fails(fs::rename(dir.join("f"), dir.join("g")), libc::EPERM);
        fs::write(dir.join("own"), "x").unwrap();
        fails(fs::rename(dir.join("own"), dir.join("f")), libc::EPERM);
        fs::remove_file(dir.join("own")).unwrap();
    });
    as_user(1000, 1000, &[], || fs::remove_file(dir.join("f")).unwrap());
}

#[test]
fn setgid_directories_hand_their_group_down() {
    let Some(rig) = Rig::new() else { return };
    let dir = dir(&rig, 0o777);
    chown(&dir, None, Some(3000)).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o2777)).unwrap();
    as_user(1000, 1000, &[], || {
        fs::write(dir.join("f"), "x").unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/f"), "x").unwrap();
    });
    for name in ["f", "sub", "sub/f"] {
        assert_eq!(fs::metadata(dir.join(name)).unwrap().gid(), 3000, "{name}");
    }
    assert_eq!(mode(&dir.join("sub")) & 0o2000, 0o2000);
    assert_eq!(mode(&dir.join("f")) & 0o2000, 0);
}
