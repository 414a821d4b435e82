//! Making processes: the first of a box from the daemon, and the others from that first one.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

use super::check;

/// The number under which a new init finds its end of the socket to the daemon.
pub(crate) const CONTROL_FD: RawFd = 3;

/// The number of the descriptor of the program while it is being executed.
const PROGRAM_FD: RawFd = 4;

/// The lowest number that the copies of descriptors for a child get: above those that it sets.
const COPY_FD_MIN: RawFd = 10;

/// Stack of a child until it executes its program: it makes four system calls.
const STACK_BYTES: usize = 64 << 10;

/// The namespaces of a box.
const NAMESPACES: libc::c_int = libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET;

/// A process just made.
#[derive(Debug)]
pub(crate) struct Child {
    /// Its pid as its maker sees it.
    pub(crate) pid: i32,
    /// A descriptor that keeps meaning it.
    pub(crate) pidfd: OwnedFd,
}

/// What the child needs until it executes the program. It may not allocate.
#[repr(C)]
struct Plan {
    control: RawFd,
    program: RawFd,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
    errno: libc::c_int,
}

/// Starts `program` with `args` in new namespaces and in `cgroup`, with `control` as descriptor 3,
/// the standard ones of this process, and no other.
///
/// The child borrows this process's memory until it executes the program, so the cost doesn't grow with
/// that memory.
///
/// # Errors
/// What the kernel says about the clone or the execution.
pub(crate) fn spawn(
    program: BorrowedFd<'_>,
    args: &[CString],
    control: BorrowedFd<'_>,
    cgroup: BorrowedFd<'_>,
) -> io::Result<Child> {
    let copy = |fd: BorrowedFd<'_>| {
        nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(COPY_FD_MIN))
            .map_err(io::Error::from)
            // SAFETY: the kernel has just made this number for us.
            .map(|raw| unsafe { OwnedFd::from_raw_fd(raw) })
    };
    let (control, program) = (copy(control)?, copy(program)?);
    let mut argv: Vec<*const libc::c_char> = args.iter().map(|arg| arg.as_ptr()).collect();
    argv.push(ptr::null());
    let envp: [*const libc::c_char; 1] = [ptr::null()];
    let mut plan = Plan {
        control: control.as_raw_fd(),
        program: program.as_raw_fd(),
        argv: argv.as_ptr(),
        envp: envp.as_ptr(),
        errno: 0,
    };
    let mut stack = vec![0u8; STACK_BYTES];
    let mut pidfd: RawFd = -1;
    let flags = NAMESPACES | libc::CLONE_PIDFD | libc::CLONE_VM | libc::CLONE_VFORK;
    let args = CloneArgs {
        flags: u64::from(flags.cast_unsigned()) | CLONE_INTO_CGROUP,
        pidfd: ptr::from_mut(&mut pidfd) as u64,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        stack: stack.as_mut_ptr() as u64,
        stack_size: STACK_BYTES as u64,
        cgroup: u64::from(cgroup.as_raw_fd().cast_unsigned()),
        ..CloneArgs::default()
    };
    // A signal handler must not run in the child, which has our memory.
    let mut before = SigSet::empty();
    pthread_sigmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    // SAFETY: the stack, the plan and everything it points at live until this returns, which is after the
    // child has executed its program or ended (CLONE_VFORK); `execute` only makes system calls.
    let result = unsafe { clone_onto_stack(&args, ptr::from_mut(&mut plan)) };
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    if result < 0 {
        let errno = i32::try_from(-result).unwrap_or(libc::EINVAL);
        return Err(io::Error::from_raw_os_error(errno));
    }
    // SAFETY: clone3 succeeded and has stored a new descriptor there.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    // SAFETY: a plain read of a field that the child, which has ended or left this memory, may have set.
    let errno = unsafe { ptr::read_volatile(&raw const plan.errno) };
    let pid = i32::try_from(result).unwrap_or(0);
    if errno != 0 {
        super::pidfd::reap(&pidfd)?;
        return Err(io::Error::from_raw_os_error(errno));
    }
    Ok(Child { pid, pidfd })
}

/// The kernel's `struct clone_args`, up to the field `cgroup`.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const _: () = assert!(size_of::<CloneArgs>() == 88);

