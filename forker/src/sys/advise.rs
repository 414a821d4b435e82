//! `process_madvise`: advice for the memory of another process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// Makes huge pages out of each whole 2 MiB of `start..start + length` in the process of `pidfd`.
///
/// # Errors
/// What the kernel answers: no huge page free, or nothing there to be collapsed.
pub fn collapse(pidfd: BorrowedFd, start: u64, length: u64) -> io::Result<()> {
    let range = [start, length];
    // SAFETY: the kernel reads one `struct iovec` (two words) of ours; the range in it belongs to
    // the other process, whose bytes a collapse leaves as they are.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            pidfd.as_raw_fd(),
            range.as_ptr(),
            1_usize,
            libc::MADV_COLLAPSE,
            0_u32,
        )
    };
    Errno::result(answer).map(drop).map_err(io::Error::from)
}
