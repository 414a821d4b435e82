//! Mounting, unmounting, and mounts that outlived their daemon.

use std::fs::{self, File};

use branchpoint_fs::fuse::{Mount, MountOptions, clean_stale_mount};

use crate::fixture::{limited, mounted, on_mount};

#[test]
fn a_busy_mount_is_refused_with_who_uses_it_and_goes_on() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "content").unwrap();
        let held = File::open(f.path("a")).unwrap();
        let refused = f.mount.unmount(false).unwrap_err().to_string();
        let me = format!("process {}", std::process::id());
        assert!(refused.contains(&me), "{refused}");
        assert!(refused.contains("force"), "{refused}");
        assert_eq!(fs::read_to_string(f.path("a")).unwrap(), "content");
        drop(held);
        f.mount.unmount(false).unwrap();
        assert!(!f.path("a").exists());
        // A second time is no error.
        f.mount.unmount(false).unwrap();
    });
}

#[test]
fn force_takes_a_busy_mount_away_and_keeps_what_was_written() {
    on_mount(MountOptions::default(), |f| {
        use std::os::unix::fs::FileExt;
        let held = File::create(f.path("a")).unwrap();
        held.write_all_at(b"written", 0).unwrap();
        f.mount.unmount(true).unwrap();
        assert_eq!(f.stored("a"), b"written");
        assert!(held.write_all_at(b"x", 0).is_err() || held.sync_all().is_err());
        assert_eq!(f.stored("a"), b"written");
        assert!(!f.path("a").exists());
    });
}

#[test]
fn unmounting_writes_out_what_the_kernel_holds() {
    on_mount(MountOptions::default(), |f| {
        for i in 0..50 {
            fs::write(f.path(&format!("f{i}")), format!("content {i}")).unwrap();
        }
        f.mount.unmount(false).unwrap();
        for i in 0..50 {
            assert_eq!(
                f.stored(&format!("f{i}")),
                format!("content {i}").into_bytes()
            );
        }
    });
}

#[test]
fn an_unmount_by_hand_is_noticed_and_what_is_mounted_later_is_left_alone() {
    on_mount(MountOptions::default(), |f| {
        nix::mount::umount(f.mount.dir()).unwrap();
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some("x"), f.mount.dir(), Some("tmpfs"), flags, None::<&str>).unwrap();
        fs::write(f.path("other"), "").unwrap();
        f.mount.unmount(false).unwrap();
        assert!(f.path("other").exists());
        nix::mount::umount(f.mount.dir()).unwrap();
    });
}

#[test]
fn a_second_mount_at_the_same_place_is_refused() {
    on_mount(MountOptions::default(), |f| {
        let view = f.mount.view();
        let refused = Mount::new(view, f.mount.dir(), &MountOptions::default()).unwrap_err();
        assert!(
            refused.to_string().contains("mounted there already"),
            "{refused}"
        );
        fs::write(f.path("a"), "").unwrap();
    });
}

#[test]
fn places_that_cannot_be_mounted_on_are_refused() {
    limited(|| {
        let Some(f) = mounted(MountOptions::default(), None) else {
            return;
        };
        let file = f.temp.path().join("file");
        File::create(&file).unwrap();
        for bad in [file, f.temp.path().join("missing")] {
            assert!(Mount::new(f.mount.view(), &bad, &MountOptions::default()).is_err());
        }
    });
}

#[test]
fn odd_names_of_the_mount_point_work() {
    limited(|| {
        let Some(f) = mounted(MountOptions::default(), None) else {
            return;
        };
        let checkpoint = f.checkpoint();
        for name in ["a,b", "with space", "new\nline", "back\\slash", "\u{e9}"] {
            let dir = f.temp.path().join(name);
            fs::create_dir(&dir).unwrap();
            let view = f.store.view_at(checkpoint.layer).unwrap();
            let mount = Mount::new(view, &dir, &MountOptions::default()).unwrap();
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
            mount.unmount(false).unwrap();
        }
    });
}

#[test]
fn a_live_mount_is_not_cleaned_away() {
    on_mount(MountOptions::default(), |f| {
        assert!(!clean_stale_mount(f.mount.dir()).unwrap());
        fs::write(f.path("a"), "").unwrap();
    });
}

#[test]
fn a_mount_whose_session_died_is_cleaned_away_and_can_be_made_again() {
    on_mount(MountOptions::default(), |f| {
        // What the kernel does when the daemon dies: the session ends, the mount stays. (Forcing a
        // mount that is in use has just this effect.)
        let held = File::open(f.mount.dir()).unwrap();
        nix::mount::umount2(f.mount.dir(), nix::mount::MntFlags::MNT_FORCE).unwrap_err();
        drop(held);
        let dead = fs::write(f.path("a"), "").unwrap_err();
        assert_eq!(
            dead.raw_os_error(),
            Some(nix::errno::Errno::ENOTCONN as i32)
        );
        assert!(clean_stale_mount(f.mount.dir()).unwrap());
        assert!(fs::metadata(f.mount.dir()).is_ok());
        let again = Mount::new(f.mount.view(), f.mount.dir(), &MountOptions::default()).unwrap();
        fs::write(f.path("a"), "").unwrap();
        again.unmount(false).unwrap();
    });
}
