//! Programs that lie on the mount.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use branchpoint_tests::rig::Rig;

use crate::fails;

#[test]
fn programs_run_from_the_mount() {
    let Some(rig) = Rig::new() else { return };
    fs::copy("/bin/true", rig.path("program")).unwrap();
    assert!(
        Command::new(rig.path("program"))
            .status()
            .unwrap()
            .success()
    );
    fs::write(rig.path("script"), "#!/bin/sh\nexit 7\n").unwrap();
    fails(Command::new(rig.path("script")).status(), libc::EACCES);
    fs::set_permissions(rig.path("script"), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        Command::new(rig.path("script")).status().unwrap().code(),
        Some(7)
    );
}

#[test]
fn running_program_is_not_written_but_replaced() {
    let Some(rig) = Rig::new() else { return };
    fs::copy("/bin/sleep", rig.path("program")).unwrap();
    let mut running = Command::new(rig.path("program")).arg("30").spawn().unwrap();
    fails(
        fs::File::options().write(true).open(rig.path("program")),
        libc::ETXTBSY,
    );
    fs::copy("/bin/true", rig.path("new")).unwrap();
    fs::rename(rig.path("new"), rig.path("program")).unwrap();
    assert!(
        Command::new(rig.path("program"))
            .status()
            .unwrap()
            .success()
    );
    assert!(
        running.try_wait().unwrap().is_none(),
        "the running program died"
    );
    running.kill().unwrap();
    running.wait().unwrap();
}
