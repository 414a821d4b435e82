//! Pseudo-terminals.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{read, write};

use super::super::{Argument, LineEnd, Outside, open_master, sys};
use super::{Guest, Here, rebuilt, until};
use crate::report::Verdict;

/// A devpts of the test's own: in the machine's, anybody could take a number meanwhile. The second
/// result keeps the mounts alive.
fn devpts() -> (Here, OwnedFd) {
    let made = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).unwrap();
        let options = Some("newinstance,ptmxmode=0666,mode=0620");
        let kind = Some("devpts");
        mount(kind, "/dev/pts", kind, MsFlags::empty(), options).unwrap();
        let open = |path| OwnedFd::from(std::fs::File::open(path).unwrap());
        (open("/"), open("/proc/thread-self/ns/mnt"))
    });
    let (root, namespace) = made.join().unwrap();
    let here = Here {
        root,
        ..Here::new()
    };
    (here, namespace)
}

fn pair(here: &Here) -> (OwnedFd, OwnedFd, u32) {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    let master = sys::open_beneath(here.root.as_fd(), b"/dev/ptmx", flags, 0).unwrap();
    sys::ioctl_set(&master, libc::TIOCSPTLCK, &0_i32).unwrap();
    let index = sys::ioctl_get(&master, libc::TIOCGPTN).unwrap();
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let slave = sys::ioctl_file(&master, libc::TIOCGPTPEER, flags).unwrap();
    (master, slave, index)
}

fn waiting(file: &OwnedFd) -> i32 {
    sys::ioctl_get(file, libc::FIONREAD).unwrap()
}

fn text(file: &impl AsFd) -> Vec<u8> {
    let mut buffer = [0; 1000];
    let got = read(file.as_fd(), &mut buffer).unwrap();
    buffer[..got].to_vec()
}

#[test]
fn settings_and_both_queues() {
    let _turn = super::turn();
    let (here, _mounts) = devpts();
    let (_first, (master, slave, index)) = (pair(&here), pair(&here));
    let mut raw: libc::termios2 = sys::ioctl_get(&slave, libc::TCGETS2).unwrap();
    raw.c_lflag &= !libc::ECHO;
    raw.c_cc[libc::VINTR] = 7;
    sys::ioctl_set(&slave, libc::TCSETS2, &raw).unwrap();
    let size = libc::winsize {
        ws_row: 33,
        ws_col: 101,
        ws_xpixel: 1,
        ws_ypixel: 2,
    };
    sys::ioctl_set(&slave, libc::TIOCSWINSZ, &size).unwrap();
    // Two lines, one of them ended by ^D, and a third that is still being typed.
    write(&master, b"first line\nhalf\x04still typ").unwrap();
    write(&slave, b"out\nput").unwrap();
    until("the output arrives", || waiting(&master) == 8);
    until("the input arrives", || waiting(&slave) >= 11);
    let guest = Guest::new(&[(10, &master), (11, &slave)]);
    let captured = guest.capture(&here).0;
    let state = &captured.terminals[0];
    assert_eq!((state.index, state.size), (index, [33, 101, 1, 2]));
    assert_eq!(state.output, b"out\r\nput");
    let ends: Vec<LineEnd> = state.input.iter().map(|piece| piece.end).collect();
    assert_eq!(ends, [LineEnd::Line, LineEnd::EndOfFile, LineEnd::Open]);
    let check = |master: &OwnedFd, slave: &OwnedFd| {
        assert_eq!(text(master), b"out\r\nput");
        assert_eq!(text(slave), b"first line\n");
        assert_eq!(text(slave), b"half");
        write(master, b"ed\n").unwrap();
        until("the line arrives", || waiting(slave) == 12);
        assert_eq!(text(slave), b"still typed\n");
    };
    // The original is as it was, and so is what is made from the image.
    let after: libc::termios2 = sys::ioctl_get(&slave, libc::TCGETS2).unwrap();
    assert_eq!((after.c_lflag, after.c_cc), (raw.c_lflag, raw.c_cc));
    check(&master, &slave);
    drop((master, slave, guest));
    let (files, again) = rebuilt(&captured, &here);
    drop(again);
    let number: u32 = sys::ioctl_get(&files[&10], libc::TIOCGPTN).unwrap();
    assert_eq!(number, index);
    let after: libc::termios2 = sys::ioctl_get(&files[&11], libc::TCGETS2).unwrap();
    assert_eq!((after.c_lflag, after.c_cc), (raw.c_lflag, raw.c_cc));
    let after: libc::winsize = sys::ioctl_get(&files[&11], libc::TIOCGWINSZ).unwrap();
    assert_eq!((after.ws_row, after.ws_col), (33, 101));
    let link = format!("/proc/self/fd/{}", files[&11].as_raw_fd());
    let link = std::fs::read_link(link).unwrap();
    assert_eq!(link.to_str().unwrap(), format!("/dev/pts/{index}"));
    check(&files[&10], &files[&11]);
}

#[test]
fn a_session_whose_master_is_outside() {
    let _turn = super::turn();
    let (here, _mounts) = devpts();
    let (master, slave, index) = pair(&here);
    let guest = Guest::start(&[(10, &slave)], Some(10));
    let (_, report) = guest.capture(&here);
    assert_eq!(report.lines[0].verdict, Verdict::Refused, "{report:?}");
    // Typed ahead; the caller's master lets it be read.
    write(&master, b"typed ahead\n").unwrap();
    until("the input arrives", || waiting(&slave) == 12);
    here.name(Outside::Terminal(index), master);
    let pid = guest.pid();
    let captured = guest.taken(&here);
    assert_eq!(captured.sessions[0].leader, pid);
    assert_eq!(captured.sessions[0].foreground, pid);
    drop(slave);
    // The old master, whose number a new terminal cannot have while it is open.
    here.outside.lock().unwrap().clear();
    let mut new = None;
    until("the number is free", || {
        new = open_master(here.root.as_fd(), index).ok();
        new.is_some()
    });
    let new = new.unwrap();
    here.name(Outside::Terminal(index), new.try_clone().unwrap());
    let (files, again) = rebuilt(&captured, &here);
    assert_eq!(text(&files[&10]), b"typed ahead\n");
    let calls: Vec<_> = again.inside.iter().map(|call| call.number).collect();
    assert_eq!(calls, [libc::SYS_ioctl, libc::SYS_ioctl]);
    assert_eq!(
        again.inside[0].arguments[1],
        Argument::Number(libc::TIOCSCTTY)
    );
}

#[test]
fn a_terminal_that_hung_up_stays_so() {
    let _turn = super::turn();
    let (here, _mounts) = devpts();
    let (master, slave, _) = pair(&here);
    let guest = Guest::new(&[(10, &slave)]);
    drop((master, slave));
    let captured = guest.taken(&here);
    assert!(captured.terminals[0].hung_up);
    let (files, again) = rebuilt(&captured, &here);
    drop(again);
    assert_eq!(read(&files[&10], &mut [0; 10]), Ok(0));
}
