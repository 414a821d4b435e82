//! Parsers of `/proc`: bytes in, structs out. They read nothing themselves, so each is tested
//! with text alone, and they never panic: names in these files are chosen by the processes.
//!
//! | module | file |
//! |---|---|
//! | `stat`, `status`, `limits` | the files of these names in `/proc/PID` |
//! | `maps` | `maps` and `smaps` |
//! | `fdinfo` | one file of `/proc/PID/fdinfo`, with what each kind of descriptor adds |
//! | `locks` | a line of `/proc/locks`, as `fdinfo` repeats it |
//! | `mountinfo` | `/proc/PID/mountinfo` |

pub mod fdinfo;
pub mod limits;
pub mod locks;
pub mod maps;
pub mod mountinfo;
pub mod stat;
pub mod status;

#[cfg(test)]
mod fuzz;

use std::fmt::Display;
use std::str::FromStr;

/// A file of `/proc` that does not read as this version of the kernel's documentation says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {what} in /proc: {text:?}")]
pub struct Malformed {
    /// What was being read.
    pub what: &'static str,
    /// The text in question, shortened.
    pub text: String,
}

impl Malformed {
    pub(crate) fn new(what: &'static str, text: &[u8]) -> Self {
        let shown = text.get(..text.len().min(120)).unwrap_or_default();
        Self {
            what,
            text: String::from_utf8_lossy(shown).into_owned(),
        }
    }
}

/// Result of a parser.
pub type Parsed<T> = Result<T, Malformed>;

/// Lines without their line feeds; an empty last one is left out.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
}

/// Words between blanks.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
}

fn ascii(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word).ok()
}

/// A decimal number.
fn decimal<T: FromStr>(what: &'static str, word: &[u8]) -> Parsed<T>
where
    T::Err: Display,
{
    ascii(word)
        .and_then(|text| text.trim_ascii().parse().ok())
        .ok_or_else(|| Malformed::new(what, word))
}

/// A hexadecimal number without prefix.
fn hex(what: &'static str, word: &[u8]) -> Parsed<u64> {
    ascii(word)
        .and_then(|text| u64::from_str_radix(text.trim_ascii(), 16).ok())
        .ok_or_else(|| Malformed::new(what, word))
}

/// An octal number.
fn octal(what: &'static str, word: &[u8]) -> Parsed<u32> {
    ascii(word)
        .and_then(|text| u32::from_str_radix(text.trim_ascii(), 8).ok())
        .ok_or_else(|| Malformed::new(what, word))
}

/// Splits at the first `separator`; neither half holds it.
fn split_once(text: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == separator)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// `major:minor`, both in the given base, as one device number.
fn device(what: &'static str, word: &[u8], base: u32) -> Parsed<u64> {
    let bad = || Malformed::new(what, word);
    let (major, minor) = split_once(word, b':').ok_or_else(bad)?;
    let number = |half: &[u8]| ascii(half).and_then(|text| u32::from_str_radix(text, base).ok());
    let (major, minor) = (
        number(major).ok_or_else(bad)?,
        number(minor).ok_or_else(bad)?,
    );
    Ok(libc::makedev(major, minor))
}

/// Turns `\ooo` back into the byte that it stands for; anything else stays as it is.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        if let (b'\\', Some(digits)) = (first, tail.get(..3)) {
            let value = ascii(digits).and_then(|text| u8::from_str_radix(text, 8).ok());
            if let Some(byte) = value {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
                continue;
            }
        }
        out.push(first);
        rest = tail;
    }
    out
}
