//! `/proc/PID/maps` and `smaps`.

use super::{Malformed, Parsed, decimal, device, hex, split_once, unescape};

/// One mapping. The path is shown as the kernel does: `[heap]`, `/dev/zero (deleted)`; a line feed in
/// a name is put back, so a name that really holds the four characters `\012` reads wrong, and
/// only the device and inode number say for sure which file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
    pub prot: i32,
    /// `MAP_SHARED` rather than private.
    pub shared: bool,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Device number of the file, 0 without one.
    pub device: u64,
    /// Its inode number, 0 without one.
    pub ino: u64,
    /// What the line ends with, empty for plain anonymous memory.
    pub path: Vec<u8>,
    /// `VmFlags` of `smaps`, two letters each; empty in `maps`.
    pub flags: Vec<[u8; 2]>,
    /// The sizes of `smaps` in KiB, in its order; empty in `maps`.
    pub sizes: Vec<(Vec<u8>, u64)>,
}

impl Map {
    /// Whether `smaps` shows this flag, for example `*b"dc"` (not inherited by a fork).
    pub fn has(&self, flag: [u8; 2]) -> bool {
        self.flags.contains(&flag)
    }

    /// The size under this name in `smaps`, in KiB.
    pub fn kib(&self, name: &str) -> Option<u64> {
        let found = self.sizes.iter().find(|(key, _)| key == name.as_bytes());
        found.map(|&(_, value)| value)
    }
}

/// Parses `maps` or `smaps`, whichever it is.
///
/// # Errors
/// If a line is malformed, mappings overlap or are not in order.
pub fn parse(text: &[u8]) -> Parsed<Vec<Map>> {
    let mut maps: Vec<Map> = Vec::new();
    for line in super::lines(text) {
        // Attributes begin with a capital letter, mappings with a hexadecimal digit in lower case.
        if line.first().is_some_and(u8::is_ascii_uppercase) {
            let map = maps.last_mut();
            attribute(map.ok_or_else(|| Malformed::new("smaps", line))?, line)?;
            continue;
        }
        let map = mapping(line)?;
        if maps.last().is_some_and(|last| last.end > map.start) {
            return Err(Malformed::new("order of maps", line));
        }
        maps.push(map);
    }
    Ok(maps)
}

fn mapping(line: &[u8]) -> Parsed<Map> {
    let bad = || Malformed::new("maps", line);
    let mut rest = line;
    let mut next = || -> Parsed<&[u8]> {
        let (word, tail) = split_once(rest, b' ').unwrap_or((rest, &[]));
        rest = tail;
        if word.is_empty() {
            Err(bad())
        } else {
            Ok(word)
        }
    };
    let (start, end) = split_once(next()?, b'-').ok_or_else(bad)?;
    let (start, end) = (hex("maps", start)?, hex("maps", end)?);
    let permissions: [u8; 4] = next()?.try_into().map_err(|_| bad())?;
    let offset = hex("maps", next()?)?;
    let device = device("maps", next()?, 16)?;
    let ino = decimal("maps", next()?)?;
    let path = rest.trim_ascii_start();
    if start >= end {
        return Err(bad());
    }
    let mut prot = 0;
    for (letter, bit) in [
        (permissions[0], libc::PROT_READ),
        (permissions[1], libc::PROT_WRITE),
        (permissions[2], libc::PROT_EXEC),
    ] {
        prot |= if letter == b'-' { 0 } else { bit };
    }
    Ok(Map {
        start,
        end,
        prot,
        shared: permissions[3] == b's',
        offset,
        device,
        ino,
        path: if path.windows(4).any(|part| part == b"\\012") {
            line_feeds(path)
        } else {
            path.to_vec()
        },
        flags: Vec::new(),
        sizes: Vec::new(),
    })
}

/// Only the line feed is escaped in `maps`: every other backslash is the name's own.
fn line_feeds(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"\\012") {
            out.extend(unescape(b"\\012"));
            rest = after;
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

fn attribute(map: &mut Map, line: &[u8]) -> Parsed<()> {
    let bad = || Malformed::new("smaps", line);
    let (key, value) = split_once(line, b':').ok_or_else(bad)?;
    if key == b"VmFlags" {
        map.flags = super::words(value)
            .map(|word| <[u8; 2]>::try_from(word).map_err(|_| bad()))
            .collect::<Parsed<_>>()?;
        return Ok(());
    }
    let number = super::words(value).next().ok_or_else(bad)?;
    map.sizes.push((key.to_vec(), decimal("smaps", number)?));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_maps_and_smaps() {
        let maps = parse(&std::fs::read("/proc/self/maps").unwrap()).unwrap();
        assert!(maps.iter().any(|map| map.path == b"[stack]"));
        let smaps = parse(&std::fs::read("/proc/self/smaps").unwrap()).unwrap();
        let stack = smaps.iter().find(|map| map.path == b"[stack]").unwrap();
        assert!(stack.has(*b"gd") && stack.kib("Rss").unwrap() > 0);
        assert_eq!(stack.kib("Size"), Some((stack.end - stack.start) / 1024));
    }

    #[test]
    fn odd_names() {
        let text =
            b"00400000-00452000 r-xp 00001000 fe:01 173521      /tmp/a b\\012c\\d (deleted)\n\
            7f0000000000-7f0000001000 rw-s 00000000 00:01 5    /dev/zero (deleted)\n\
            7f0000001000-7f0000002000 ---p 00000000 00:00 0 \n";
        let maps = parse(text).unwrap();
        assert_eq!(maps[0].path, b"/tmp/a b\nc\\d (deleted)");
        assert_eq!(maps[0].prot, libc::PROT_READ | libc::PROT_EXEC);
        assert_eq!(maps[0].device, libc::makedev(0xfe, 1));
        assert!(maps[1].shared && maps[2].path.is_empty() && maps[2].prot == 0);
    }

    #[test]
    fn disorder_is_an_error() {
        let text = b"2000-3000 r--p 0 00:00 0\n1000-2000 r--p 0 00:00 0\n";
        assert!(parse(text).is_err());
        assert!(parse(b"2000-1000 r--p 0 00:00 0\n").is_err());
        assert!(parse(b"Rss: 3 kB\n").is_err());
    }
}
