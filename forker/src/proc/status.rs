//! `/proc/PID/status`.

use std::collections::BTreeMap;

use super::{Malformed, Parsed, decimal, hex, lines, octal, split_once, words};

/// What `status` says of a process or thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// File mode mask; zombies have none.
    pub umask: Option<u32>,
    /// State letter.
    pub state: u8,
    /// Process.
    pub tgid: i32,
    /// Thread.
    pub pid: i32,
    /// Parent.
    pub ppid: i32,
    /// Tracer, 0 without one.
    pub tracer: i32,
    /// Real, effective, saved and filesystem user.
    pub uids: [u32; 4],
    /// Real, effective, saved and filesystem group.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Thread id in each pid namespace from the reader's down to the innermost.
    pub nspid: Vec<i32>,
    /// Process id likewise.
    pub nstgid: Vec<i32>,
    /// Process group likewise.
    pub nspgid: Vec<i32>,
    /// Session likewise.
    pub nssid: Vec<i32>,
    /// Number of threads.
    pub threads: u32,
    /// Signals pending for the thread, and for the process.
    pub pending: (u64, u64),
    /// Signals blocked, ignored, caught.
    pub blocked_ignored_caught: (u64, u64, u64),
    /// Capabilities: inheritable, permitted, effective, bounding, ambient.
    pub capabilities: [u64; 5],
    /// Whether privileges can no longer be gained.
    pub no_new_privs: bool,
    /// Seccomp mode: 0 none, 1 strict, 2 filters.
    pub seccomp: u32,
    /// How many filters.
    pub seccomp_filters: u32,
    /// Whether huge pages are allowed.
    pub thp_enabled: bool,
    /// Resident memory in KiB, `None` for zombies.
    pub rss_kib: Option<u64>,
}

/// Parses the whole file. The name is left out: `stat` has it without escapes.
///
/// # Errors
/// If a field that every kernel has is missing, or any known one is malformed.
pub fn parse(text: &[u8]) -> Parsed<Status> {
    let fields: BTreeMap<&[u8], &[u8]> = lines(text)
        .filter_map(|line| split_once(line, b':'))
        .map(|(key, value)| (key, value.trim_ascii()))
        .collect();
    let optional = |key: &'static str| fields.get(key.as_bytes()).copied();
    let field = |key: &'static str| optional(key).ok_or_else(|| Malformed::new(key, text));
    let number = |key: &'static str| decimal::<i32>(key, field(key)?);
    let mask = |key: &'static str| hex(key, field(key)?);
    let pids = |key: &'static str| -> Parsed<Vec<i32>> {
        words(field(key)?).map(|word| decimal(key, word)).collect()
    };
    let small = |key: &'static str| optional(key).map_or(Ok(0), |value| decimal::<u32>(key, value));
    Ok(Status {
        umask: optional("Umask")
            .map(|value| octal("Umask", value))
            .transpose()?,
        state: *field("State")?
            .first()
            .ok_or_else(|| Malformed::new("State", text))?,
        tgid: number("Tgid")?,
        pid: number("Pid")?,
        ppid: number("PPid")?,
        tracer: number("TracerPid")?,
        uids: four("Uid", field("Uid")?)?,
        gids: four("Gid", field("Gid")?)?,
        groups: words(field("Groups")?)
            .map(|word| decimal("Groups", word))
            .collect::<Parsed<_>>()?,
        nspid: pids("NSpid")?,
        nstgid: pids("NStgid")?,
        nspgid: pids("NSpgid")?,
        nssid: pids("NSsid")?,
        threads: decimal("Threads", field("Threads")?)?,
        pending: (mask("SigPnd")?, mask("ShdPnd")?),
        blocked_ignored_caught: (mask("SigBlk")?, mask("SigIgn")?, mask("SigCgt")?),
        capabilities: [
            mask("CapInh")?,
            mask("CapPrm")?,
            mask("CapEff")?,
            mask("CapBnd")?,
            mask("CapAmb")?,
        ],
        no_new_privs: small("NoNewPrivs")? != 0,
        seccomp: small("Seccomp")?,
        seccomp_filters: small("Seccomp_filters")?,
        thp_enabled: small("THP_enabled")? != 0,
        rss_kib: optional("VmRSS")
            .map(|value| decimal("VmRSS", words(value).next().unwrap_or_default()))
            .transpose()?,
    })
}

fn four(what: &'static str, value: &[u8]) -> Parsed<[u32; 4]> {
    let ids: Vec<u32> = words(value)
        .map(|word| decimal(what, word))
        .collect::<Parsed<_>>()?;
    ids.try_into().map_err(|_| Malformed::new(what, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process() {
        let text = std::fs::read("/proc/self/status").unwrap();
        let status = parse(&text).unwrap();
        assert_eq!(u32::try_from(status.tgid).unwrap(), std::process::id());
        assert_eq!(status.nstgid.first(), Some(&status.tgid));
        assert!(status.umask.is_some() && status.rss_kib.is_some() && status.threads >= 1);
    }

    #[test]
    fn a_zombie_has_no_memory() {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let zombie: String = text
            .lines()
            .filter(|line| !line.starts_with("Vm") && !line.starts_with("Umask"))
            .map(|line| format!("{line}\n"))
            .collect();
        let status = parse(zombie.as_bytes()).unwrap();
        assert_eq!((status.umask, status.rss_kib), (None, None));
    }

    #[test]
    fn a_missing_field_is_named() {
        let error = parse(b"Name:\tx\nState:\tR\n").unwrap_err();
        assert!(error.to_string().contains("Tgid"), "{error}");
    }
}
