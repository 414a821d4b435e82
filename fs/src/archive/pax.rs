//! Extended headers of pax archives.

use std::io::{self, Write};

use crate::attr::Timestamp;

/// The unit of an archive.
pub(super) const BLOCK: usize = 512;

/// Records of an extended header: lines `LENGTH KEY=VALUE`.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<u8>);

impl Records {
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        // The length counts its own digits.
        let rest = key.len() + value.len() + 3;
        let mut length = rest;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        self.0.extend_from_slice(length.to_string().as_bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    /// Writes the header, if there is anything in it.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut header = tar::Header::new_ustar();
        put(&mut header.as_old_mut().name, b"././@PaxHeader");
        header.set_entry_type(tar::EntryType::XHeader);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(self.0.len() as u64);
        header.set_cksum();
        out.write_all(header.as_bytes())?;
        out.write_all(&self.0)?;
        pad(out, self.0.len() as u64)
    }
}

/// Fills what is left of the last block after `length` bytes.
pub(super) fn pad(out: &mut impl Write, length: u64) -> io::Result<()> {
    let used = usize::try_from(length % BLOCK as u64).unwrap_or(0);
    if used == 0 {
        return Ok(());
    }
    out.write_all(&[0; BLOCK][used..])
}

/// Puts as much of `value` into a header's field as it holds. Returns whether that was all.
pub(super) fn put(field: &mut [u8], value: &[u8]) -> bool {
    let len = value.len().min(field.len());
    field[..len].copy_from_slice(&value[..len]);
    len == value.len()
}

/// Returns a time as extended headers write it.
pub(super) fn time(time: Timestamp) -> String {
    let Timestamp { secs, nanos } = time;
    match (secs, nanos) {
        (_, 0) => secs.to_string(),
        (0.., _) => format!("{secs}.{nanos:09}"),
        _ => format!("-{}.{:09}", -(secs + 1), 1_000_000_000 - nanos),
    }
}

/// Reads a time from an extended header.
pub(super) fn parse_time(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let secs: i64 = whole.parse().ok()?;
    let nine: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let nanos: u32 = nine.parse().ok()?;
    Some(match (negative, nanos) {
        (false, _) => Timestamp { secs, nanos },
        (true, 0) => Timestamp { secs: -secs, nanos },
        (true, _) => Timestamp {
            secs: -secs - 1,
            nanos: 1_000_000_000 - nanos,
        },
    })
}

/// Returns the records of an extended header; [`None`] if it is malformed. Only the lengths tell
/// where a record ends: its value may hold line feeds.
pub(super) fn parse(mut bytes: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let space = bytes.iter().position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
        let record = bytes.get(space + 1..length)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        bytes = &bytes[length..];
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_their_own_length() {
        for len in [0, 1, 90, 91, 92, 93, 94, 990, 991, 992, 993, 99_990] {
            let mut records = Records::default();
            let value = vec![b'\n'; len];
            records.push(b"key", &value);
            records.push(b"k", b"=v");
            let want = vec![(b"key".to_vec(), value), (b"k".to_vec(), b"=v".to_vec())];
            assert_eq!(parse(&records.0), Some(want));
        }
        for bad in ["9 a=b\n", "5 a=b", "2 a", "1\n", "0 ", "x a=b\n", "5 ab\n"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn times_before_the_epoch_round_trip() {
        for (secs, nanos, text) in [
            (0, 0, "0"),
            (1, 5, "1.000000005"),
            (-1, 0, "-1"),
            (-1, 500_000_000, "-0.500000000"),
            (-2, 500_000_000, "-1.500000000"),
        ] {
            let stamp = Timestamp { secs, nanos };
            assert_eq!(time(stamp), text);
            assert_eq!(parse_time(text.as_bytes()), Some(stamp));
        }
        assert_eq!(parse_time(b"1.5").unwrap().nanos, 500_000_000);
        for bad in ["x", "", ".5", "1.+5", "--1"] {
            assert_eq!(parse_time(bad.as_bytes()), None, "{bad}");
        }
    }
}
