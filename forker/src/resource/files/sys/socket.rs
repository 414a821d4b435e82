//! Sockets.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::{Plain, check, owned};

/// A socket option of fixed size.
pub(in super::super) fn getsockopt<T: Plain>(
    socket: impl AsFd,
    level: i32,
    name: i32,
) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut size = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let raw = socket.as_fd().as_raw_fd();
    // SAFETY: `value` has room for `size` bytes.
    let done =
        unsafe { libc::getsockopt(raw, level, name, value.as_mut_ptr().cast(), &raw mut size) };
    check(done.into())?;
    // SAFETY: zeroed or written by the kernel, and every bit pattern is valid for `Plain`.
    Ok(unsafe { value.assume_init() })
}

/// Sets a socket option from a value, or from a slice of them.
pub(in super::super) fn setsockopt<T: Plain>(
    socket: impl AsFd,
    level: i32,
    name: i32,
    value: &[T],
) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of_val(value)).map_err(io::Error::other)?;
    let raw = socket.as_fd().as_raw_fd();
    // SAFETY: `value` holds `size` bytes.
    check(unsafe { libc::setsockopt(raw, level, name, value.as_ptr().cast(), size) }.into())
        .map(drop)
}

/// A socket option of variable size, at most 64 KiB.
pub(in super::super) fn getsockopt_bytes(
    socket: impl AsFd,
    level: i32,
    name: i32,
) -> io::Result<Vec<u8>> {
    let mut value = vec![0_u8; 1 << 16];
    let mut size = 1 << 16;
    let raw = socket.as_fd().as_raw_fd();
    // SAFETY: `value` has room for `size` bytes.
    let done =
        unsafe { libc::getsockopt(raw, level, name, value.as_mut_ptr().cast(), &raw mut size) };
    check(done.into())?;
    value.truncate(usize::try_from(size).map_err(io::Error::other)?);
    Ok(value)
}

/// A socket.
pub(in super::super) fn socket(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers.
    owned(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) }.into())
}

/// A pair of unix sockets.
pub(in super::super) fn socketpair(kind: i32) -> io::Result<[OwnedFd; 2]> {
    let mut pair = [-1; 2];
    let kind = kind | libc::SOCK_CLOEXEC;
    // SAFETY: `pair` has room for two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) }.into())?;
    // SAFETY: the call succeeded, so both are new and nobody else's.
    Ok(pair.map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }))
}

/// What to do with an address.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum With {
    /// Take it as the own one.
    Bind,
    /// Connect to it.
    Connect,
}

/// Binds or connects a socket; `address` is a whole `sockaddr`.
pub(in super::super) fn address(socket: impl AsFd, with: With, address: &[u8]) -> io::Result<()> {
    let size = libc::socklen_t::try_from(address.len()).map_err(io::Error::other)?;
    let (raw, pointer) = (socket.as_fd().as_raw_fd(), address.as_ptr().cast());
    let call = match with {
        With::Bind => libc::bind,
        With::Connect => libc::connect,
    };
    // SAFETY: `address` has `size` bytes; the kernel copies it before it looks at it.
    check(unsafe { call(raw, pointer, size) }.into()).map(drop)
}

/// Which of a socket's two addresses.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Which {
    /// Its own.
    Own,
    /// Its peer's.
    Peer,
}

/// A `sockaddr` of a socket.
pub(in super::super) fn name(socket: impl AsFd, which: Which) -> io::Result<Vec<u8>> {
    let mut address = vec![0_u8; 128];
    let mut size: libc::socklen_t = 128;
    let (raw, pointer) = (socket.as_fd().as_raw_fd(), address.as_mut_ptr().cast());
    let call = match which {
        Which::Own => libc::getsockname,
        Which::Peer => libc::getpeername,
    };
    // SAFETY: `address` has room for `size` bytes.
    check(unsafe { call(raw, pointer, &raw mut size) }.into())?;
    address.truncate(usize::try_from(size).map_err(io::Error::other)?);
    Ok(address)
}

/// Makes a socket listen.
pub(in super::super) fn listen(socket: impl AsFd, backlog: i32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::listen(socket.as_fd().as_raw_fd(), backlog) }.into()).map(drop)
}

/// Shuts a socket down in one or both directions.
pub(in super::super) fn shutdown(socket: impl AsFd, how: i32) -> io::Result<()> {
    // SAFETY: plain numbers.
    check(unsafe { libc::shutdown(socket.as_fd().as_raw_fd(), how) }.into()).map(drop)
}

/// Data with what came with it.
#[derive(Debug, Default)]
pub(in super::super) struct Message {
    pub(in super::super) data: Vec<u8>,
    /// `sockaddr` of the sender, empty without one.
    pub(in super::super) from: Vec<u8>,
    pub(in super::super) files: Vec<OwnedFd>,
    /// Process, user and group of the sender, if the socket asks for them.
    pub(in super::super) sender: Option<(i32, u32, u32)>,
    /// `MSG_*` flags of the result.
    pub(in super::super) flags: i32,
}

