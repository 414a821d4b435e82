//! `ptrace`, one function for each request that is used. All but [`seize`] want a thread that the
//! calling *thread* traces and that is in a ptrace stop; otherwise they answer `ESRCH`.

use std::mem::{MaybeUninit, size_of};
use std::ptr;

use nix::errno::Errno;

use crate::arch::Registers;

/// Result of a request.
pub type Answer<T> = Result<T, Errno>;

/// `PTRACE_O_SUSPEND_SECCOMP`.
pub const SUSPEND_SECCOMP: i32 = 1 << 21;

const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
/// The largest register set that a machine of today has is one with AMX: 11 KiB.
const LARGEST_STATE: usize = 64 << 10;
/// Bytes of a `siginfo_t`.
pub const SIGINFO: usize = 128;

fn request(
    number: libc::c_uint,
    tid: i32,
    address: usize,
    data: *mut libc::c_void,
) -> Answer<libc::c_long> {
    // SAFETY: what `data` points at is, for each request of this module, as large as the request
    // reads or writes; the caller in this module holds it for the time of the call.
    let answer = unsafe { libc::ptrace(number, tid, address, data) };
    Errno::result(answer)
}

/// A plain number in the place of a pointer.
fn plain(number: i32) -> *mut libc::c_void {
    ptr::without_provenance_mut(usize::try_from(number).unwrap_or(0))
}

/// Begins to trace a thread, without stopping it.
///
/// # Errors
/// It is gone, traced by somebody else, or must not be traced.
pub fn seize(tid: i32, options: i32) -> Answer<()> {
    request(libc::PTRACE_SEIZE, tid, 0, plain(options)).map(drop)
}

/// Asks a traced thread to stop.
///
/// # Errors
/// It is gone.
pub fn interrupt(tid: i32) -> Answer<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, ptr::null_mut()).map(drop)
}

/// Lets it run on, with a signal (0 for none).
///
/// # Errors
/// It is gone or not stopped.
pub fn resume(tid: i32, signal: i32) -> Answer<()> {
    request(libc::PTRACE_CONT, tid, 0, plain(signal)).map(drop)
}

/// Lets it execute one instruction.
///
/// # Errors
/// It is gone or not stopped.
pub fn step(tid: i32) -> Answer<()> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, ptr::null_mut()).map(drop)
}

/// Stops tracing it and lets it run on, with a signal (0 for none).
///
/// # Errors
/// It is gone or not stopped.
pub fn detach(tid: i32, signal: i32) -> Answer<()> {
    request(libc::PTRACE_DETACH, tid, 0, plain(signal)).map(drop)
}

/// Replaces the options.
///
/// # Errors
/// It is gone or not stopped.
pub fn set_options(tid: i32, options: i32) -> Answer<()> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, plain(options)).map(drop)
}

/// What belongs to the event that it stopped for: the new thread of a clone.
///
/// # Errors
/// It is gone or not stopped.
pub fn event_message(tid: i32) -> Answer<u64> {
    let mut message: libc::c_ulong = 0;
    request(
        libc::PTRACE_GETEVENTMSG,
        tid,
        0,
        (&raw mut message).cast::<libc::c_void>(),
    )?;
    Ok(message)
}

fn register_set(
    request_number: libc::c_uint,
    tid: i32,
    kind: usize,
    bytes: &mut [u8],
) -> Answer<usize> {
    let mut vector = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    request(request_number, tid, kind, (&raw mut vector).cast())?;
    Ok(vector.iov_len)
}

const NT_PRSTATUS: usize = 1;
const NT_X86_XSTATE: usize = 0x202;

/// The general registers.
///
/// # Errors
/// It is gone or not stopped.
pub fn registers(tid: i32) -> Answer<Registers> {
    let mut bytes = [0; size_of::<Registers>()];
    let length = register_set(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, &mut bytes)?;
    if length != bytes.len() {
        // A 32-bit thread has fewer.
        return Err(Errno::ENOTSUP);
    }
    Ok(Registers::from_bytes(&bytes))
}

/// Sets the general registers.
///
/// # Errors
/// It is gone, not stopped, or a value is none that user space may have.
pub fn set_registers(tid: i32, registers: &Registers) -> Answer<()> {
    let mut bytes = registers.to_bytes();
    register_set(libc::PTRACE_SETREGSET, tid, NT_PRSTATUS, &mut bytes).map(drop)
}

