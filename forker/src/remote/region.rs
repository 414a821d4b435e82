//! The pages that the runner needs inside a process, and running tapes there.

use std::ops::Range;

use nix::errno::Errno;

use super::door::Door;
use super::memory::Memory;
use crate::error::{Error, Result};
use crate::memory::calls::{Argument, Call, Calls, Expect};
use crate::sys::runner;
use crate::trace::{Run, Stopped};

const PAGE: u64 = 4096;
/// Bytes of a record: number, flags, six arguments, result, unused.
const RECORD: usize = 80;
/// Where the result is in a record.
const RESULT: usize = 64;
/// Flag of a record: an error ends the tape. The lower six say which arguments are addresses of
/// results.
const STOP_ON_ERROR: u64 = 1 << 6;
/// The number that ends a tape.
const END: u64 = u64::MAX;

/// One page of code, some of records, and the rest for what the records point at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    start: u64,
    tape_pages: u64,
    data_pages: u64,
}

impl Region {
    /// A region for at least so many calls at once and so many bytes of data, at `start` once mapped.
    pub fn new(start: u64, calls: usize, data_bytes: usize) -> Self {
        let tape = (calls + 1) * RECORD;
        Self {
            start,
            tape_pages: (tape as u64).div_ceil(PAGE),
            data_pages: (data_bytes as u64).div_ceil(PAGE),
        }
    }

    /// The addresses that it takes.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes()
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        PAGE * (1 + self.tape_pages + self.data_pages)
    }

    /// Where the data of calls lies.
    pub fn data(&self) -> u64 {
        self.tape() + PAGE * self.tape_pages
    }

    fn tape(&self) -> u64 {
        self.start + PAGE
    }

    fn most_calls(&self) -> usize {
        usize::try_from(PAGE * self.tape_pages).unwrap_or(0) / RECORD - 1
    }

    /// Maps it into the process behind `door`: where it says, or, if it starts at 0, wherever there
    /// is room.
    ///
    /// # Errors
    /// The process has no room, or may not have it.
    pub fn map(mut self, door: &Door<'_>) -> Result<Self> {
        let pid = door.thread().tid();
        let failed = |source| Error::Inside {
            pid,
            what: "map the tape runner",
            source,
        };
        let place = if self.start == 0 {
            0
        } else {
            libc::MAP_FIXED_NOREPLACE
        };
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | place).unsigned_abs();
        let protection = (libc::PROT_READ | libc::PROT_WRITE).unsigned_abs();
        let arguments = [
            self.start,
            self.bytes(),
            protection.into(),
            flags.into(),
            u64::MAX,
            0,
        ];
        self.start = door.call(libc::SYS_mmap, arguments)?.map_err(failed)?;
        let protect = || -> Result<()> {
            door.memory().write(self.start, runner::code())?;
            let executable = (libc::PROT_READ | libc::PROT_EXEC).unsigned_abs();
            let arguments = [self.start, PAGE, executable.into(), 0, 0, 0];
            door.call(libc::SYS_mprotect, arguments)?
                .map_err(failed)
                .map(drop)
        };
        if let Err(error) = protect() {
            self.unmap(door)?;
            return Err(error);
        }
        Ok(self)
    }

    /// Takes it away again.
    ///
    /// # Errors
    /// The process is gone.
    pub fn unmap(&self, door: &Door<'_>) -> Result<()> {
        let arguments = [self.start, self.bytes(), 0, 0, 0, 0];
        door.call(libc::SYS_munmap, arguments)?
            .map(drop)
            .map_err(|source| Error::Inside {
                pid: door.thread().tid(),
                what: "unmap the tape runner",
                source,
            })
    }

    /// Lets a thread make calls, and returns what each returned. Its registers are not what they were
    /// afterwards.
    ///
    /// # Errors
    /// A call returned what it must not (nothing behind it counts then), or the thread is gone.
    pub fn run(&self, thread: &Stopped, memory: &Memory, calls: &Calls) -> Result<Vec<u64>> {
        self.run_with(thread, memory, calls, |_| {})
    }

    /// As [`Region::run`], and tells each new process or thread that came of it.
    ///
    /// # Errors
    /// As [`Region::run`].
    pub fn run_with(
        &self,
        thread: &Stopped,
        memory: &Memory,
        calls: &Calls,
        mut event: impl FnMut(u64),
    ) -> Result<Vec<u64>> {
        let room = usize::try_from(PAGE * self.data_pages).unwrap_or(0);
        if calls.data.len() > room {
            return Err(Error::Image(format!(
                "its calls need {} bytes of data, and there is room for {room}",
                calls.data.len()
            )));
        }
        if !calls.data.is_empty() {
            memory.write(self.data(), &calls.data)?;
        }
        let mut results = Vec::with_capacity(calls.list.len());
        for chunk in calls.list.chunks(self.most_calls()) {
            let first = results.len();
            memory.write(self.tape(), &self.records(chunk, first, &results))?;
            let registers = thread.registers()?.running(self.start, self.tape());
            thread.set_registers(&registers)?;
            thread.run(Run::ToBreakpoint, &mut event)?;
            let mut records = vec![0; chunk.len() * RECORD];
            memory.read(self.tape(), &mut records)?;
            for (record, call) in records.chunks(RECORD).zip(chunk) {
                let word = record[RESULT..].first_chunk().copied().unwrap_or_default();
                let result = u64::from_ne_bytes(word);
                judge(call, result).map_err(|source| Error::Inside {
                    pid: thread.tid(),
                    what: call.what,
                    source,
                })?;
                results.push(result);
            }
        }
        Ok(results)
    }

    fn records(&self, calls: &[Call], first: usize, results: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity((calls.len() + 1) * RECORD);
        for call in calls {
            let mut flags = match call.expect {
                Expect::Anything => 0,
                Expect::Success | Expect::Exactly(_) => STOP_ON_ERROR,
            };
            let arguments =
                call.arguments
                    .iter()
                    .enumerate()
                    .map(|(place, argument)| match *argument {
                        Argument::Value(value) => value,
                        Argument::Result(index) if index < first => results[index],
                        Argument::Result(index) => {
                            flags |= 1 << place;
                            self.tape() + ((index - first) * RECORD + RESULT) as u64
                        }
                    });
            let arguments: Vec<u64> = arguments.collect();
            bytes.extend(call.number.to_ne_bytes());
            bytes.extend(flags.to_ne_bytes());
            bytes.extend(arguments.into_iter().flat_map(u64::to_ne_bytes));
            bytes.extend([0; RECORD - RESULT]);
        }
        bytes.extend(END.to_ne_bytes());
        bytes.resize((calls.len() + 1) * RECORD, 0);
        bytes
    }
}

fn judge(call: &Call, result: u64) -> std::result::Result<(), Errno> {
    match call.expect {
        Expect::Anything => Ok(()),
        Expect::Success => answer(result).map(drop),
        Expect::Exactly(wanted) => match answer(result)? {
            result if result == wanted => Ok(()),
            _ => Err(Errno::EEXIST),
        },
    }
}

/// What a raw result of a system call means.
pub(super) fn answer(result: u64) -> std::result::Result<u64, Errno> {
    let signed = result.cast_signed();
    if (-4095..0).contains(&signed) {
        Err(Errno::from_raw(i32::try_from(-signed).unwrap_or(0)))
    } else {
        Ok(result)
    }
}
