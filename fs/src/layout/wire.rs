//! Little-endian encoding of values, with bounds checked on the way back.

use crate::error::{Error, Result};
use crate::kv::Table;

/// Appends fields to a value.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Returns a writer of a value that starts with `version`.
    pub fn new(version: u8) -> Self {
        let mut bytes = Vec::with_capacity(160);
        bytes.push(version);
        Self { bytes }
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes.push(value);
        self
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends eight bytes.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.u64(value.cast_unsigned())
    }

    /// Appends a presence byte and, if present, the value.
    pub fn option_u64(&mut self, value: Option<u64>) -> &mut Self {
        match value {
            None => self.u8(0),
            Some(value) => self.u8(1).u64(value),
        }
    }

    /// Appends a length (four bytes) and the bytes.
    ///
    /// # Panics
    /// If there are 4 GiB of them, which no field of ours can be.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        let len = u32::try_from(value.len()).expect("fields are far shorter than 4 GiB");
        self.u32(len);
        self.bytes.extend_from_slice(value);
        self
    }

    /// Returns the value.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// Takes fields from a value.
#[derive(Debug)]
pub struct Reader<'a> {
    table: Table,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader of a value of `table` after its version byte, which must be `version`.
    ///
    /// # Errors
    /// [`Error::BadEntry`] if it is not.
    pub fn new(table: Table, value: &'a [u8], version: u8) -> Result<Self> {
        let mut reader = Self { table, rest: value };
        match reader.u8()? {
            found if found == version => Ok(reader),
            found => Err(reader.bad(format!("version {found}, expected {version}"))),
        }
    }

    /// Returns an error about this value.
    pub fn bad(&self, what: impl Into<String>) -> Error {
        Error::BadEntry {
            table: self.table.name(),
            what: what.into(),
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(self.bad("too short")),
        }
    }

    /// Takes one byte.
    ///
    /// # Errors
    /// [`Error::BadEntry`] if the value ends before; so do all methods below.
    pub fn u8(&mut self) -> Result<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// Takes four bytes.
    ///
    /// # Errors
    /// As [`Reader::u8`].
    pub fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// Takes eight bytes.
    ///
    /// # Errors
    /// As [`Reader::u8`].
    pub fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// Takes eight bytes.
    ///
    /// # Errors
    /// As [`Reader::u8`].
    pub fn i64(&mut self) -> Result<i64> {
        self.u64().map(u64::cast_signed)
    }

    /// Takes a presence byte and, if it says so, a value.
    ///
    /// # Errors
    /// As [`Reader::u8`], and if the byte is neither 0 nor 1.
    pub fn option_u64(&mut self) -> Result<Option<u64>> {
        match self.u8()? {
            0 => Ok(None),
            1 => self.u64().map(Some),
            other => Err(self.bad(format!("presence byte {other}"))),
        }
    }

    /// Takes a length and that many bytes.
    ///
    /// # Errors
    /// As [`Reader::u8`].
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = usize::try_from(self.u32()?).map_err(|_| self.bad("length out of range"))?;
        match self.rest.split_at_checked(len) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.bad("too short")),
        }
    }

    /// Takes a string.
    ///
    /// # Errors
    /// As [`Reader::u8`], and if it is not UTF-8.
    pub fn string(&mut self) -> Result<String> {
        let bytes = self.bytes()?.to_vec();
        String::from_utf8(bytes).map_err(|_| self.bad("a string is not UTF-8"))
    }

    /// Makes sure that nothing is left.
    ///
    /// # Errors
    /// [`Error::BadEntry`] if something is.
    pub fn finish(self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.bad("too long"))
        }
    }
}
