//! A file of `/proc/PID/fdinfo`.

use super::locks::{self, Lock};
use super::{Malformed, Parsed, decimal, hex, lines, octal, split_once, words};

/// What `fdinfo` says of one descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FdInfo {
    /// Position in bytes.
    pub position: i64,
    /// `O_*` of the description, and `O_CLOEXEC` of the descriptor.
    pub flags: i32,
    /// Mount that the file was opened through.
    pub mount: u64,
    /// Inode number.
    pub ino: u64,
    /// Locks that are held through it.
    pub locks: Vec<Lock>,
    /// What its kind adds.
    pub detail: Detail,
}

/// What each kind of descriptor adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Nothing that is known here.
    #[default]
    None,
    /// An eventfd.
    Event {
        /// Its counter.
        count: u64,
        /// Whether it counts down by one.
        semaphore: bool,
    },
    /// A signalfd with its mask, bit 0 for signal 1.
    Signal(u64),
    /// A timerfd.
    Timer(Timer),
    /// An epoll set.
    Epoll(Vec<EpollEntry>),
    /// An inotify instance.
    Inotify(Vec<Watch>),
    /// A pidfd: the pid as the reader sees it, -1 for a process that is gone.
    Pid(i32),
    /// The other end of a pty: index of the terminal.
    Terminal(u32),
}

/// State of a timerfd; times are seconds and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timer {
    /// `CLOCK_*`.
    pub clock: i32,
    /// Expirations that nobody has read.
    pub ticks: u64,
    /// Flags of the last `timerfd_settime`.
    pub set_flags: i32,
    /// Time until it expires, both zero if it is not armed.
    pub value: (i64, i64),
    /// Time between two expirations.
    pub interval: (i64, i64),
}

/// One member of an epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EpollEntry {
    /// Number under which it was added.
    pub fd: i32,
    /// What is waited for.
    pub events: u32,
    /// What the caller gets back.
    pub data: u64,
    /// Inode number of the file.
    pub ino: u64,
}

/// One watch of an inotify instance.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Watch {
    /// Watch descriptor.
    pub wd: i32,
    /// Inode number.
    pub ino: u64,
    /// Device of the file, as the kernel keeps it (`major << 20 | minor`).
    pub device: u64,
    /// What is watched for.
    pub mask: u32,
    /// File handle: type and bytes, empty if the filesystem has none.
    pub handle: (i32, Vec<u8>),
}

/// Parses the whole file. Lines of unknown kinds are passed over: newer kernels add some.
///
/// # Errors
/// If a known line is malformed.
pub fn parse(text: &[u8]) -> Parsed<FdInfo> {
    let mut info = FdInfo::default();
    let mut seen = (false, false);
    let mut event: Option<(u64, bool)> = None;
    let mut timer: Option<Timer> = None;
    for line in lines(text) {
        if line.starts_with(b"inotify wd:") {
            let watch = watch(line)?;
            match &mut info.detail {
                Detail::Inotify(watches) => watches.push(watch),
                other => *other = Detail::Inotify(vec![watch]),
            }
            continue;
        }
        let Some((key, value)) = split_once(line, b':') else {
            continue;
        };
        let value = value.trim_ascii();
        match key {
            b"pos" => (info.position, seen.0) = (decimal("pos", value)?, true),
            b"flags" => (info.flags, seen.1) = (octal("flags", value)?.cast_signed(), true),
            b"mnt_id" => info.mount = decimal("mnt_id", value)?,
            b"ino" => info.ino = decimal("ino", value)?,
            b"lock" => info.locks.extend(locks::parse_line(value)?),
            b"eventfd-count" => event.get_or_insert_default().0 = hex("eventfd-count", value)?,
            b"eventfd-semaphore" => event.get_or_insert_default().1 = value != b"0",
            b"sigmask" => info.detail = Detail::Signal(hex("sigmask", value)?),
            b"tfd" => {
                let entry = epoll_entry(line)?;
                match &mut info.detail {
                    Detail::Epoll(entries) => entries.push(entry),
                    other => *other = Detail::Epoll(vec![entry]),
                }
            }
            b"clockid" => timer.get_or_insert_default().clock = decimal("clockid", value)?,
            b"ticks" => timer.get_or_insert_default().ticks = decimal("ticks", value)?,
            b"settime flags" => {
                timer.get_or_insert_default().set_flags =
                    octal("settime flags", value)?.cast_signed();
            }
            b"it_value" => timer.get_or_insert_default().value = time(value)?,
            b"it_interval" => timer.get_or_insert_default().interval = time(value)?,
            b"Pid" => info.detail = Detail::Pid(decimal("Pid", value)?),
            b"tty-index" => info.detail = Detail::Terminal(decimal("tty-index", value)?),
            _ => {}
        }
    }
    if let Some((count, semaphore)) = event {
        info.detail = Detail::Event { count, semaphore };
    }
    if let Some(timer) = timer {
        info.detail = Detail::Timer(timer);
    }
    if seen == (true, true) {
        Ok(info)
    } else {
        Err(Malformed::new("fdinfo", text))
    }
}

/// `(seconds, nanoseconds)`.
fn time(value: &[u8]) -> Parsed<(i64, i64)> {
    let bad = || Malformed::new("time", value);
    let inner = value
        .strip_prefix(b"(")
        .and_then(|rest| rest.strip_suffix(b")"))
        .ok_or_else(bad)?;
    let (seconds, nanoseconds) = split_once(inner, b',').ok_or_else(bad)?;
    Ok((decimal("time", seconds)?, decimal("time", nanoseconds)?))
}

