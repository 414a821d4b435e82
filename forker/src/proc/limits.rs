//! `/proc/PID/limits`: the only way to the limits of another user's process without
//! `CAP_SYS_RESOURCE`.

use super::{Malformed, Parsed, ascii, lines, words};

/// One resource limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// `RLIMIT_*`.
    pub resource: u32,
    /// Soft limit, `RLIM_INFINITY` for none.
    pub soft: u64,
    /// Hard limit likewise.
    pub hard: u64,
}

const NAMES: [(&str, libc::__rlimit_resource_t); 16] = [
    ("Max cpu time", libc::RLIMIT_CPU),
    ("Max file size", libc::RLIMIT_FSIZE),
    ("Max data size", libc::RLIMIT_DATA),
    ("Max stack size", libc::RLIMIT_STACK),
    ("Max core file size", libc::RLIMIT_CORE),
    ("Max resident set", libc::RLIMIT_RSS),
    ("Max processes", libc::RLIMIT_NPROC),
    ("Max open files", libc::RLIMIT_NOFILE),
    ("Max locked memory", libc::RLIMIT_MEMLOCK),
    ("Max address space", libc::RLIMIT_AS),
    ("Max file locks", libc::RLIMIT_LOCKS),
    ("Max pending signals", libc::RLIMIT_SIGPENDING),
    ("Max msgqueue size", libc::RLIMIT_MSGQUEUE),
    ("Max nice priority", libc::RLIMIT_NICE),
    ("Max realtime priority", libc::RLIMIT_RTPRIO),
    ("Max realtime timeout", libc::RLIMIT_RTTIME),
];

/// Parses the whole file; all sixteen limits, in its order.
///
/// # Errors
/// If one of them is missing or malformed.
pub fn parse(text: &[u8]) -> Parsed<Vec<Limit>> {
    NAMES
        .iter()
        .map(|&(name, resource)| {
            let line = lines(text)
                .find_map(|line| line.strip_prefix(name.as_bytes()))
                .ok_or_else(|| Malformed::new(name, text))?;
            let mut values = words(line);
            let mut next = || values.next().and_then(value);
            match (next(), next()) {
                (Some(soft), Some(hard)) => Ok(Limit {
                    resource,
                    soft,
                    hard,
                }),
                _ => Err(Malformed::new(name, line)),
            }
        })
        .collect()
}

fn value(word: &[u8]) -> Option<u64> {
    match word {
        b"unlimited" => Some(libc::RLIM_INFINITY),
        _ => ascii(word)?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_limits() {
        let text = std::fs::read("/proc/self/limits").unwrap();
        let limits = parse(&text).unwrap();
        assert_eq!(limits.len(), 16);
        for limit in limits {
            let resource = nix::sys::resource::Resource::RLIMIT_NOFILE;
            if limit.resource == libc::RLIMIT_NOFILE {
                let real = nix::sys::resource::getrlimit(resource).unwrap();
                assert_eq!((limit.soft, limit.hard), real);
            }
        }
    }
}
