//! Pipes and FIFOs.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{pipe, pipe2, read, write};

use super::super::{Outside, sys};
use super::{Guest, Here, rebuilt};
use crate::report::Verdict;

fn is_nonblocking(file: &OwnedFd) -> bool {
    sys::fcntl(file, libc::F_GETFL, 0).unwrap() & libc::O_NONBLOCK != 0
}

#[test]
fn content_capacity_and_both_ends() {
    let _turn = super::turn();
    let (from, to) = pipe().unwrap();
    sys::fcntl(&to, libc::F_SETPIPE_SZ, 1 << 18).unwrap();
    let content: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    write(&to, &content).unwrap();
    // A second reader with a flag of its own.
    let path = format!("/proc/self/fd/{}", from.as_raw_fd());
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let second = open(path.as_str(), flags, Mode::empty()).unwrap();
    let guest = Guest::new(&[(10, &from), (11, &to), (12, &second)]);
    let captured = guest.capture(&Here::new()).0;
    // Nothing was taken out of the original.
    let left: i32 = sys::ioctl_get(&from, libc::FIONREAD).unwrap();
    assert_eq!(left, 200_000);
    drop(guest);
    for _ in 0..2 {
        let (mut files, again) = rebuilt(&captured, &Here::new());
        drop(again);
        assert_eq!(
            sys::fcntl(&files[&11], libc::F_GETPIPE_SZ, 0).unwrap(),
            1 << 18
        );
        assert!(!is_nonblocking(&files[&10]) && is_nonblocking(&files[&12]));
        write(&files[&11], b"more").unwrap();
        drop(files.remove(&11));
        let mut all = Vec::new();
        File::from(files[&10].try_clone().unwrap())
            .read_to_end(&mut all)
            .unwrap();
        assert_eq!(&all[..200_000], content.as_slice());
        assert_eq!(&all[200_000..], b"more");
    }
}

#[test]
fn packets_stay_packets() {
    let _turn = super::turn();
    let (from, to) = pipe2(OFlag::O_DIRECT | OFlag::O_CLOEXEC).unwrap();
    for packet in ["one", "second", "3"] {
        write(&to, packet.as_bytes()).unwrap();
    }
    let guest = Guest::new(&[(10, &from), (11, &to)]);
    drop((from, to));
    let (files, again) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    drop(again);
    write(&files[&11], b"fourth").unwrap();
    let mut buffer = [0; 100];
    for packet in ["one", "second", "3", "fourth"] {
        let got = read(&files[&10], &mut buffer).unwrap();
        assert_eq!(&buffer[..got], packet.as_bytes());
    }
}

#[test]
fn a_closed_writer_means_an_end_after_the_content() {
    let _turn = super::turn();
    let (from, to) = pipe2(OFlag::O_CLOEXEC).unwrap();
    write(&to, b"last words").unwrap();
    drop(to);
    let guest = Guest::new(&[(10, &from)]);
    let (files, again) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    drop(again);
    let mut all = String::new();
    File::from(files[&10].try_clone().unwrap())
        .read_to_string(&mut all)
        .unwrap();
    assert_eq!(all, "last words");
}

#[test]
fn the_other_end_outside() {
    let _turn = super::turn();
    let (from, to) = pipe2(OFlag::O_CLOEXEC).unwrap();
    let guest = Guest::new(&[(10, &to)]);
    let here = Here::new();
    let (_, report) = guest.capture(&here);
    assert_eq!(report.lines[0].verdict, Verdict::Refused, "{report:?}");
    // Known to the caller, it is replaced by the caller's new one.
    let ino = nix::sys::stat::fstat(from.as_fd()).unwrap().st_ino;
    let (new_from, new_to) = pipe2(OFlag::O_CLOEXEC).unwrap();
    here.name(Outside::Pipe(ino), new_to);
    let (files, again) = rebuilt(&guest.taken(&here), &here);
    drop(again);
    write(&files[&10], b"hello").unwrap();
    let mut buffer = [0; 10];
    assert_eq!(read(&new_from, &mut buffer).unwrap(), 5);
}

#[test]
fn a_fifo_with_content() {
    let _turn = super::turn();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("fifo");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    let open = |flags| open(&path, flags | OFlag::O_CLOEXEC, Mode::empty()).unwrap();
    let from = open(OFlag::O_RDONLY | OFlag::O_NONBLOCK);
    let to = open(OFlag::O_WRONLY);
    write(&to, b"through a name").unwrap();
    let guest = Guest::new(&[(10, &from), (11, &to)]);
    drop((from, to));
    let captured = guest.taken(&Here::new());
    let (files, again) = rebuilt(&captured, &Here::new());
    drop(again);
    assert!(is_nonblocking(&files[&10]) && !is_nonblocking(&files[&11]));
    let mut buffer = [0; 100];
    let got = read(&files[&10], &mut buffer).unwrap();
    assert_eq!(&buffer[..got], b"through a name");
    assert_eq!(read(&files[&10], &mut buffer), Err(nix::Error::EAGAIN));
    let link = format!("/proc/self/fd/{}", files[&11].as_raw_fd());
    assert_eq!(std::fs::read_link(link).unwrap(), path);
}
