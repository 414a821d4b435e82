//! Starts a guest with exactly the descriptors that a test wants.
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A process that sleeps and holds `files` (number wanted, descriptor here) and nothing else;
/// `terminal` is the number of a slave to take as controlling terminal.
pub(super) fn spawn(files: Vec<(RawFd, RawFd)>, terminal: Option<RawFd>) -> Child {
    let mut command = Command::new("sleep");
    command.arg("1000");
    for stdio in [Command::stdin, Command::stdout, Command::stderr] {
        stdio(&mut command, Stdio::null());
    }
    let place = move || {
        // Above all wanted numbers first, so that none is overwritten before it is copied.
        let mut high = Vec::new();
        // What this process itself has inherited stays behind.
        // SAFETY: plain numbers, in a child that is about to exec.
        unsafe { libc::close_range(3, u32::MAX, 4) };
        for &(number, raw) in &files {
            // SAFETY: plain numbers, in a child that is about to exec.
            let copy = unsafe { libc::fcntl(raw, libc::F_DUPFD_CLOEXEC, 900) };
            high.push((number, copy));
        }
        for (number, copy) in high {
            // SAFETY: as above.
            if unsafe { libc::dup2(copy, number) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        if let Some(slave) = terminal {
            // SAFETY: as above.
            unsafe { libc::setsid() };
            // SAFETY: as above.
            if unsafe { libc::ioctl(slave, libc::TIOCSCTTY, 0) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls (and grows one small vector, in a child of a
    // process whose allocator is not locked across fork by glibc's own rule).
    unsafe { command.pre_exec(place) };
    command.spawn().expect("sleep can be run")
}

/// Something that cannot be kept.
pub(super) fn fanotify() -> std::os::fd::OwnedFd {
    // SAFETY: plain numbers.
    let raw = unsafe { libc::fanotify_init(libc::FAN_CLOEXEC, 0) };
    assert!(raw >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call succeeded, so it is new and nobody else's.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(raw) }
}

/// Brings the loopback interface of the calling thread's network namespace up.
pub(super) fn loopback_up() {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // struct ifreq: the name in 16 bytes, then the flags.
    let mut request = [0_u8; 40];
    request[..2].copy_from_slice(b"lo");
    request[16..18].copy_from_slice(&i16::try_from(libc::IFF_UP).unwrap().to_ne_bytes());
    let raw = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: `request` has the size and layout of `struct ifreq`.
    let done = unsafe { libc::ioctl(raw, libc::SIOCSIFFLAGS, request.as_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
