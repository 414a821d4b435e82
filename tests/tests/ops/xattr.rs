//! Extended attributes.

use std::fs;

use branchpoint_fs::attr::XattrMode;
use branchpoint_tests::act::pattern;
use branchpoint_tests::rig::Rig;
use branchpoint_tests::sys::{get_xattr, list_xattrs, remove_xattr, set_xattr};
use nix::errno::Errno;

#[test]
fn attributes_of_all_sizes_are_kept() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    fs::write(&path, "").unwrap();
    for len in [0, 1, 255, 4096, 60_000, 65_536] {
        let value = pattern(1, len);
        set_xattr(&path, b"user.a", &value, XattrMode::Either).unwrap();
        assert!(get_xattr(&path, b"user.a").unwrap() == value, "{len} bytes");
    }
    let too_large = set_xattr(&path, b"user.a", &pattern(1, 65_537), XattrMode::Either);
    assert!(
        matches!(too_large, Err(Errno::E2BIG | Errno::ERANGE)),
        "{too_large:?}"
    );
}

#[test]
fn modes_are_kept() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    fs::write(&path, "").unwrap();
    assert_eq!(
        set_xattr(&path, b"user.a", b"1", XattrMode::Replace),
        Err(Errno::ENODATA)
    );
    set_xattr(&path, b"user.a", b"1", XattrMode::Create).unwrap();
    assert_eq!(
        set_xattr(&path, b"user.a", b"2", XattrMode::Create),
        Err(Errno::EEXIST)
    );
    set_xattr(&path, b"user.a", b"2", XattrMode::Replace).unwrap();
    assert_eq!(get_xattr(&path, b"user.a").unwrap(), b"2");
}

#[test]
fn absent_is_not_unsupported() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    fs::write(&path, "").unwrap();
    assert_eq!(get_xattr(&path, b"user.a"), Err(Errno::ENODATA));
    assert_eq!(remove_xattr(&path, b"user.a"), Err(Errno::ENODATA));
    assert_eq!(
        get_xattr(&path, b"security.capability"),
        Err(Errno::ENODATA)
    );
    let odd = set_xattr(&path, b"nonsense.a", b"1", XattrMode::Either);
    assert_eq!(odd, Err(Errno::EOPNOTSUPP));
    assert_eq!(get_xattr(&path, b"nonsense.a"), Err(Errno::EOPNOTSUPP));
}

#[test]
fn names_are_listed_once_and_go_with_removal() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("d");
    fs::create_dir(&path).unwrap();
    for n in 0..100 {
        let name = format!("user.{n}");
        set_xattr(&path, name.as_bytes(), name.as_bytes(), XattrMode::Either).unwrap();
    }
    set_xattr(&path, b"trusted.t", b"x", XattrMode::Either).unwrap();
    assert_eq!(list_xattrs(&path).unwrap().len(), 101);
    for n in 0..100 {
        remove_xattr(&path, format!("user.{n}").as_bytes()).unwrap();
    }
    assert_eq!(list_xattrs(&path).unwrap(), [b"trusted.t".to_vec()]);
}

#[test]
fn user_attributes_are_for_files_and_directories_only() {
    let Some(rig) = Rig::new() else { return };
    std::os::unix::fs::symlink("x", rig.path("l")).unwrap();
    let result = set_xattr(&rig.path("l"), b"user.a", b"1", XattrMode::Either);
    assert_eq!(result, Err(Errno::EPERM));
}

#[test]
fn attributes_survive_checkpoint_and_rollback() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    fs::write(&path, "").unwrap();
    set_xattr(&path, b"user.a", b"old", XattrMode::Either).unwrap();
    let checkpoint = rig.checkpoint();
    set_xattr(&path, b"user.a", b"new", XattrMode::Either).unwrap();
    set_xattr(&path, b"user.b", b"new", XattrMode::Either).unwrap();
    rig.rollback(&checkpoint);
    assert_eq!(get_xattr(&path, b"user.a").unwrap(), b"old");
    assert_eq!(list_xattrs(&path).unwrap(), [b"user.a".to_vec()]);
}
