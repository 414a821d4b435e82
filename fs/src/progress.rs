//! How far something long has come.

/// A step of something that takes long, told to whoever wants to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What has been done of it, in the unit that `what` names.
    pub done: u64,
    /// How much there is to do, if that is known.
    pub total: Option<u64>,
    /// What is being done, as a clause that ends with the unit.
    pub what: &'static str,
}
