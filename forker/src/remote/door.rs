//! A stopped thread that makes system calls for us, and is put back as it was.

use std::fs;

use nix::errno::Errno;

use super::memory::Memory;
use super::region::answer;
use crate::arch::{Registers, SYSCALL};
use crate::error::{Error, Result};
use crate::proc::maps;
use crate::sys::ptrace;
use crate::trace::{Run, Stopped};

/// All signals but the one that ends injected code.
const ALL_BUT_TRAP: u64 = !(1 << (libc::SIGTRAP - 1));

/// Where in a process an instruction is that calls the kernel, so that none has to be written.
///
/// # Errors
/// It has none, or is gone.
pub fn find_syscall(pid: i32, memory: &Memory) -> Result<u64> {
    let text = fs::read(format!("/proc/{pid}/maps"))
        .map_err(|error| Error::io(format!("reading mappings of process {pid}"), error))?;
    let mut maps = maps::parse(&text)?;
    maps.retain(|map| map.prot & libc::PROT_EXEC != 0 && map.path != b"[vsyscall]");
    // The kernel's own comes first: it is small, and everybody has it.
    maps.sort_by_key(|map| map.path != b"[vdso]");
    for map in maps {
        let length = usize::try_from(map.end - map.start)
            .unwrap_or(0)
            .min(8 << 20);
        let mut bytes = vec![0; length];
        if memory.read(map.start, &mut bytes).is_err() {
            continue;
        }
        if let Some(at) = bytes.windows(SYSCALL.len()).position(|two| two == SYSCALL) {
            return Ok(map.start + at as u64);
        }
    }
    Err(Error::Inside {
        pid,
        what: "find an instruction that calls the kernel",
        source: Errno::ENOEXEC,
    })
}

/// The state that a thread must have when it is let go, and how to put it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Its registers.
    pub registers: Registers,
    /// Its blocked signals.
    pub mask: u64,
}

impl Saved {
    /// Takes down a stopped thread's state, and blocks all signals.
    ///
    /// # Errors
    /// It is gone, or runs 32-bit code.
    pub fn take(thread: &Stopped) -> Result<Self> {
        let registers = thread.registers()?;
        let mask = thread.asked("reading blocked signals", ptrace::signal_mask(thread.tid()))?;
        let block = ptrace::set_signal_mask(thread.tid(), ALL_BUT_TRAP);
        thread.asked("blocking signals", block)?;
        Ok(Self { registers, mask })
    }

    /// Puts everything back.
    ///
    /// # Errors
    /// The thread is gone.
    pub fn put_back(&self, thread: &Stopped) -> Result<()> {
        thread.set_registers(&self.registers)?;
        let unblock = ptrace::set_signal_mask(thread.tid(), self.mask);
        thread.asked("unblocking signals", unblock)
    }
}

/// A way into a process: one of its threads, whose state somebody else has [`Saved`].
#[derive(Debug)]
pub struct Door<'a> {
    thread: &'a Stopped,
    memory: &'a Memory,
    syscall: u64,
}

impl<'a> Door<'a> {
    /// Opens a way into a process by one of its threads; `syscall` is what [`find_syscall`] found.
    pub fn new(thread: &'a Stopped, memory: &'a Memory, syscall: u64) -> Self {
        Self {
            thread,
            memory,
            syscall,
        }
    }

    /// The thread.
    pub fn thread(&self) -> &'a Stopped {
        self.thread
    }

    /// The memory of its process.
    pub fn memory(&self) -> &'a Memory {
        self.memory
    }

    /// Lets the thread make one call, without anything being mapped for it.
    ///
    /// # Errors
    /// The thread is gone or went astray; the inner error is the call's.
    pub fn call(
        &self,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<std::result::Result<u64, Errno>> {
        let registers = self
            .thread
            .registers()?
            .calling(self.syscall, number, arguments);
        self.thread.set_registers(&registers)?;
        self.thread.run(Run::OneStep, |_| {})?;
        Ok(answer(self.thread.registers()?.result().cast_unsigned()))
    }
}
