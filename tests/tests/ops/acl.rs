//! POSIX access control lists, set and read with the system's own tools.

use std::fs;
use std::path::Path;
use std::process::Command;

use branchpoint_tests::rig::Rig;
use branchpoint_tests::sys::as_user;

use crate::mode;

/// Sets an ACL; `false`, loudly, where the tool is missing.
fn set_acl(arguments: &[&str], path: &Path) -> bool {
    match Command::new("setfacl").args(arguments).arg(path).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "setfacl {arguments:?}: {said}");
            true
        }
        Err(_) => {
            eprintln!("SKIP acl: setfacl is not installed");
            false
        }
    }
}

fn get_acl(path: &Path) -> String {
    let output = Command::new("getfacl")
        .args(["-cnE"])
        .arg(path)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn access_list_lets_a_named_user_in() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("f");
    fs::write(&path, "secret").unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let read = |uid| as_user(uid, uid, &[], || fs::read(&path).is_ok());
    assert!(!read(1000) && !read(1001));
    if !set_acl(&["-m", "u:1000:r"], &path) {
        return;
    }
    assert!(read(1000) && !read(1001));
    // The mask is where the group's bits were.
    assert_eq!(mode(&path), 0o640);
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert!(!read(1000), "a mask of nothing lets nobody in");
    assert!(get_acl(&path).contains("mask::---"), "{}", get_acl(&path));
}

#[test]
fn default_list_is_inherited() {
    let Some(rig) = Rig::new() else { return };
    let dir = rig.path("d");
    fs::create_dir(&dir).unwrap();
    if !set_acl(&["-d", "-m", "u::rwx,g::rx,o::-,u:1000:rwx"], &dir) {
        return;
    }
    fs::write(dir.join("f"), "").unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    assert!(
        get_acl(&dir.join("f")).contains("user:1000:rw"),
        "{}",
        get_acl(&dir.join("f"))
    );
    assert_eq!(mode(&dir.join("f")) & 0o007, 0);
    let sub = get_acl(&dir.join("sub"));
    assert!(
        sub.contains("default:user:1000:rwx") && sub.contains("user:1000:rwx"),
        "{sub}"
    );
    as_user(1000, 1000, &[], || {
        fs::write(dir.join("sub/by another"), "x").unwrap();
    });
}
