//! Memory of another process.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::error::{Error, Result};

/// The memory of a process that we trace. Protection does not matter, and nothing needs to be mapped
/// writable.
#[derive(Debug)]
pub struct Memory {
    pid: i32,
    file: File,
}

impl Memory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// It is gone.
    pub fn open(pid: i32) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .map_err(|error| Error::io(format!("opening memory of process {pid}"), error))?;
        Ok(Self { pid, file })
    }

    /// Fills `into` with what is at `address`.
    ///
    /// # Errors
    /// Nothing is mapped there.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(into, address).map_err(|error| {
            Error::io(
                format!("reading memory of process {} at {address:x}", self.pid),
                error,
            )
        })
    }

    /// The word at `address`.
    ///
    /// # Errors
    /// Nothing is mapped there.
    pub fn word(&self, address: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Writes to `address`.
    ///
    /// # Errors
    /// Nothing is mapped there.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, address).map_err(|error| {
            Error::io(
                format!("writing memory of process {} at {address:x}", self.pid),
                error,
            )
        })
    }
}
