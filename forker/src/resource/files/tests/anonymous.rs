//! eventfd, timerfd, signalfd, epoll, inotify, pidfd.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use nix::unistd::{pipe, read, write};

use super::super::{Kind, Member, sys};
use super::{Guest, Here, description, rebuilt, until};

fn number(file: &impl AsFd) -> u64 {
    let mut bytes = [0; 8];
    assert_eq!(read(file.as_fd(), &mut bytes).unwrap(), 8);
    u64::from_ne_bytes(bytes)
}

#[test]
fn counters() {
    let _turn = super::turn();
    let plain = sys::eventfd(libc::EFD_CLOEXEC).unwrap();
    let semaphore = sys::eventfd(libc::EFD_SEMAPHORE | libc::EFD_NONBLOCK).unwrap();
    write(&plain, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    write(&semaphore, &2_u64.to_ne_bytes()).unwrap();
    let guest = Guest::new(&[(10, &plain), (11, &semaphore)]);
    let (files, _) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    assert_eq!(number(&files[&10]), u64::MAX - 1);
    assert_eq!((number(&files[&11]), number(&files[&11])), (1, 1));
    assert_eq!(read(&files[&11], &mut [0; 8]), Err(nix::Error::EAGAIN));
}

fn spec(value: i64, interval: i64) -> libc::itimerspec {
    let time = |seconds| libc::timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    libc::itimerspec {
        it_value: time(value),
        it_interval: time(interval),
    }
}

#[test]
fn timers_keep_what_remains_and_wait_for_the_wake_up() {
    let _turn = super::turn();
    let timer = |clock| sys::timerfd(clock, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK).unwrap();
    let (relative, idle) = (timer(libc::CLOCK_MONOTONIC), timer(libc::CLOCK_BOOTTIME));
    let (wall, fired) = (timer(libc::CLOCK_REALTIME), timer(libc::CLOCK_MONOTONIC));
    sys::arm(&relative, 0, &spec(1000, 7)).unwrap();
    let moment = sys::clock(libc::CLOCK_REALTIME).unwrap().tv_sec + 5000;
    sys::arm(&wall, libc::TFD_TIMER_ABSTIME, &spec(moment, 0)).unwrap();
    let soon = libc::itimerspec {
        it_value: libc::timespec {
            tv_sec: 0,
            tv_nsec: 1,
        },
        ..spec(0, 0)
    };
    sys::arm(&fired, 0, &soon).unwrap();
    let ticks = |file: &std::os::fd::OwnedFd| {
        let path = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
        let info = crate::proc::fdinfo::parse(&std::fs::read(path).unwrap()).unwrap();
        match info.detail {
            crate::proc::fdinfo::Detail::Timer(timer) => timer,
            other => panic!("{other:?}"),
        }
    };
    until("the timer expires", || ticks(&fired).ticks == 1);
    let guest = Guest::new(&[(10, &relative), (11, &idle), (12, &wall), (13, &fired)]);
    let (files, mut again) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    assert_eq!(ticks(&files[&10]).value, (0, 0));
    again.take_timers().arm().unwrap();
    let relative = ticks(&files[&10]);
    assert_eq!(relative.interval, (7, 0));
    assert!((800..=1000).contains(&relative.value.0), "{relative:?}");
    let wall = ticks(&files[&12]);
    assert_eq!((wall.clock, wall.set_flags), (libc::CLOCK_REALTIME, 1));
    assert!((4800..=5000).contains(&wall.value.0), "{wall:?}");
    assert_eq!(ticks(&files[&11]).value, (0, 0));
    assert_eq!(number(&files[&13]), 1);
}

#[test]
fn signal_masks() {
    let _turn = super::turn();
    let mask = 1 << (libc::SIGUSR2 - 1) | 1 << (libc::SIGCHLD - 1);
    let signal = sys::signalfd(mask, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC).unwrap();
    let guest = Guest::new(&[(10, &signal)]);
    let captured = guest.taken(&Here::new());
    let (files, _) = rebuilt(&captured, &Here::new());
    let path = format!("/proc/self/fdinfo/{}", files[&10].as_raw_fd());
    let info = crate::proc::fdinfo::parse(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(info.detail, crate::proc::fdinfo::Detail::Signal(mask));
    assert_eq!(read(&files[&10], &mut [0; 128]), Err(nix::Error::EAGAIN));
}

#[test]
fn epoll_with_targets_under_other_numbers() {
    let _turn = super::turn();
    let ready = sys::eventfd(libc::EFD_CLOEXEC).unwrap();
    write(&ready, &1_u64.to_ne_bytes()).unwrap();
    let quiet = sys::eventfd(libc::EFD_CLOEXEC).unwrap();
    let (set, outer) = (sys::epoll().unwrap(), sys::epoll().unwrap());
    // Added under this process's numbers, which in the guest mean something else or nothing.
    let input = u32::try_from(libc::EPOLLIN).unwrap();
    for (file, data) in [(&ready, 0xfeed_0000_0001), (&quiet, 2)] {
        sys::epoll_add(set.as_raw_fd(), file.as_raw_fd(), input, data).unwrap();
    }
    sys::epoll_add(outer.as_raw_fd(), set.as_raw_fd(), input, 3).unwrap();
    let guest = Guest::new(&[
        (10, &set),
        (11, &outer),
        (12, &ready),
        (13, &quiet),
        (14, &quiet),
    ]);
    let captured = guest.taken(&Here::new());
    let Kind::Epoll(state) = &description(&captured, 10).kind else {
        panic!("{captured:?}");
    };
    assert_eq!(state.members.len(), 2);
    let member = |data| *state.members.iter().find(|one| one.data == data).unwrap();
    let Member { fd, .. } = member(2);
    assert_eq!(fd, quiet.as_raw_fd());
    let (files, again) = rebuilt(&captured, &Here::new());
    drop(again);
    let ready_in = |fd: i32| sys::epoll_ready(files[&fd].as_raw_fd()).unwrap();
    assert_eq!(ready_in(11), [3]);
    assert_eq!(ready_in(10), [0xfeed_0000_0001]);
    write(&files[&14], &1_u64.to_ne_bytes()).unwrap();
    assert_eq!(ready_in(10).len(), 2);
}

#[test]
fn a_fired_one_shot_stays_quiet() {
    let _turn = super::turn();
    let (from, to) = pipe().unwrap();
    let set = sys::epoll().unwrap();
    let events = u32::try_from(libc::EPOLLIN | libc::EPOLLONESHOT).unwrap();
    sys::epoll_add(set.as_raw_fd(), from.as_raw_fd(), events, 5).unwrap();
    write(&to, b"x").unwrap();
    assert_eq!(sys::epoll_ready(set.as_raw_fd()).unwrap(), [5]);
    assert!(sys::epoll_ready(set.as_raw_fd()).unwrap().is_empty());
    let guest = Guest::new(&[(10, &set), (11, &from), (12, &to)]);
    drop((from, to));
    let (files, again) = rebuilt(&guest.taken(&Here::new()), &Here::new());
    drop(again);
    assert!(sys::epoll_ready(files[&10].as_raw_fd()).unwrap().is_empty());
    let mut left = [0; 4];
    assert_eq!(read(&files[&11], &mut left).unwrap(), 1);
}

#[test]
fn watches_under_their_numbers() {
    let _turn = super::turn();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let watched = dir.path().join("watched");
    File::create(&watched).unwrap();
    let inotify = sys::inotify(libc::IN_NONBLOCK | libc::IN_CLOEXEC).unwrap();
    let add = |path: &std::path::Path, mask| {
        sys::inotify_add(&inotify, path.to_str().unwrap(), mask).unwrap()
    };
    let first = add(&watched, libc::IN_MODIFY);
    let second = add(dir.path(), libc::IN_CREATE | libc::IN_DELETE);
    assert_eq!((first, second), (1, 2));
    // Number 1 is given up, so that the numbers have a gap.
    drop(watched);
    let guest = Guest::new(&[(10, &inotify)]);
    let captured = guest.taken(&Here::new());
    let Kind::Inotify(state) = &description(&captured, 10).kind else {
        panic!("{captured:?}");
    };
    assert_eq!(state.watches.len(), 2);
    let (files, again) = rebuilt(&captured, &Here::new());
    drop(again);
    assert_eq!(read(&files[&10], &mut [0; 512]), Err(nix::Error::EAGAIN));
    File::create(dir.path().join("new")).unwrap();
    let mut buffer = [0; 512];
    assert!(read(&files[&10], &mut buffer).unwrap() > 0);
    assert_eq!(buffer[..4], 2_i32.to_ne_bytes());
}

#[test]
fn unread_events_are_reported() {
    let _turn = super::turn();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let inotify = sys::inotify(libc::IN_CLOEXEC).unwrap();
    sys::inotify_add(&inotify, dir.path().to_str().unwrap(), libc::IN_CREATE).unwrap();
    File::create(dir.path().join("new")).unwrap();
    let guest = Guest::new(&[(10, &inotify)]);
    let (_, report) = guest.capture(&Here::new());
    assert_eq!(report.lines.len(), 1, "{report:?}");
    assert!(report.lines[0].reason.contains("events"));
}

#[test]
fn processes_by_descriptor() {
    let _turn = super::turn();
    let other = Guest::new(&[]);
    let (alive, dead) = (
        sys::pidfd_open(other.pid(), 0).unwrap(),
        sys::dead_process().unwrap(),
    );
    let guest = Guest::new(&[(10, &alive), (11, &dead)]);
    let frozen = [&other, &guest].map(|guest| super::FrozenProcess {
        pid: guest.pid(),
        inside: guest.pid(),
        pidfd: sys::pidfd_open(guest.pid(), 0).unwrap(),
    });
    let (captured, report) = super::capture(&frozen, &Here::new()).unwrap();
    assert!(report.lines.is_empty(), "{report:?}");
    let of: Vec<Option<i32>> = captured
        .descriptions
        .iter()
        .filter_map(|one| match &one.kind {
            Kind::Process(process) => Some(process.pid),
            _ => None,
        })
        .collect();
    assert_eq!(of, [Some(other.pid()), None]);
    let again = super::rebuild(&captured, &Here::new()).unwrap();
    assert_eq!(again.files.len(), captured.descriptions.len());
}
