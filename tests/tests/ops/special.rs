//! Fifos, sockets and devices.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};

use branchpoint_tests::rig::Rig;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;

#[test]
fn fifo_connects_two_threads() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("fifo");
    mkfifo(&path, Mode::from_bits_truncate(0o600)).unwrap();
    assert!(path.symlink_metadata().unwrap().file_type().is_fifo());
    let text = std::thread::scope(|scope| {
        let writer = scope.spawn(|| File::create(&path).unwrap().write_all(b"through").unwrap());
        let text = fs::read_to_string(&path).unwrap();
        writer.join().unwrap();
        text
    });
    assert_eq!(text, "through");
}

#[test]
fn socket_has_a_name_on_the_mount() {
    let Some(rig) = Rig::new() else { return };
    let path = rig.path("socket");
    let listener = UnixListener::bind(&path).unwrap();
    assert!(path.symlink_metadata().unwrap().file_type().is_socket());
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"hello").unwrap();
    drop(client);
    let mut text = String::new();
    listener
        .accept()
        .unwrap()
        .0
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "hello");
    crate::fails(UnixListener::bind(&path).map(drop), libc::EADDRINUSE);
    drop(listener);
    crate::fails(UnixStream::connect(&path).map(drop), libc::ECONNREFUSED);
}

#[test]
fn devices_keep_their_numbers() {
    let Some(rig) = Rig::new() else { return };
    let perm = Mode::from_bits_truncate(0o600);
    for (name, kind, number) in [
        ("char", SFlag::S_IFCHR, makedev(1, 3)),
        ("block", SFlag::S_IFBLK, makedev(7, 300)),
        ("large", SFlag::S_IFCHR, makedev(4000, 100_000)),
    ] {
        mknod(&rig.path(name), kind, perm, number).unwrap();
        assert_eq!(
            rig.path(name).symlink_metadata().unwrap().rdev(),
            number,
            "{name}"
        );
    }
    rig.checkpoint();
    assert_eq!(
        rig.path("large").symlink_metadata().unwrap().rdev(),
        makedev(4000, 100_000)
    );
}