/// `CLONE_INTO_CGROUP`; the C library's constant does not fit its own type.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Makes a child that runs [`execute`] on its own stack. Returns the pid or a negative errno.
///
/// # Safety
/// `args` names a stack that nobody uses until the child has left this memory, and asks for
/// `CLONE_VM` and `CLONE_VFORK`; `plan` and what it points at stay until then.
#[cfg(target_arch = "x86_64")]
unsafe fn clone_onto_stack(args: &CloneArgs, plan: *mut Plan) -> i64 {
    let result: i64;
    // SAFETY: by the caller's promise. The child starts behind the system call with the new stack and
    // never comes back; the parent finds all its registers as they were but rax, rcx and r11.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call {execute}",
            "ud2",
            "2:",
            execute = sym execute,
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") ptr::from_ref(args),
            in("rsi") size_of::<CloneArgs>(),
            in("r12") plan,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// Becomes the program. Runs in memory shared with the parent: only system calls, no allocation.
extern "C" fn execute(plan: *mut Plan) -> ! {
    // SAFETY: the parent, which waits, keeps the plan for us alone.
    let plan = unsafe { &mut *plan };
    // SAFETY: dup3 takes integers.
    let control = unsafe { libc::dup3(plan.control, CONTROL_FD, 0) };
    // SAFETY: dup3 takes integers.
    let program = unsafe { libc::dup3(plan.program, PROGRAM_FD, libc::O_CLOEXEC) };
    if control >= 0 && program >= 0 {
        // SAFETY: integers; affects only this process's own table of descriptors.
        unsafe { libc::syscall(libc::SYS_close_range, PROGRAM_FD + 1, u32::MAX, 0u32) };
        let (argv, envp, flags) = (plan.argv, plan.envp, libc::AT_EMPTY_PATH);
        // SAFETY: a constant string, and arrays that end with null pointers, which the parent keeps.
        unsafe {
            libc::syscall(
                libc::SYS_execveat,
                PROGRAM_FD,
                c"".as_ptr(),
                argv,
                envp,
                flags,
            )
        };
    }
    let reason = nix::errno::Errno::last_raw();
    // SAFETY: a field of a structure that is ours; volatile, because the parent reads it behind the
    // compiler's back.
    unsafe { ptr::write_volatile(&raw mut plan.errno, reason) };
    exit_now(127)
}

/// Forks this process, which must have one thread, into `cgroup`. Returns nothing in the child.
///
/// The child must not use what the C library knows of its own thread (`raise`, `abort`).
///
/// # Errors
/// What the kernel says.
pub(crate) fn fork_into(cgroup: BorrowedFd<'_>) -> io::Result<Option<Child>> {
    let mut pidfd: RawFd = -1;
    let args = CloneArgs {
        flags: u64::from(libc::CLONE_PIDFD.cast_unsigned()) | CLONE_INTO_CGROUP,
        pidfd: ptr::from_mut(&mut pidfd) as u64,
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        cgroup: u64::from(cgroup.as_raw_fd().cast_unsigned()),
        ..CloneArgs::default()
    };
    // SAFETY: without CLONE_VM the child has a copy of everything; no other thread can hold a lock in
    // that copy, because there is none.
    let pid = check(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            ptr::from_ref(&args),
            size_of::<CloneArgs>(),
        )
    })?;
    if pid == 0 {
        return Ok(None);
    }
    Ok(Some(Child {
        pid: i32::try_from(pid).unwrap_or(0),
        // SAFETY: clone3 succeeded and has stored a new descriptor there.
        pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
    }))
}

/// Ends this process at once.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(status) }
}

/// Closes every descriptor but `kept`.
///
/// Only for a process that does nothing more than wait for a tracer: objects that own one of the
/// descriptors must not be used any more.
///
/// # Errors
/// What the kernel says.
pub(crate) fn close_all_but(kept: RawFd) -> io::Result<()> {
    let close = |first: u32, last: u32| {
        // SAFETY: close_range takes three integers; nobody uses the descriptors afterwards, by the
        // caller's promise.
        check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) }).map(drop)
    };
    let kept = kept.cast_unsigned();
    if let Some(before) = kept.checked_sub(1) {
        close(0, before)?;
    }
    close(kept + 1, u32::MAX)
}

/// Takes over a descriptor that the kernel has just made for this process.
pub(crate) fn own_fd(raw: RawFd) -> OwnedFd {
    // SAFETY: called only with numbers that the kernel has just installed in this process for us
    // (control messages, the inherited descriptor 3, once), which nobody else owns.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Executes `program` in place of this one. Returns only if that fails.
pub(crate) fn exec(program: &CString, argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| {
        let mut all: Vec<*const libc::c_char> = strings.iter().map(|text| text.as_ptr()).collect();
        all.push(ptr::null());
        all
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: three pointers to NUL-terminated strings and NULL-terminated arrays that live across
    // the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Gives every signal its default action, which `execve` alone does not do for ignored ones.
pub(crate) fn default_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL is no function of ours; numbers that cannot be set are refused.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