/// Receives one message of at most `limit` bytes. `None` at the end or with nothing there.
pub(in super::super) fn receive(
    socket: impl AsFd,
    limit: usize,
    flags: i32,
) -> io::Result<Option<Message>> {
    let mut data = vec![0_u8; limit];
    let mut from = vec![0_u8; 128];
    // Room for 253 descriptors (the kernel's limit) and credentials, aligned as `cmsghdr` wants it.
    let mut control = [0_u64; 192];
    let mut part = libc::iovec {
        iov_base: data.as_mut_ptr().cast(),
        iov_len: limit,
    };
    // SAFETY: all zero is a valid header.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_name = from.as_mut_ptr().cast();
    header.msg_namelen = 128;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control);
    let flags = flags | libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    let raw = socket.as_fd().as_raw_fd();
    // SAFETY: the header points to buffers that outlive the call.
    let got = unsafe { libc::recvmsg(raw, &raw mut header, flags) };
    let got = match check(i64::try_from(got).map_err(io::Error::other)?) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        other => usize::try_from(other?).map_err(io::Error::other)?,
    };
    data.truncate(got);
    from.truncate(usize::try_from(header.msg_namelen).map_err(io::Error::other)?);
    let mut message = Message {
        data,
        from,
        flags: header.msg_flags,
        ..Message::default()
    };
    // SAFETY: the header was filled by the kernel, `control` still lives.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !next.is_null() {
        // SAFETY: the macros only give headers that lie whole within `control`.
        let part = unsafe { *next };
        // SAFETY: as above.
        let payload = unsafe { libc::CMSG_DATA(next) };
        let length = part.cmsg_len.saturating_sub(control_header());
        if part.cmsg_level == libc::SOL_SOCKET && part.cmsg_type == libc::SCM_RIGHTS {
            for at in 0..length / size_of::<RawFd>() {
                // SAFETY: `at` lies within the payload.
                let place = unsafe { payload.cast::<RawFd>().add(at) };
                // SAFETY: the kernel has written a descriptor there.
                let fd = unsafe { place.read_unaligned() };
                // SAFETY: the kernel has just made it for us.
                message.files.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        } else if part.cmsg_level == libc::SOL_SOCKET
            && part.cmsg_type == libc::SCM_CREDENTIALS
            && length >= size_of::<libc::ucred>()
        {
            // SAFETY: the payload has this size.
            let who = unsafe { payload.cast::<libc::ucred>().read_unaligned() };
            message.sender = Some((who.pid, who.uid, who.gid));
        }
        // SAFETY: `next` is a header within `control`.
        next = unsafe { libc::CMSG_NXTHDR(&raw const header, next) };
    }
    Ok(Some(message))
}

fn control_header() -> usize {
    // SAFETY: arithmetic only.
    let size = unsafe { libc::CMSG_LEN(0) };
    usize::try_from(size).unwrap_or(16)
}

/// Sends data, to `to` unless that is empty, with descriptors and the sender's identity.
pub(in super::super) fn send(
    socket: impl AsFd,
    data: &[u8],
    to: &[u8],
    files: &[RawFd],
    sender: Option<(i32, u32, u32)>,
) -> io::Result<usize> {
    let mut control: Vec<u64> = Vec::new();
    let mut add = |kind: i32, payload: &[u8]| {
        let length = control_header() + payload.len();
        let mut bytes = Vec::with_capacity(length + 8);
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let words = bytes.chunks_exact(8);
        control.extend(words.filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes)));
    };
    if !files.is_empty() {
        let numbers: Vec<u8> = files.iter().flat_map(|fd| fd.to_ne_bytes()).collect();
        add(libc::SCM_RIGHTS, &numbers);
    }
    if let Some((pid, uid, gid)) = sender {
        let mut who = pid.to_ne_bytes().to_vec();
        who.extend_from_slice(&uid.to_ne_bytes());
        who.extend_from_slice(&gid.to_ne_bytes());
        add(libc::SCM_CREDENTIALS, &who);
    }
    let mut part = libc::iovec {
        iov_base: data.as_ptr().cast_mut().cast(),
        iov_len: data.len(),
    };
    // SAFETY: all zero is a valid header.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    if !to.is_empty() {
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = libc::socklen_t::try_from(to.len()).map_err(io::Error::other)?;
    }
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if !control.is_empty() {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(control.as_slice());
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header points to buffers that outlive the call; none of them is written.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, flags) };
    let sent = check(i64::try_from(sent).map_err(io::Error::other)?)?;
    usize::try_from(sent).map_err(io::Error::other)
}

/// The calling thread's effective ids, and only the calling thread's; -1 leaves one as it is.
pub(in super::super) fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    let keep = u32::MAX;
    // SAFETY: plain numbers; the raw call changes this thread alone.
    check(unsafe { libc::syscall(libc::SYS_setresgid, keep, gid, keep) })?;
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_setresuid, keep, uid, keep) }).map(drop)
}

impl Message {
    pub(in super::super) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.files.is_empty()
    }
}

/// Accepts a connection that waits.
pub(in super::super) fn accept(socket: impl AsFd) -> io::Result<OwnedFd> {
    let none = std::ptr::null_mut::<libc::sockaddr>();
    let raw = socket.as_fd().as_raw_fd();
    // SAFETY: no address is asked for.
    owned(unsafe { libc::accept4(raw, none, none.cast(), libc::SOCK_CLOEXEC) }.into())
}
