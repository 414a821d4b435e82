//! What only a process of the tree itself can do about its descriptors.

/// A system call that a process of the rebuilt tree has to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsideCall {
    /// Process inside the box.
    pub pid: i32,
    /// What it is for, as in "process 7 cannot add a signalfd to an epoll set".
    pub what: &'static str,
    /// A description (index into [`super::Rebuilt::files`]) that the process is lent for the time of the
    /// call: fetched, used as [`Argument::File`], closed again.
    pub file: Option<usize>,
    /// Number of the call.
    pub number: i64,
    /// Its arguments, at most six; missing ones are 0.
    pub arguments: Vec<Argument>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A number.
    Number(u64),
    /// A pointer to a copy of these bytes.
    Bytes(Vec<u8>),
    /// The number under which [`InsideCall::file`] is lent.
    File,
}

impl Argument {
    /// A signed number, extended as the kernel reads it.
    pub(super) fn number(value: impl Into<i64>) -> Self {
        Self::Number(value.into().cast_unsigned())
    }
}
