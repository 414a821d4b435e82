//! The device's own calls.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

/// What the kernel wants to know of a backing file.
#[repr(C)]
#[derive(Debug)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// Opens a descriptor of the device with a queue of its own for the session of `device`.
pub(super) fn clone_device(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // _IOR(229, 0, uint32_t)
    const CLONE: libc::Ioctl = nix::request_code_read!(229, 0, size_of::<u32>());
    let clone: File = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")?;
    let source: u32 = device.as_raw_fd().cast_unsigned();
    // SAFETY: the call reads a number from the pointer and keeps nothing.
    let done = unsafe { libc::ioctl(clone.as_raw_fd(), CLONE, &raw const source) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(clone.into())
}

/// Makes `file` known to the session as a backing file; returns its number.
pub(super) fn open_backing(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<u32> {
    // _IOW(229, 1, struct fuse_backing_map)
    const OPEN: libc::Ioctl = nix::request_code_write!(229, 1, size_of::<BackingMap>());
    let map = BackingMap {
        fd: file.as_raw_fd(),
        flags: 0,
        padding: 0,
    };
    // SAFETY: the call reads the structure from the pointer and keeps nothing.
    let id = unsafe { libc::ioctl(device.as_raw_fd(), OPEN, &raw const map) };
    u32::try_from(id).map_err(|_| io::Error::last_os_error())
}

/// Ends what [`open_backing`] began.
pub(super) fn close_backing(device: BorrowedFd<'_>, id: u32) -> io::Result<()> {
    // _IOW(229, 2, uint32_t)
    const CLOSE: libc::Ioctl = nix::request_code_write!(229, 2, size_of::<u32>());
    // SAFETY: the call reads a number from the pointer and keeps nothing.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), CLOSE, &raw const id) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets the program that `command` starts inherit `socket`.
pub(super) fn pass_on(command: &mut Command, socket: &UnixStream) {
    let raw = socket.as_raw_fd();
    let clear = move || {
        // SAFETY: the socket is open in the parent until the program has started, and so here.
        let socket = unsafe { BorrowedFd::borrow_raw(raw) };
        fcntl(socket, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(())
    };
    // SAFETY: `clear` makes one system call and allocates nothing.
    unsafe { command.pre_exec(clear) };
}

/// Receives one descriptor; `None` if the other side has closed without sending one.
pub(super) fn receive_descriptor(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut pieces = [IoSliceMut::new(&mut byte)];
    let mut room = nix::cmsg_space!(RawFd);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = loop {
        match recvmsg::<()>(socket.as_raw_fd(), &mut pieces, Some(&mut room), flags) {
            Err(nix::errno::Errno::EINTR) => {}
            other => break other?,
        }
    };
    let mut received = None;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            for raw in descriptors {
                // SAFETY: the kernel has just made this descriptor for us.
                received = Some(unsafe { OwnedFd::from_raw_fd(raw) });
            }
        }
    }
    Ok(received)
}
