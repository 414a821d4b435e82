//! The processes of a box, as `/proc` shows them.

use std::fs;

/// A process of a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its pid in the box.
    pub pid: i32,
    /// Its parent's pid in the box; 1 is init.
    pub parent: i32,
    /// Its pid on the host.
    pub host_pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its state, a letter: R running, S and D waiting, T stopped, Z ended and not yet waited for.
    pub state: char,
    /// The pages of memory that it has present, in bytes.
    pub resident_bytes: u64,
    /// The count of its threads.
    pub threads: u64,
    /// The name of its program.
    pub name: String,
    /// Its arguments, joined by spaces; empty for one that has ended.
    pub command: String,
}

/// Returns the process `host_pid`, or nothing if it is gone.
pub(crate) fn read(host_pid: i32) -> Option<Process> {
    let status = read_lossy(&format!("/proc/{host_pid}/status"))?;
    let mut process = parse(host_pid, &status)?;
    let parent: i32 = field(&status, "PPid:")?.parse().ok()?;
    process.parent = read_lossy(&format!("/proc/{parent}/status"))
        .and_then(|status| inner_pid(&status))
        .unwrap_or(1);
    let command = read_lossy(&format!("/proc/{host_pid}/cmdline")).unwrap_or_default();
    process.command = command.trim_end_matches('\0').replace('\0', " ");
    Some(process)
}

fn parse(host_pid: i32, status: &str) -> Option<Process> {
    let number = |name: &str| {
        field(status, name)
            .and_then(|text| text.split_whitespace().next())
            .and_then(|text| text.parse::<u64>().ok())
    };
    Some(Process {
        pid: inner_pid(status)?,
        parent: 1,
        host_pid,
        uid: u32::try_from(number("Uid:")?).ok()?,
        state: field(status, "State:")?.chars().next()?,
        resident_bytes: number("VmRSS:").unwrap_or(0).saturating_mul(1024),
        threads: number("Threads:").unwrap_or(1),
        name: field(status, "Name:")?.to_owned(),
        command: String::new(),
    })
}

/// Returns the pid in the innermost namespace of a process.
fn inner_pid(status: &str) -> Option<i32> {
    field(status, "NSpid:")?
        .split_whitespace()
        .next_back()?
        .parse()
        .ok()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

fn read_lossy(path: &str) -> Option<String> {
    fs::read(path)
        .ok()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_as_the_box_sees_it() {
        let status = "Name:\tsleep\nState:\tS (sleeping)\nPPid:\t70\nUid:\t33\t33\t33\t33\n\
                      VmRSS:\t    1024 kB\nThreads:\t2\nNSpid:\t71\t5\n";
        let process = parse(71, status).unwrap();
        assert_eq!((process.pid, process.uid, process.state), (5, 33, 'S'));
        assert_eq!((process.resident_bytes, process.threads), (1 << 20, 2));
        assert_eq!(parse(71, "Name:\tx\n"), None);
        assert_eq!(parse(71, ""), None);
    }

    #[test]
    fn the_own_process_is_there_and_a_missing_one_is_not() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(read(own).unwrap().resident_bytes > 0);
        assert_eq!(read(i32::MAX), None);
    }
}
