//! Files, directories, devices, locks, and what is refused.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::super::{Argument, sys};
use super::{Guest, Here, description, rebuilt};
use crate::report::Verdict;

fn flags(file: &impl AsFd) -> OFlag {
    OFlag::from_bits_retain(fcntl(file.as_fd(), FcntlArg::F_GETFL).unwrap())
}

#[test]
fn position_and_flags() {
    let _turn = super::turn();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("odd\nname (deleted)");
    std::fs::write(&path, b"0123456789").unwrap();
    let mut plain = File::open(&path).unwrap();
    plain.seek(SeekFrom::Start(4)).unwrap();
    let append = OpenOptions::new()
        .append(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_SYNC)
        .open(&path)
        .unwrap();
    let handle = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(&path)
        .unwrap();
    let guest = Guest::new(&[(10, &plain), (11, &append), (12, &handle)]);
    let (files, _) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    let mut text = String::new();
    let mut again = File::from(files[&10].try_clone().unwrap());
    again.read_to_string(&mut text).unwrap();
    assert_eq!(text, "456789");
    let mut again = File::from(files[&11].try_clone().unwrap());
    again.write_all(b"x").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"0123456789x");
    assert_eq!(flags(&files[&11]), flags(&append));
    assert!(flags(&files[&12]).contains(OFlag::O_PATH));
}

#[test]
fn one_description_under_two_numbers() {
    let _turn = super::turn();
    let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
    file.write_all(b"abcdef").unwrap();
    let mut here = Here::new();
    here.hide(&file);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let other = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    (&other).seek(SeekFrom::Start(6)).unwrap();
    let guest = Guest::new(&[(10, &file), (20, &other), (30, &file)]);
    let captured = guest.taken(&here);
    let slots = &captured.tables[0].slots;
    let of = |fd| slots.iter().find(|slot| slot.fd == fd).unwrap().description;
    assert_eq!(of(10), of(30));
    assert_ne!(of(10), of(20));
    let (files, _) = rebuilt(&captured, &here);
    let mut first = File::from(files[&10].try_clone().unwrap());
    first.seek(SeekFrom::Start(2)).unwrap();
    let mut byte = [0];
    File::from(files[&30].try_clone().unwrap())
        .read_exact(&mut byte)
        .unwrap();
    assert_eq!(&byte, b"c");
    assert_eq!(first.stream_position().unwrap(), 3);
}

#[test]
fn an_unlinked_file_and_one_that_was_replaced() {
    let _turn = super::turn();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (gone, replaced) = (dir.path().join("gone"), dir.path().join("replaced"));
    std::fs::write(&gone, b"gone").unwrap();
    std::fs::write(&replaced, b"old").unwrap();
    let (a, b) = (File::open(&gone).unwrap(), File::open(&replaced).unwrap());
    std::fs::remove_file(&gone).unwrap();
    std::fs::rename(&replaced, dir.path().join("moved")).unwrap();
    std::fs::write(&replaced, b"new").unwrap();
    let mut here = Here::new();
    here.hide(&a);
    let guest = Guest::new(&[(10, &a), (11, &b)]);
    let (files, _) = rebuilt(&guest.taken(&here), &here);
    for (fd, wanted) in [(10, "gone"), (11, "old")] {
        let mut text = String::new();
        let mut file = File::from(files[&fd].try_clone().unwrap());
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, wanted);
    }
}

#[test]
fn directories() {
    let _turn = super::turn();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    for name in 0..50 {
        File::create(dir.path().join(format!("{name}"))).unwrap();
    }
    let open = File::open(dir.path()).unwrap();
    let entries = nix::dir::Dir::from_fd(open.try_clone().unwrap().into()).unwrap();
    let all: Vec<_> = entries
        .into_iter()
        .map(|entry| entry.unwrap().ino())
        .collect();
    let removed = dir.path().join("removed");
    std::fs::create_dir(&removed).unwrap();
    let lost = File::open(&removed).unwrap();
    std::fs::remove_dir(&removed).unwrap();
    let file = File::open(dir.path()).unwrap();
    let guest = Guest::new(&[(10, &file), (11, &lost), (12, &open)]);
    let (files, _) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    let meta = |fd: i32| {
        File::from(files[&fd].try_clone().unwrap())
            .metadata()
            .unwrap()
    };
    assert_eq!(meta(10).ino(), dir.path().metadata().unwrap().ino());
    assert!(meta(11).is_dir());
    assert_eq!(meta(11).nlink(), 0);
    let mut rest = nix::dir::Dir::from_fd(files[&12].try_clone().unwrap()).unwrap();
    let left: Vec<_> = rest.iter().map(|entry| entry.unwrap().ino()).collect();
    assert!(left.len() < all.len(), "the position was lost");
}

