//! System calls that a process must make itself so that its memory comes to be.

use super::space::PAGE;

/// An argument of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// As it is.
    Value(u64),
    /// What the call with this index in the list returned.
    Result(usize),
}

impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self::Value(value)
    }
}

impl From<i32> for Argument {
    fn from(value: i32) -> Self {
        // The kernel reads an int from the lower half of the register, and -1 as all bits set.
        Self::Value(i64::from(value).cast_unsigned())
    }
}

/// What a call must return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Anything but an error.
    Success,
    /// Exactly this.
    Exactly(u64),
    /// Anything: advice that changes no content.
    Anything,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The number of the system call.
    pub number: i64,
    /// Its arguments.
    pub arguments: [Argument; 6],
    /// What it must return.
    pub expect: Expect,
    /// What it is for, for an error message.
    pub what: &'static str,
}

/// A list of calls, and the bytes that they point at.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The calls, in order.
    pub list: Vec<Call>,
    /// What must lie at the address that was given to [`Calls::new`] while they run.
    pub data: Vec<u8>,
    data_address: u64,
}

impl Calls {
    /// An empty list whose data will lie at `data_address` in the process.
    pub fn new(data_address: u64) -> Self {
        Self {
            list: Vec::new(),
            data: Vec::new(),
            data_address,
        }
    }

    /// Adds a call and returns its index.
    pub fn add<const N: usize>(
        &mut self,
        what: &'static str,
        number: i64,
        arguments: [Argument; N],
        expect: Expect,
    ) -> usize {
        let mut all = [Argument::Value(0); 6];
        for (slot, argument) in all.iter_mut().zip(arguments) {
            *slot = argument;
        }
        self.list.push(Call {
            number,
            arguments: all,
            expect,
            what,
        });
        self.list.len() - 1
    }

    /// Adds bytes that calls point at, aligned for any structure, and returns where they will lie.
    pub fn place(&mut self, bytes: &[u8]) -> u64 {
        self.data.resize(self.data.len().next_multiple_of(16), 0);
        let address = self.data_address + self.data.len() as u64;
        self.data.extend_from_slice(bytes);
        address
    }

    /// How many whole pages the data needs.
    pub fn data_pages(&self) -> u64 {
        (self.data.len() as u64).div_ceil(PAGE)
    }
}
