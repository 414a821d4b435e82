//! A line of `/proc/locks`, and of the `lock:` lines in `fdinfo`.

use super::{Malformed, Parsed, decimal, hex, split_once, words};

/// What sort of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// `flock`: belongs to the open file description.
    Flock,
    /// `fcntl(F_SETLK)`: belongs to the process.
    Posix,
    /// `fcntl(F_OFD_SETLK)`: belongs to the open file description.
    Ofd,
    /// `fcntl(F_SETLEASE)` or a delegation.
    Lease,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Lock {
    /// What sort.
    pub kind: Kind,
    /// Exclusive (`WRITE`) or shared.
    pub exclusive: bool,
    /// Owner in the reader's pid namespace; -1 for a lock of a description.
    pub pid: i32,
    /// Inode number of the file.
    pub ino: u64,
    /// First byte.
    pub start: u64,
    /// Last byte, `None` for the end of the file whatever its size.
    pub end: Option<u64>,
}

/// Parses one line without its line feed. `None` for a lock that is only waited for (`->`).
///
/// # Errors
/// If a field is missing or malformed, or the sort of lock is unknown.
pub fn parse_line(line: &[u8]) -> Parsed<Option<Lock>> {
    let bad = || Malformed::new("lock", line);
    let mut fields = words(line);
    let mut next = || fields.next().ok_or_else(bad);
    let _number = next()?;
    let mut kind = next()?;
    let waiting = kind == b"->";
    if waiting {
        kind = next()?;
    }
    let kind = match kind {
        b"FLOCK" => Kind::Flock,
        b"POSIX" | b"ACCESS" => Kind::Posix,
        b"OFDLCK" => Kind::Ofd,
        b"LEASE" | b"DELEG" => Kind::Lease,
        _ => return Err(bad()),
    };
    let _mode = next()?;
    let exclusive = next()? == b"WRITE";
    let pid = decimal("lock", next()?)?;
    let place = next()?;
    let (_major, rest) = split_once(place, b':').ok_or_else(bad)?;
    let (minor, ino) = split_once(rest, b':').ok_or_else(bad)?;
    hex("lock", minor)?;
    let start = decimal("lock", next()?)?;
    let end = match next()? {
        b"EOF" => None,
        word => Some(decimal("lock", word)?),
    };
    Ok((!waiting).then_some(Lock {
        kind,
        exclusive,
        pid,
        ino: decimal("lock", ino)?,
        start,
        end,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sort() {
        let lock = |text: &str| parse_line(text.as_bytes()).unwrap();
        let flock = lock("1: FLOCK  ADVISORY  READ 4599 fe:00:10133507 0 EOF").unwrap();
        assert_eq!((flock.kind, flock.exclusive), (Kind::Flock, false));
        assert_eq!((flock.pid, flock.ino, flock.end), (4599, 10_133_507, None));
        let posix = lock("2: POSIX  ADVISORY  WRITE 12 00:2a:7 100 199").unwrap();
        assert_eq!((posix.start, posix.end), (100, Some(199)));
        assert_eq!(
            lock("3: OFDLCK ADVISORY  WRITE -1 00:2a:7 0 EOF")
                .unwrap()
                .kind,
            Kind::Ofd
        );
        assert_eq!(
            lock("4: LEASE  ACTIVE    WRITE 1 00:2a:7 0 EOF")
                .unwrap()
                .kind,
            Kind::Lease
        );
        assert_eq!(lock("1: -> FLOCK  ADVISORY  WRITE 1 00:2a:7 0 EOF"), None);
    }
}