/// The extended state (floating point, vectors), in the layout of `xsave`.
///
/// # Errors
/// It is gone or not stopped.
pub fn extended_state(tid: i32) -> Answer<Vec<u8>> {
    let mut bytes = vec![0; LARGEST_STATE];
    let length = register_set(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

/// Sets the extended state.
///
/// # Errors
/// It is gone, not stopped, or the state is of another kind of processor.
pub fn set_extended_state(tid: i32, state: &[u8]) -> Answer<()> {
    let mut bytes = state.to_vec();
    register_set(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, &mut bytes).map(drop)
}

/// The blocked signals, bit 0 for signal 1.
///
/// # Errors
/// It is gone or not stopped.
pub fn signal_mask(tid: i32) -> Answer<u64> {
    let mut mask = 0_u64;
    request(
        libc::PTRACE_GETSIGMASK,
        tid,
        size_of::<u64>(),
        (&raw mut mask).cast(),
    )?;
    Ok(mask)
}

/// Sets the blocked signals.
///
/// # Errors
/// It is gone or not stopped.
pub fn set_signal_mask(tid: i32, mask: u64) -> Answer<()> {
    let mut mask = mask;
    request(
        libc::PTRACE_SETSIGMASK,
        tid,
        size_of::<u64>(),
        (&raw mut mask).cast(),
    )
    .map(drop)
}

/// The signal that it stopped for.
///
/// # Errors
/// It is gone or stopped for no signal.
pub fn signal_info(tid: i32) -> Answer<Vec<u8>> {
    let mut info = vec![0_u8; SIGINFO];
    request(libc::PTRACE_GETSIGINFO, tid, 0, info.as_mut_ptr().cast())?;
    Ok(info)
}

/// The pending signals, of the thread or of its whole process, as `siginfo_t`.
///
/// # Errors
/// It is gone or not stopped.
pub fn pending(tid: i32, of_process: bool) -> Answer<Vec<Vec<u8>>> {
    #[repr(C)]
    struct Peek {
        offset: u64,
        flags: u32,
        count: i32,
    }
    const AT_ONCE: usize = 32;
    let mut found = Vec::new();
    loop {
        let mut peek = Peek {
            offset: found.len() as u64,
            flags: u32::from(of_process),
            count: 32,
        };
        let mut infos = vec![0_u8; SIGINFO * AT_ONCE];
        // SAFETY: the request reads one `Peek` and writes at most `count` infos of 128 bytes each.
        let answer = unsafe {
            libc::ptrace(
                libc::PTRACE_PEEKSIGINFO,
                tid,
                &raw mut peek,
                infos.as_mut_ptr(),
            )
        };
        let count = usize::try_from(Errno::result(answer)?).unwrap_or(0);
        found.extend(infos.chunks(SIGINFO).take(count).map(<[u8]>::to_vec));
        if count < AT_ONCE {
            return Ok(found);
        }
    }
}

/// Where the thread has registered a restartable sequence area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rseq {
    /// Address of the area, 0 if there is none.
    pub address: u64,
    /// Its length in bytes.
    pub length: u32,
    /// The signature in front of abort handlers.
    pub signature: u32,
}

/// The restartable sequence area.
///
/// # Errors
/// It is gone or not stopped.
pub fn rseq(tid: i32) -> Answer<Rseq> {
    #[repr(C)]
    struct Configuration {
        address: u64,
        length: u32,
        signature: u32,
        flags: u32,
        pad: u32,
    }
    let mut raw = MaybeUninit::<Configuration>::zeroed();
    request(
        GET_RSEQ_CONFIGURATION,
        tid,
        size_of::<Configuration>(),
        raw.as_mut_ptr().cast(),
    )?;
    // SAFETY: integers only, zeroed before and filled by the kernel.
    let found = unsafe { raw.assume_init() };
    Ok(Rseq {
        address: found.address,
        length: found.length,
        signature: found.signature,
    })
}

/// The instructions of the `index`-th seccomp filter (0 is the newest), 8 bytes each; `None` behind
/// the last.
///
/// # Errors
/// The kernel refuses, for example because the tracer is confined itself.
pub fn seccomp_filter(tid: i32, index: usize) -> Answer<Option<Vec<u8>>> {
    let count = match request(SECCOMP_GET_FILTER, tid, index, ptr::null_mut()) {
        Ok(count) => usize::try_from(count).unwrap_or(0),
        Err(Errno::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut program = vec![0_u8; count * 8];
    request(SECCOMP_GET_FILTER, tid, index, program.as_mut_ptr().cast())?;
    Ok(Some(program))
}