#[test]
fn devices_without_state() {
    let _turn = super::turn();
    let names = ["null", "zero", "full", "random", "urandom"];
    let open: Vec<File> = names
        .iter()
        .map(|name| {
            let mut options = OpenOptions::new();
            options.read(true).write(*name == "null" || *name == "full");
            options.open(format!("/dev/{name}")).unwrap()
        })
        .collect();
    let slots: Vec<(i32, &dyn AsFd)> = (10..).zip(open.iter().map(|f| f as &dyn AsFd)).collect();
    let (files, _) = rebuilt(&Guest::new(&slots).taken(&Here::new()), &Here::new());
    for (fd, before) in (10..).zip(&open) {
        let after = File::from(files[&fd].try_clone().unwrap());
        assert_eq!(
            after.metadata().unwrap().rdev(),
            before.metadata().unwrap().rdev()
        );
        assert_eq!(flags(&after), flags(before));
    }
}

#[test]
fn files_of_proc() {
    let _turn = super::turn();
    let mut file = File::open("/proc/self/status").unwrap();
    let mut first = [0; 10];
    file.read_exact(&mut first).unwrap();
    let guest = Guest::new(&[(10, &file)]);
    let (files, _) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    let mut rest = String::new();
    let mut again = File::from(files[&10].try_clone().unwrap());
    again.read_to_string(&mut rest).unwrap();
    assert!(
        rest.contains(&format!("Pid:\t{}\n", std::process::id())),
        "{rest}"
    );
    assert!(!rest.starts_with("Name:"), "the position was lost");
}

#[test]
fn locks_of_descriptions_and_processes() {
    let _turn = super::turn();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path().join("locked");
    std::fs::write(&path, b"").unwrap();
    let open = || {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap()
    };
    let (whole, part) = (open(), open());
    sys::flock(&whole, libc::LOCK_EX).unwrap();
    let mut range = libc::flock {
        l_type: 1,
        l_whence: 0,
        l_start: 100,
        l_len: 50,
        l_pid: 0,
    };
    sys::fcntl_with(&part, libc::F_OFD_SETLK, &mut range).unwrap();
    let guest = Guest::new(&[(10, &whole), (11, &part)]);
    drop((whole, part));
    let captured = guest.taken(&Here::new());
    assert_eq!(description(&captured, 10).locks.len(), 1);
    let (files, again) = rebuilt(&captured, &Here::new());
    let other = open();
    assert!(sys::flock(&other, libc::LOCK_EX | libc::LOCK_NB).is_err());
    range.l_type = 1;
    assert!(sys::fcntl_with(&other, libc::F_OFD_SETLK, &mut range).is_err());
    drop((files, again));
    sys::flock(&other, libc::LOCK_EX | libc::LOCK_NB).unwrap();
    sys::fcntl_with(&other, libc::F_OFD_SETLK, &mut range).unwrap();
}

#[test]
fn who_is_signalled() {
    let _turn = super::turn();
    let (read, write) = nix::unistd::pipe().unwrap();
    let first = Guest::new(&[]);
    let mut who = [1, first.pid()];
    sys::fcntl_with(&read, 15, &mut who).unwrap();
    sys::fcntl(&read, 10, libc::SIGUSR1).unwrap();
    let guest = Guest::new(&[(10, &read), (11, &write)]);
    let frozen = [&first, &guest].map(|guest| super::FrozenProcess {
        pid: guest.pid(),
        inside: guest.pid() + 1000,
        pidfd: sys::pidfd_open(guest.pid(), 0).unwrap(),
    });
    let (captured, report) = super::capture(&frozen, &Here::new()).unwrap();
    assert!(report.lines.is_empty(), "{report:?}");
    let owner = captured
        .descriptions
        .iter()
        .find_map(|one| one.owner)
        .unwrap();
    assert_eq!(
        (owner.pid, owner.signal),
        (first.pid() + 1000, libc::SIGUSR1)
    );
    let again = super::rebuild(&captured, &Here::new()).unwrap();
    assert_eq!(again.inside.len(), 2);
    assert_eq!(again.inside[0].arguments[0], Argument::File);
}

#[test]
fn what_cannot_be_kept_is_refused_with_a_way_out() {
    let _turn = super::turn();
    let fanotify = super::sys::fanotify();
    let event = sys::eventfd(0).unwrap();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let leased = File::create(dir.path().join("leased")).unwrap();
    sys::fcntl(&leased, libc::F_SETLEASE, libc::F_WRLCK).unwrap();
    let guest = Guest::new(&[(10, &event), (11, &leased), (12, &fanotify)]);
    let (_, report) = guest.capture(&Here::new());
    let refused: Vec<_> = report
        .lines
        .iter()
        .filter(|line| line.verdict == Verdict::Refused)
        .collect();
    assert_eq!(refused.len(), 2, "{report:?}");
    for (line, fd) in refused.iter().zip(["12", "11"]) {
        assert!(line.what.contains(fd), "{line:?}");
        assert!(line.way_out.is_some() && line.pid == guest.pid());
    }
}
