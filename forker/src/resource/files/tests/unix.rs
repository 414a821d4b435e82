//! Unix sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::unistd::{read, write};

use super::super::sys;
use super::{Guest, Here, rebuilt};
use crate::report::Verdict;

fn text(file: &impl AsFd) -> String {
    let mut buffer = [0; 1000];
    let got = read(file.as_fd(), &mut buffer).unwrap();
    String::from_utf8(buffer[..got].to_vec()).unwrap()
}

fn at(path: &Path) -> Vec<u8> {
    let mut address = 1_u16.to_ne_bytes().to_vec();
    address.extend_from_slice(path.as_os_str().as_bytes());
    address.push(0);
    address
}

fn hidden(name: &str) -> Vec<u8> {
    let mut address = 1_u16.to_ne_bytes().to_vec();
    address.push(0);
    address.extend_from_slice(format!("{name}-{}", std::process::id()).as_bytes());
    address
}

fn listener(kind: i32, address: &[u8]) -> OwnedFd {
    let socket = sys::socket(libc::AF_UNIX, kind, 0).unwrap();
    sys::address(&socket, sys::With::Bind, address).unwrap();
    if kind != libc::SOCK_DGRAM {
        sys::listen(&socket, 7).unwrap();
    }
    socket
}

fn connected(kind: i32, address: &[u8]) -> OwnedFd {
    let socket = sys::socket(libc::AF_UNIX, kind, 0).unwrap();
    sys::address(&socket, sys::With::Connect, address).unwrap();
    socket
}

fn names(file: &OwnedFd) -> (Vec<u8>, Option<Vec<u8>>) {
    (
        sys::name(file, sys::Which::Own).unwrap(),
        sys::name(file, sys::Which::Peer).ok(),
    )
}

fn is_empty(file: &OwnedFd) -> bool {
    sys::receive(file, 1, libc::MSG_PEEK).unwrap().is_none()
}

#[test]
fn a_pair_with_both_queues() {
    let _turn = super::turn();
    for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET, libc::SOCK_DGRAM] {
        let [a, b] = sys::socketpair(kind).unwrap();
        for message in ["one", "second"] {
            write(&a, message.as_bytes()).unwrap();
        }
        write(&b, b"back").unwrap();
        let guest = Guest::new(&[(10, &a), (11, &b)]);
        let (captured, report) = guest.capture(&Here::new());
        assert!(report.lines.is_empty(), "{report:?}");
        let check = |a: &OwnedFd, b: &OwnedFd| {
            if kind == libc::SOCK_STREAM {
                assert_eq!(text(b), "onesecond");
            } else {
                assert_eq!((text(b), text(b)), ("one".into(), "second".into()));
            }
            assert_eq!(text(a), "back");
            write(a, b"live").unwrap();
            assert_eq!(text(b), "live");
        };
        for _ in 0..2 {
            let (files, again) = rebuilt(&captured, &Here::new());
            drop(again);
            check(&files[&10], &files[&11]);
        }
        check(&a, &b);
    }
}

