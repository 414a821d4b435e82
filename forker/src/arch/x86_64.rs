//! x86-64: registers, how a system call is made and restarted.

use serde::{Deserialize, Serialize};

/// The general registers, in the order of `struct user_regs_struct`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers([u64; 27]);

// Places in `user_regs_struct`.
const R12: usize = 3;
const RBX: usize = 5;
const R10: usize = 7;
const R9: usize = 8;
const R8: usize = 9;
const RAX: usize = 10;
const RDX: usize = 12;
const RSI: usize = 13;
const RDI: usize = 14;
const ORIG_RAX: usize = 15;
const RIP: usize = 16;
const RFLAGS: usize = 18;

/// The code segment of a 64-bit program.
const USER_CS: u64 = 0x33;
const CS: usize = 17;

/// The instruction by which a program calls the kernel.
pub const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Length of the breakpoint instruction.
pub const BREAKPOINT: u64 = 1;

/// Flags under which the runner and single steps behave: no trap, direction up.
const RFLAGS_PLAIN: u64 = 0x202;

impl Registers {
    /// Reads them as the kernel gives them.
    pub(crate) fn from_bytes(bytes: &[u8; size_of::<Self>()]) -> Self {
        let mut all = [0; 27];
        for (register, word) in all.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *register = u64::from_ne_bytes(*word);
        }
        Self(all)
    }

    /// As the kernel takes them.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        self.0.into_iter().flat_map(u64::to_ne_bytes).collect()
    }

    /// Address of the next instruction.
    pub fn instruction(&self) -> u64 {
        self.0[RIP]
    }

    /// Sets the address of the next instruction.
    pub fn set_instruction(&mut self, address: u64) {
        self.0[RIP] = address;
    }

    /// What a system call returned.
    pub fn result(&self) -> i64 {
        self.0[RAX].cast_signed()
    }

    /// Whether the program runs in 64-bit mode.
    pub fn is_64_bit(&self) -> bool {
        self.0[CS] == USER_CS
    }

    /// The system call in progress, if the thread stopped inside one.
    pub fn call(&self) -> Option<i64> {
        let number = self.0[ORIG_RAX].cast_signed();
        (number >= 0).then_some(number)
    }

    /// Makes it look as if the thread had stopped inside this call.
    #[cfg(test)]
    pub(crate) fn set_call(&mut self, number: i64) {
        self.0[ORIG_RAX] = number.cast_unsigned();
    }

    /// Its arguments.
    pub fn arguments(&self) -> [u64; 6] {
        [RDI, RSI, RDX, R10, R8, R9].map(|place| self.0[place])
    }

    /// Replaces an argument of the call in progress; `index` below 6.
    pub fn set_argument(&mut self, index: usize, value: u64) {
        if let Some(&place) = [RDI, RSI, RDX, R10, R8, R9].get(index) {
            self.0[place] = value;
        }
    }

    /// Replaces what the call in progress returns.
    pub fn set_result(&mut self, value: i64) {
        self.0[RAX] = value.cast_unsigned();
    }

    /// These registers, about to make a system call at `address`.
    #[must_use]
    pub fn calling(&self, address: u64, number: i64, arguments: [u64; 6]) -> Self {
        let mut new = *self;
        for (place, value) in [RDI, RSI, RDX, R10, R8, R9].into_iter().zip(arguments) {
            new.0[place] = value;
        }
        new.0[RAX] = number.cast_unsigned();
        new.0[ORIG_RAX] = u64::MAX;
        new.0[RIP] = address;
        new.0[RFLAGS] = RFLAGS_PLAIN;
        new
    }

    /// These registers, about to enter the runner at `code` with the first record at `tape`.
    #[must_use]
    pub fn running(&self, code: u64, tape: u64) -> Self {
        let mut new = *self;
        new.0[RBX] = tape;
        new.0[R12] = 0;
        new.0[ORIG_RAX] = u64::MAX;
        new.0[RIP] = code;
        new.0[RFLAGS] = RFLAGS_PLAIN;
        new
    }
}

/// `-ERESTARTNOHAND`: the call is restarted unless a handler runs.
pub const RESTART_NO_HANDLER: i64 = -514;
/// `-ERESTART_RESTARTBLOCK`: the call is continued by what the kernel has noted about it.
pub const RESTART_BLOCK: i64 = -516;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_keep_their_places() {
        let mut registers = Registers::default();
        registers.set_instruction(7);
        registers.set_result(-514);
        registers.set_argument(0, 1);
        registers.set_argument(5, 6);
        let bytes: [u8; 216] = registers.to_bytes().try_into().unwrap();
        assert_eq!(bytes[16 * 8], 7);
        assert_eq!(Registers::from_bytes(&bytes), registers);
        assert_eq!(registers.arguments(), [1, 0, 0, 0, 0, 6]);
        assert_eq!(registers.call(), Some(0));
        assert_eq!(registers.calling(9, 5, [0; 6]).call(), None);
    }
}
