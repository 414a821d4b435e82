//! Paths in JSON, which knows only Unicode while Linux knows any bytes.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::base64;

/// A path between client and daemon: a string, or `{"base64": …}` if it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WirePath(pub(crate) PathBuf);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes { base64: String },
}

impl Serialize for WirePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match self.0.to_str() {
            Some(text) => Form::Text(text.to_owned()),
            None => Form::Bytes {
                base64: base64::encode(self.0.as_os_str().as_bytes()),
            },
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for WirePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = match Form::deserialize(deserializer)? {
            Form::Text(text) => text.into_bytes(),
            Form::Bytes { base64 } => base64::decode(&base64)
                .ok_or_else(|| D::Error::custom("a path is not valid base64"))?,
        };
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(D::Error::custom("a path is empty or holds a NUL"));
        }
        Ok(Self(PathBuf::from(OsString::from_vec(bytes))))
    }
}

impl From<&Path> for WirePath {
    fn from(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

/// Any bytes between client and daemon: a string, or `{"base64": …}` if they are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WireBytes(pub(crate) Vec<u8>);

impl Serialize for WireBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match std::str::from_utf8(&self.0) {
            Ok(text) => Form::Text(text.to_owned()),
            Err(_) => Form::Bytes {
                base64: base64::encode(&self.0),
            },
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for WireBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Text(text) => Ok(Self(text.into_bytes())),
            Form::Bytes { base64 } => base64::decode(&base64)
                .map(Self)
                .ok_or_else(|| D::Error::custom("bytes are not valid base64")),
        }
    }
}

/// A path in a result: always readable, and exact when it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownPath {
    /// The path, with the replacement character where it is not UTF-8.
    pub(crate) text: String,
    /// The exact bytes in base64, only if `text` is not the whole truth.
    pub(crate) base64: Option<String>,
}

impl ShownPath {
    /// Returns both forms of `bytes`.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self {
                text: text.to_owned(),
                base64: None,
            },
            Err(_) => Self {
                text: String::from_utf8_lossy(bytes).into_owned(),
                base64: Some(base64::encode(bytes)),
            },
        }
    }

    /// Returns both forms of `path`.
    pub(crate) fn of(path: &Path) -> Self {
        Self::new(path.as_os_str().as_bytes())
    }
}

/// Returns `text` or, if given, what `base64` stands for, in a form that a terminal shows as one
/// line: control characters and bytes that are not UTF-8 are escaped, the rest stays.
pub(crate) fn printable(text: &str, base64: Option<&str>) -> String {
    let bytes = base64
        .and_then(base64::decode)
        .unwrap_or_else(|| text.as_bytes().to_vec());
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() || letter == '\\' {
                shown.extend(letter.escape_default());
            } else {
                shown.push(letter);
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

/// Returns `path` as [`printable`] shows it.
pub(crate) fn printable_path(path: &Path) -> String {
    let shown = ShownPath::of(path);
    printable(&shown.text, shown.base64.as_deref())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn paths_come_back_exactly() {
        for bytes in [&b"/a/b"[..], b"/a\nb", b"/\xff\xfe", "/ü".as_bytes()] {
            let path = WirePath(PathBuf::from(OsStr::from_bytes(bytes)));
            let line = serde_json::to_string(&path).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<WirePath>(&line).unwrap(), path);
        }
    }

    #[test]
    fn hostile_paths_are_refused() {
        for line in [
            r#""""#,
            r#""a\u0000b""#,
            r#"{"base64":"!!"}"#,
            r#"{"base64":""}"#,
            "7",
            "[]",
        ] {
            assert!(serde_json::from_str::<WirePath>(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_terminal_sees_one_harmless_line() {
        assert_eq!(printable("a\nb\u{1b}[2J", None), "a\\nb\\u{1b}[2J");
        let odd = ShownPath::new(b"a\xffb");
        assert_eq!(printable(&odd.text, odd.base64.as_deref()), "a\\xffb");
        assert_eq!(printable("grün", None), "grün");
    }
}
