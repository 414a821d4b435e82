//! Capabilities and the flags of a process that have to do with them.
#![allow(unsafe_code)]

use std::io;

use super::check;

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION_3: u32 = 0x2008_0522;

/// The highest number that is tried; the kernel refuses what it does not know.
const CAPABILITY_MAX: u32 = 63;

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Takes every capability that is not in `keep`, a bit for each, from the bounding set of this thread.
///
/// # Errors
/// `EPERM` without `CAP_SETPCAP`.
pub(crate) fn bound(keep: u64) -> io::Result<()> {
    for capability in (0..=CAPABILITY_MAX).filter(|bit| keep & (1 << bit) == 0) {
        // SAFETY: prctl with integers.
        let result = unsafe {
            libc::prctl(
                libc::PR_CAPBSET_DROP,
                libc::c_ulong::from(capability),
                0,
                0,
                0,
            )
        };
        match check(result.into()) {
            Err(reason) if reason.raw_os_error() == Some(libc::EINVAL) => break,
            other => other?,
        };
    }
    Ok(())
}

/// Lets this thread have the capabilities in `keep` and no others, and hand on none by inheritance.
///
/// # Errors
/// `EPERM` if one of them is missing now.
pub(crate) fn limit(keep: u64) -> io::Result<()> {
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let half = |shift: u32| {
        let bits = u32::try_from((keep >> shift) & u64::from(u32::MAX)).unwrap_or(0);
        Data {
            effective: bits,
            permitted: bits,
            inheritable: 0,
        }
    };
    let data = [half(0), half(32)];
    // SAFETY: a header of version 3 and the two structures that go with it.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) }).map(drop)
}

/// Returns the capabilities that this thread may use, a bit for each.
///
/// # Errors
/// What the kernel says.
pub(crate) fn permitted() -> io::Result<u64> {
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut data = [Data {
        effective: 0,
        permitted: 0,
        inheritable: 0,
    }; 2];
    // SAFETY: a header of version 3 and room for the two structures that go with it.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    Ok(u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32)
}
