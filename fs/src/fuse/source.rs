//! What stands in the first column of the mount table: `STORE:BRANCH`, so that whoever meets a mount
//! can find its store.
//!
//! The column is one word, and the helper that mounts for users separates options by commas. So
//! bytes that would be misread are written as `%XX`, the percent sign and the colon among them: the
//! first colon ends the store, and every path comes back exactly.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The kernel takes a page at most, its end included.
const BYTES_MAX: usize = 4095;

/// Returns the name under which `branch` of `store` stands in the mount table. Where that is too long
/// for the table, the end of the branch's name is left off, and of a store that does not fit even
/// alone there is nothing to be found.
pub(super) fn encode(store: &Path, branch: &str) -> String {
    let mut name = escape(store.as_os_str().as_bytes());
    name.push(':');
    if name.len() > BYTES_MAX {
        return ":".to_owned();
    }
    for letter in branch.chars() {
        let mut bytes = [0; 4];
        let escaped = escape(letter.encode_utf8(&mut bytes).as_bytes());
        if name.len() + escaped.len() > BYTES_MAX {
            break;
        }
        name.push_str(&escaped);
    }
    name
}

/// Returns the store of a mount that stands as `source` in the mount table (its own escapes undone),
/// if the name has room for it.
pub fn store_of_source(source: &[u8]) -> Option<PathBuf> {
    let end = source.iter().position(|byte| *byte == b':')?;
    let store = PathBuf::from(OsString::from_vec(unescape(source.get(..end)?)));
    store.is_absolute().then_some(store)
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            // `#` begins a comment for some readers of the table.
            let plain = !(letter.is_whitespace()
                || letter.is_control()
                || matches!(letter, '%' | ':' | ',' | '\\' | '"' | '#'));
            if plain {
                text.push(letter);
            } else {
                let mut bytes = [0; 4];
                for byte in letter.encode_utf8(&mut bytes).bytes() {
                    text.push_str(&format!("%{byte:02X}"));
                }
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after
            .get(..2)
            .filter(|digits| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(digits.unwrap_or(*first));
        rest = match digits {
            Some(_) => after.get(2..).unwrap_or_default(),
            None => after,
        };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn every_store_is_found_again() {
        for path in [
            &b"/plain/store"[..],
            b"/with space/and,comma",
            b"/new\nline\ttab",
            b"/back\\slash\"quote",
            b"/a:b/c:d",
            b"/100%/%41/%",
            b"/#",
            b"/not\xff\xfeutf8",
            "/grün\u{3000}weit".as_bytes(),
        ] {
            let path = Path::new(OsStr::from_bytes(path));
            let source = encode(path, "x,allow_other\n:y");
            assert!(
                !source.contains([' ', ',', '\n', '\t', '\\', '"', '#']),
                "{source}"
            );
            assert_eq!(store_of_source(source.as_bytes()).as_deref(), Some(path));
        }
        assert_eq!(encode(Path::new("/s"), "main"), "/s:main");
    }

    #[test]
    fn a_name_fits_the_table_whatever_it_names() {
        let branch = ",".repeat(255);
        let long = PathBuf::from(format!("/{}", "d".repeat(3900)));
        let source = encode(&long, &branch);
        assert!(source.len() <= BYTES_MAX);
        assert_eq!(store_of_source(source.as_bytes()), Some(long));
        let longer = PathBuf::from(format!("/{}", " ".repeat(3000)));
        assert_eq!(store_of_source(encode(&longer, "b").as_bytes()), None);
    }

    #[test]
    fn nonsense_has_no_store() {
        for nonsense in [&b""[..], b"none", b"relative:main", b":", b"%2"] {
            assert_eq!(store_of_source(nonsense), None);
        }
        assert_eq!(store_of_source(b"/a%zz%4:x"), Some("/a%zz%4".into()));
    }
}
