//! Files that are stored with their holes left out: which parts of them an archive holds.
//!
//! GNU tar has had four ways to say it: in the header and blocks behind it (`old`), and as extended
//! headers 0.0 (a record for each number), 0.1 (one list) and 1.0 (a list before the content).

use super::reader::Extensions;

/// Parts listed for one file at most: bounds the memory that an archive can ask for.
const PARTS_MAX: usize = 1 << 20;

/// The parts of a file that are in the archive, one behind the other.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sparse {
    /// Offset and length of each, in order.
    pub(super) parts: Vec<(u64, u64)>,
    /// Bytes of the file, holes included.
    pub(super) size: u64,
}

/// How a member says what it holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// It holds all.
    Whole,
    /// The header says it, and blocks that follow it.
    InHeader,
    /// The extended header says it.
    Listed(Sparse),
    /// The content begins with it.
    InContent {
        /// Bytes of the file, holes included.
        size: u64,
    },
}

impl Sparse {
    /// Notes a part. An error says what is wrong with it.
    pub(super) fn push(&mut self, offset: u64, length: u64) -> Result<(), &'static str> {
        if self.parts.len() >= PARTS_MAX {
            return Err("a file of more than a million parts");
        }
        self.parts.push((offset, length));
        Ok(())
    }

    /// Makes sure that the parts lie in the file, in order, and are `stored` bytes together.
    pub(super) fn check(&self, stored: u64) -> Result<(), &'static str> {
        if i64::try_from(self.size).is_err() {
            return Err("a size beyond all bounds");
        }
        let (mut end, mut sum) = (0u64, 0u64);
        for (offset, length) in &self.parts {
            let next = offset.checked_add(*length);
            match next {
                Some(next) if *offset >= end && next <= self.size => end = next,
                _ => return Err("parts of a sparse file that overlap or lie behind its end"),
            }
            sum += length;
        }
        if sum == stored {
            Ok(())
        } else {
            Err("parts of a sparse file that are not what the archive holds of it")
        }
    }
}

/// Returns how a member of the old kind, or not, says what it holds.
pub(super) fn form(old: bool, extensions: &Extensions) -> Result<Form, &'static str> {
    let value = |key: &[u8]| {
        let found = extensions.iter().rev().find(|(found, _)| found == key);
        found.map(|(_, value)| value.as_slice())
    };
    let size = |key: &[u8]| match value(key) {
        Some(text) => number(text).ok_or("a size of a sparse file that is no number"),
        None => Err("a sparse file without its size"),
    };
    if old {
        return Ok(Form::InHeader);
    }
    if let Some(major) = value(b"GNU.sparse.major") {
        if major != b"1" || value(b"GNU.sparse.minor") != Some(b"0") {
            return Err("a kind of sparse file that is not known");
        }
        return Ok(Form::InContent {
            size: size(b"GNU.sparse.realsize")?,
        });
    }
    let bad = "a list of parts of a sparse file that is malformed";
    let mut numbers = Vec::new();
    if let Some(list) = value(b"GNU.sparse.map") {
        if list.len() > PARTS_MAX * 8 {
            return Err(bad);
        }
        let texts = list
            .split(|byte| *byte == b',')
            .filter(|text| !text.is_empty());
        for text in texts {
            numbers.push(number(text).ok_or(bad)?);
        }
    } else {
        let keys: [&[u8]; 2] = [b"GNU.sparse.offset", b"GNU.sparse.numbytes"];
        for (key, text) in extensions {
            if let Some(which) = keys.iter().position(|wanted| wanted == key) {
                if numbers.len() % 2 != which {
                    return Err(bad);
                }
                numbers.push(number(text).ok_or(bad)?);
            }
        }
        if numbers.is_empty() && value(b"GNU.sparse.size").is_none() {
            return Ok(Form::Whole);
        }
    }
    let (pairs, rest) = numbers.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(bad);
    }
    let mut sparse = Sparse {
        parts: Vec::new(),
        size: size(b"GNU.sparse.size")?,
    };
    for [offset, length] in pairs {
        sparse.push(*offset, *length)?;
    }
    Ok(Form::Listed(sparse))
}

/// Reads a decimal number.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(list: &[(&str, &str)]) -> Extensions {
        let pairs = list.iter();
        pairs
            .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn each_way_to_say_it_is_understood() {
        let parts = Form::Listed(Sparse {
            parts: vec![(0, 5), (4096, 7)],
            size: 9000,
        });
        let one = records(&[
            ("GNU.sparse.size", "9000"),
            ("GNU.sparse.map", "0,5,4096,7"),
        ]);
        assert_eq!(form(false, &one).unwrap(), parts);
        let nil = records(&[
            ("GNU.sparse.size", "9000"),
            ("GNU.sparse.offset", "0"),
            ("GNU.sparse.numbytes", "5"),
            ("GNU.sparse.offset", "4096"),
            ("GNU.sparse.numbytes", "7"),
        ]);
        assert_eq!(form(false, &nil).unwrap(), parts);
        let new = records(&[
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.minor", "0"),
            ("GNU.sparse.realsize", "9000"),
        ]);
        assert_eq!(form(false, &new).unwrap(), Form::InContent { size: 9000 });
        assert_eq!(
            form(false, &records(&[("path", "x")])).unwrap(),
            Form::Whole
        );
        assert_eq!(form(true, &Extensions::new()).unwrap(), Form::InHeader);
        for bad in [
            &[("GNU.sparse.size", "9000"), ("GNU.sparse.map", "0,5,4096")][..],
            &[("GNU.sparse.size", "-1"), ("GNU.sparse.map", "0,5")],
            &[("GNU.sparse.map", "0,5")],
            &[("GNU.sparse.size", "9"), ("GNU.sparse.numbytes", "5")],
            &[("GNU.sparse.major", "2"), ("GNU.sparse.minor", "0")],
        ] {
            assert!(form(false, &records(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn parts_must_lie_in_the_file_in_order() {
        let sparse = |parts: &[(u64, u64)], size| Sparse {
            parts: parts.to_vec(),
            size,
        };
        assert!(sparse(&[(0, 5), (5, 5)], 10).check(10).is_ok());
        assert!(sparse(&[], 1 << 60).check(0).is_ok());
        for (parts, size, stored) in [
            (&[(0, 5), (4, 5)][..], 100, 10),
            (&[(50, 5), (4, 5)], 100, 10),
            (&[(96, 5)], 100, 5),
            (&[(u64::MAX, 5)], 100, 5),
            (&[(0, 5)], 100, 6),
            (&[], u64::MAX, 0),
        ] {
            assert!(sparse(parts, size).check(stored).is_err(), "{parts:?}");
        }
    }
}