/// The value behind `key` in `key:value key:value`, where blanks may follow the colon.
fn after<'a>(line: &'a [u8], key: &'static str) -> Parsed<&'a [u8]> {
    let bad = || Malformed::new(key, line);
    let at = line
        .windows(key.len())
        .position(|part| part == key.as_bytes())
        .ok_or_else(bad)?;
    let rest = line.get(at + key.len()..).ok_or_else(bad)?;
    words(rest).next().ok_or_else(bad)
}

fn epoll_entry(line: &[u8]) -> Parsed<EpollEntry> {
    let events = hex("events", after(line, "events:")?)?;
    Ok(EpollEntry {
        fd: decimal("tfd", after(line, "tfd:")?)?,
        events: u32::try_from(events).map_err(|_| Malformed::new("events", line))?,
        data: hex("data", after(line, "data:")?)?,
        ino: hex("ino", after(line, "ino:")?)?,
    })
}

fn watch(line: &[u8]) -> Parsed<Watch> {
    let bad = || Malformed::new("inotify", line);
    let number = |key| hex("inotify", after(line, key)?);
    let handle = match after(line, "f_handle:") {
        Ok(digits) => {
            let kind = i32::try_from(number("fhandle-type:")?).map_err(|_| bad())?;
            (kind, bytes(digits).ok_or_else(bad)?)
        }
        Err(_) => (0, Vec::new()),
    };
    Ok(Watch {
        // The number is printed in hexadecimal since 3.8, whatever its name suggests.
        wd: i32::try_from(number("wd:")?).map_err(|_| bad())?,
        ino: number("ino:")?,
        device: number("sdev:")?,
        mask: u32::try_from(number(" mask:")?).map_err(|_| bad())?,
        handle,
    })
}

fn bytes(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(super::ascii(pair)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_file_with_locks() {
        let text = b"pos:\t42\nflags:\t02102001\nmnt_id:\t24\nino:\t7\n\
            lock:\t1: FLOCK  ADVISORY  WRITE 359 00:13:7 0 EOF\n\
            lock:\t2: POSIX  ADVISORY  READ 359 00:13:7 10 19\nnew-thing:\t5\n";
        let info = parse(text).unwrap();
        assert_eq!((info.position, info.mount, info.ino), (42, 24, 7));
        assert_eq!(info.flags & libc::O_CLOEXEC, libc::O_CLOEXEC);
        assert_eq!((info.locks.len(), info.locks[1].end), (2, Some(19)));
        assert_eq!(info.detail, Detail::None);
    }

    fn with(extra: &str) -> Detail {
        let text = format!("pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t1057\n{extra}");
        parse(text.as_bytes()).unwrap().detail
    }

    #[test]
    fn each_kind() {
        let event = with("eventfd-count:                5a\neventfd-id: 3\neventfd-semaphore: 1\n");
        assert_eq!(
            event,
            Detail::Event {
                count: 0x5a,
                semaphore: true
            }
        );
        assert_eq!(with("sigmask:\t0000000000000200\n"), Detail::Signal(0x200));
        let timer = with(
            "clockid: 1\nticks: 3\nsettime flags: 01\nit_value: (1, 500)\nit_interval: (2, 0)\n",
        );
        assert_eq!(
            timer,
            Detail::Timer(Timer {
                clock: 1,
                ticks: 3,
                set_flags: 1,
                value: (1, 500),
                interval: (2, 0)
            })
        );
        let epoll = with(
            "tfd:        5 events:       1d data: ffffffffffffffff  pos:0 ino:61af sdev:7\n\
             tfd:        6 events: 80000001 data:                5  pos:0 ino:1 sdev:7\n",
        );
        let Detail::Epoll(entries) = epoll else {
            panic!("{epoll:?}")
        };
        assert_eq!(
            entries[0],
            EpollEntry {
                fd: 5,
                events: 0x1d,
                data: u64::MAX,
                ino: 0x61af
            }
        );
        assert_eq!(entries[1].events, 0x8000_0001);
        let inotify = with(
            "inotify wd:a ino:9e7e sdev:800013 mask:800afce ignored_mask:0 fhandle-bytes:8 \
             fhandle-type:1 f_handle:7e9e0000640d1b6d\n",
        );
        let Detail::Inotify(watches) = inotify else {
            panic!("{inotify:?}")
        };
        assert_eq!((watches[0].wd, watches[0].mask), (10, 0x0800_afce));
        assert_eq!(watches[0].handle.1.len(), 8);
        assert_eq!(with("Pid:\t-1\nNSpid:\t-1\n"), Detail::Pid(-1));
        assert_eq!(with("tty-index:\t3\n"), Detail::Terminal(3));
    }

    #[test]
    fn the_kernel_agrees() {
        use nix::sys::eventfd::{EfdFlags, EventFd};
        use std::os::fd::AsRawFd;
        let event = EventFd::from_value_and_flags(17, EfdFlags::EFD_SEMAPHORE).unwrap();
        let path = format!("/proc/self/fdinfo/{}", event.as_raw_fd());
        let info = parse(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(
            info.detail,
            Detail::Event {
                count: 17,
                semaphore: true
            }
        );
    }
}
