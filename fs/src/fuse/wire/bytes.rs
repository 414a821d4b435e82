//! Reading numbers and names out of bytes that may end anywhere.

use std::fmt;

/// A request that is shorter than its kind says, or a name without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request is shorter than its kind says")
    }
}

/// What is left of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// Takes `count` bytes.
    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, left) = self.left.split_at_checked(count).ok_or(Malformed)?;
        self.left = left;
        Ok(taken)
    }

    /// Passes over `count` bytes.
    pub(super) fn skip(&mut self, count: usize) -> Result<(), Malformed> {
        self.bytes(count).map(drop)
    }

    /// Takes a number of 32 bits.
    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        let (taken, left) = self.left.split_first_chunk().ok_or(Malformed)?;
        self.left = left;
        Ok(u32::from_ne_bytes(*taken))
    }

    /// Takes a number of 64 bits.
    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        let (taken, left) = self.left.split_first_chunk().ok_or(Malformed)?;
        self.left = left;
        Ok(u64::from_ne_bytes(*taken))
    }

    /// Takes a name up to its NUL, and the NUL.
    pub(super) fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.left.iter().position(|&byte| byte == 0);
        let (name, left) = self.left.split_at(end.ok_or(Malformed)?);
        self.left = &left[1..];
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_taken_beyond_the_end() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u32(), Err(Malformed));
        assert_eq!(reader.u64(), Err(Malformed));
        assert_eq!(reader.name(), Err(Malformed));
        assert_eq!(reader.bytes(4), Err(Malformed));
        assert_eq!(reader.bytes(3), Ok(&[1, 2, 3][..]));
        assert_eq!(reader.bytes(0), Ok(&[][..]));
    }

    #[test]
    fn names_end_at_their_nul() {
        let mut reader = Reader::new(b"one\0two\0rest");
        assert_eq!(reader.name(), Ok(&b"one"[..]));
        assert_eq!(reader.name(), Ok(&b"two"[..]));
        assert_eq!(reader.name(), Err(Malformed));
    }
}
