//! `/proc/PID/stat`.

use super::{Malformed, Parsed, decimal, words};

/// What `stat` says of a process or thread. Pids are those of the reader's pid namespace, or of the
/// namespace of the `/proc` mount that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Process or thread id.
    pub pid: i32,
    /// Name of the thread, as it set it: any bytes but NUL, at most 15 (64 for kernel threads).
    pub comm: Vec<u8>,
    /// State letter: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`.
    pub state: u8,
    /// Parent, 0 if it lies outside of the namespace.
    pub ppid: i32,
    /// Process group.
    pub pgrp: i32,
    /// Session.
    pub session: i32,
    /// Device number of the controlling terminal, 0 without one, as the kernel encodes it for users
    /// (`major << 8 | minor` with the upper minor bits above).
    pub tty_nr: i32,
    /// Foreground process group of that terminal, -1 without one.
    pub tpgid: i32,
    /// Kernel flags (`PF_*`).
    pub flags: u32,
    /// Nice value.
    pub nice: i32,
    /// Number of threads.
    pub num_threads: u32,
    /// Start in clock ticks since boot: with the pid, the identity of a process.
    pub starttime: u64,
    /// First and last address of the program's text.
    pub code: (u64, u64),
    /// Bottom of the stack.
    pub start_stack: u64,
    /// Signal that is sent to the parent at the end.
    pub exit_signal: i32,
    /// Real-time priority, 0 for an ordinary thread.
    pub rt_priority: u32,
    /// Scheduling policy (`SCHED_*`).
    pub policy: u32,
    /// First and last address of initialised and other data.
    pub data: (u64, u64),
    /// Where the heap begins.
    pub start_brk: u64,
    /// Addresses of the arguments.
    pub args: (u64, u64),
    /// Addresses of the environment.
    pub env: (u64, u64),
    /// Exit status as `waitpid` gives it.
    pub exit_code: i32,
}

/// Parses the whole file.
///
/// # Errors
/// If a field is missing or is no number. The name may hold anything, also `)` and line feeds.
pub fn parse(text: &[u8]) -> Parsed<Stat> {
    let bad = || Malformed::new("stat", text);
    let open = text.iter().position(|&b| b == b'(').ok_or_else(bad)?;
    let close = text.iter().rposition(|&b| b == b')').ok_or_else(bad)?;
    let comm = text.get(open + 1..close).ok_or_else(bad)?;
    let head = text.get(..open).ok_or_else(bad)?;
    let tail: Vec<&[u8]> = words(text.get(close + 1..).ok_or_else(bad)?).collect();
    // Fields are counted as in proc(5): the state is the third.
    let field = |number: usize| tail.get(number - 3).copied().ok_or_else(bad);
    let address = |number: usize| decimal::<u64>("stat", field(number)?);
    let signed = |number: usize| decimal::<i32>("stat", field(number)?);
    let small = |number: usize| decimal::<u32>("stat", field(number)?);
    Ok(Stat {
        pid: decimal("stat", head)?,
        comm: comm.to_vec(),
        state: field(3)?.first().copied().ok_or_else(bad)?,
        ppid: signed(4)?,
        pgrp: signed(5)?,
        session: signed(6)?,
        tty_nr: signed(7)?,
        tpgid: signed(8)?,
        flags: small(9)?,
        nice: signed(19)?,
        num_threads: small(20)?,
        starttime: address(22)?,
        code: (address(26)?, address(27)?),
        start_stack: address(28)?,
        exit_signal: signed(38)?,
        rt_priority: small(40)?,
        policy: small(41)?,
        data: (address(45)?, address(46)?),
        start_brk: address(47)?,
        args: (address(48)?, address(49)?),
        env: (address(50)?, address(51)?),
        exit_code: signed(52)?,
    })
}

impl Stat {
    /// The terminal's major and minor number, if there is a controlling terminal.
    pub fn terminal(&self) -> Option<(u32, u32)> {
        let raw = self.tty_nr.cast_unsigned();
        let minor = (raw & 0xff) | ((raw >> 12) & 0xfff00);
        (raw != 0).then_some(((raw >> 8) & 0xfff, minor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process() {
        let text = std::fs::read("/proc/self/stat").unwrap();
        let stat = parse(&text).unwrap();
        assert_eq!(u32::try_from(stat.pid).unwrap(), std::process::id());
        assert!(stat.args.0 < stat.args.1 && stat.code.0 < stat.code.1);
    }

    #[test]
    fn names_may_hold_anything() {
        let mut text = b"7 (a) R (b\n) Z 1 7 7 34816 9 4194304".to_vec();
        for number in 10..=52 {
            text.extend_from_slice(format!(" {number}").as_bytes());
        }
        let stat = parse(&text).unwrap();
        assert_eq!((stat.pid, stat.comm.as_slice()), (7, &b"a) R (b\n"[..]));
        assert_eq!((stat.state, stat.exit_code), (b'Z', 52));
        assert_eq!(stat.terminal(), Some((136, 0)));
    }
}