#[test]
fn much_data_and_a_closed_peer() {
    let _turn = super::turn();
    let [a, b] = sys::socketpair(libc::SOCK_STREAM).unwrap();
    let data: Vec<u8> = (0..180_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    sys::setsockopt(&a, libc::SOL_SOCKET, libc::SO_SNDBUF, &[400_000_i32]).unwrap();
    write(&a, &data).unwrap();
    drop(a);
    let guest = Guest::new(&[(10, &b)]);
    drop(b);
    let (files, again) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    drop(again);
    let mut all = Vec::new();
    let mut file = std::fs::File::from(files[&10].try_clone().unwrap());
    io::Read::read_to_end(&mut file, &mut all).unwrap();
    assert_eq!(all, data);
}

#[test]
fn half_closed() {
    let _turn = super::turn();
    let [a, b] = sys::socketpair(libc::SOCK_STREAM).unwrap();
    write(&a, b"last").unwrap();
    sys::shutdown(&a, libc::SHUT_WR).unwrap();
    let guest = Guest::new(&[(10, &a), (11, &b)]);
    drop((a, b));
    let (files, again) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    drop(again);
    assert_eq!(
        (text(&files[&11]), text(&files[&11])),
        ("last".into(), String::new())
    );
    write(&files[&11], b"answer").unwrap();
    assert_eq!(text(&files[&10]), "answer");
    assert_eq!(write(&files[&10], b"x"), Err(nix::Error::EPIPE));
}

#[test]
fn passed_descriptors_in_the_queue() {
    let _turn = super::turn();
    let [a, b] = sys::socketpair(libc::SOCK_STREAM).unwrap();
    let (from, to) = nix::unistd::pipe().unwrap();
    write(&to, b"in the pipe").unwrap();
    sys::send(&a, b"with", &[], &[from.as_raw_fd(), a.as_raw_fd()], None).unwrap();
    sys::send(&a, b"plain", &[], &[], None).unwrap();
    let guest = Guest::new(&[(10, &a), (11, &b), (12, &to)]);
    drop((a, b, from, to));
    let captured = guest.taken(&Here::new());
    let (files, again) = rebuilt(&captured, &Here::new());
    drop(again);
    let second = sys::receive(&files[&11], 100, 0).unwrap().unwrap();
    assert_eq!(
        (second.data.as_slice(), second.files.len()),
        (&b"with"[..], 2)
    );
    assert_eq!(text(&files[&11]), "plain");
    assert_eq!(text(&second.files[0]), "in the pipe");
    write(&files[&12], b"more").unwrap();
    assert_eq!(text(&second.files[0]), "more");
    // The other is the sending end itself.
    write(&second.files[1], b"itself").unwrap();
    assert_eq!(text(&files[&11]), "itself");
}

#[test]
fn a_server_with_a_connection_and_one_that_waits() {
    let _turn = super::turn();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    for address in [at(&dir.path().join("socket")), hidden("server")] {
        let server = listener(libc::SOCK_STREAM, &address);
        let client = connected(libc::SOCK_STREAM, &address);
        let accepted = sys::accept(&server).unwrap();
        let waiting = connected(libc::SOCK_STREAM, &address);
        write(&client, b"request").unwrap();
        let before = names(&accepted);
        let guest = Guest::new(&[
            (10, &server),
            (11, &client),
            (12, &accepted),
            (13, &waiting),
        ]);
        drop((server, client, accepted, waiting));
        let captured = guest.taken(&Here::new());
        let (files, again) = rebuilt(&captured, &Here::new());
        drop(again);
        assert_eq!(names(&files[&12]), before);
        assert_eq!(names(&files[&11]).1, Some(address.clone()));
        assert_eq!(text(&files[&12]), "request");
        write(&files[&12], b"answer").unwrap();
        assert_eq!(text(&files[&11]), "answer");
        let accepted = sys::accept(&files[&10]).unwrap();
        write(&files[&13], b"waited").unwrap();
        assert_eq!(text(&accepted), "waited");
        // New ones can come.
        let new = connected(libc::SOCK_STREAM, &address);
        write(&new, b"new").unwrap();
        assert_eq!(text(&sys::accept(&files[&10]).unwrap()), "new");
    }
}

#[test]
fn the_file_of_a_socket_keeps_its_owner_and_mode() {
    let _turn = super::turn();
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("socket");
    let server = listener(libc::SOCK_STREAM, &at(&path));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    chown(&path, Some(1234), Some(4321)).unwrap();
    let removed = listener(libc::SOCK_SEQPACKET, &at(&dir.path().join("removed")));
    std::fs::remove_file(dir.path().join("removed")).unwrap();
    let guest = Guest::new(&[(10, &server), (11, &removed)]);
    drop((server, removed));
    let (files, again) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    drop(again);
    let meta = path.metadata().unwrap();
    assert_eq!(
        (meta.uid(), meta.gid(), meta.mode() & 0o7777),
        (1234, 4321, 0o640)
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(names(&files[&11]).0, at(&dir.path().join("removed")));
    drop(connected(libc::SOCK_STREAM, &at(&path)));
}

#[test]
fn datagrams_with_their_senders() {
    let _turn = super::turn();
    let (here, there) = (hidden("receiver"), hidden("sender"));
    let receiver = listener(libc::SOCK_DGRAM, &here);
    let sender = listener(libc::SOCK_DGRAM, &there);
    let gone = listener(libc::SOCK_DGRAM, &hidden("gone"));
    for (from, message) in [(&sender, "a"), (&gone, "b"), (&sender, "")] {
        sys::send(from, message.as_bytes(), &here, &[], None).unwrap();
    }
    sys::address(&sender, sys::With::Connect, &here).unwrap();
    drop(gone);
    let guest = Guest::new(&[(10, &receiver), (11, &sender)]);
    drop((receiver, sender));
    let (files, again) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    drop(again);
    for (from, message) in [(&there, "a"), (&hidden("gone"), "b"), (&there, "")] {
        let got = sys::receive(&files[&10], 100, 0).unwrap().unwrap();
        assert_eq!((got.data.as_slice(), &got.from), (message.as_bytes(), from));
    }
    write(&files[&11], b"connected").unwrap();
    assert_eq!(text(&files[&10]), "connected");
}

#[test]
fn senders_identities_and_options() {
    let _turn = super::turn();
    let [a, b] = sys::socketpair(libc::SOCK_DGRAM).unwrap();
    let any = libc::SOL_SOCKET;
    sys::setsockopt(&b, any, libc::SO_PASSCRED, &[1_i32]).unwrap();
    sys::setsockopt(&b, any, libc::SO_RCVTIMEO, &[3_i64, 500_000]).unwrap();
    sys::setsockopt(&a, any, libc::SO_SNDBUF, &[50_000_i32]).unwrap();
    sys::setsockopt(&a, any, libc::SO_PRIORITY, &[3_i32]).unwrap();
    let me = i32::try_from(std::process::id()).unwrap();
    sys::send(&a, b"x", &[], &[], Some((me, 77, 88))).unwrap();
    let guest = Guest::new(&[(10, &a), (11, &b)]);
    let captured = guest.taken(&Here::new());
    let (files, again) = rebuilt(&captured, &Here::new());
    drop(again);
    let got = sys::receive(&files[&11], 10, 0).unwrap().unwrap();
    assert_eq!(
        got.sender.map(|sender| (sender.1, sender.2)),
        Some((77, 88))
    );
    for (fd, name) in [
        (11, libc::SO_PASSCRED),
        (10, libc::SO_SNDBUF),
        (10, libc::SO_PRIORITY),
    ] {
        let old = if fd == 10 { &a } else { &b };
        let (old, new): (i32, i32) = (
            sys::getsockopt(old, any, name).unwrap(),
            sys::getsockopt(&files[&fd], any, name).unwrap(),
        );
        assert_eq!(old, new, "option {name}");
    }
    let timeout: [i64; 2] = sys::getsockopt(&files[&11], any, libc::SO_RCVTIMEO).unwrap();
    assert_eq!(timeout, [3, 500_000]);
    assert!(is_empty(&files[&11]));
}

#[test]
fn a_peer_outside_is_reported() {
    let _turn = super::turn();
    let [a, b] = sys::socketpair(libc::SOCK_STREAM).unwrap();
    write(&b, b"from outside").unwrap();
    let guest = Guest::new(&[(10, &a)]);
    let (captured, report) = guest.capture(&Here::new());
    assert_eq!(report.lines[0].verdict, Verdict::Degraded, "{report:?}");
    let (files, again) = rebuilt(&captured, &Here::new());
    drop(again);
    assert_eq!(
        (text(&files[&10]), text(&files[&10])),
        ("from outside".into(), String::new())
    );
}
