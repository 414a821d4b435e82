//! Hard links, symbolic links, and their counts.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use branchpoint_tests::rig::Rig;

use crate::{fails, ino, nlink};

#[test]
fn links_share_content_attributes_and_count() {
    let Some(rig) = Rig::new() else { return };
    let (a, b) = (rig.path("a"), rig.path("b"));
    fs::write(&a, "one").unwrap();
    fs::hard_link(&a, &b).unwrap();
    assert_eq!((nlink(&a), nlink(&b)), (2, 2));
    assert_eq!(ino(&a), ino(&b));
    fs::write(&b, "two").unwrap();
    assert_eq!(fs::read_to_string(&a).unwrap(), "two");
    fs::remove_file(&a).unwrap();
    assert_eq!(nlink(&b), 1);
    fails(fs::hard_link(&b, &b), libc::EEXIST);
}

#[test]
fn directories_have_no_hard_links() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir(rig.path("d")).unwrap();
    fails(fs::hard_link(rig.path("d"), rig.path("e")), libc::EPERM);
}

#[test]
fn symbolic_links_keep_their_target_as_it_is() {
    let Some(rig) = Rig::new() else { return };
    let long = "x/".repeat(2047) + "y";
    for target in ["a", "../up//and/./down", "\u{3b1} with space\n", &long] {
        let path = rig.path("link");
        symlink(target, &path).unwrap();
        assert_eq!(
            fs::read_link(&path).unwrap().as_os_str().as_bytes(),
            target.as_bytes()
        );
        let len = u64::try_from(target.len()).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().len(), len);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn circles_of_symbolic_links_end() {
    let Some(rig) = Rig::new() else { return };
    symlink("b", rig.path("a")).unwrap();
    symlink("a", rig.path("b")).unwrap();
    fails(fs::read(rig.path("a")), libc::ELOOP);
}

#[test]
fn many_links_are_counted() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.path("f"), "x").unwrap();
    for n in 0..500 {
        fs::hard_link(rig.path("f"), rig.path(&format!("l{n}"))).unwrap();
    }
    assert_eq!(nlink(&rig.path("f")), 501);
    for n in 0..500 {
        fs::remove_file(rig.path(&format!("l{n}"))).unwrap();
    }
    assert_eq!(nlink(&rig.path("f")), 1);
}
