//! How far something long has come.

use crate::error::Result;

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

/// Whoever is told of each step of something long. An error from it ends that, between two steps and
/// with nothing half-done, and is what it returns.
pub type Watch<'a> = dyn FnMut(Progress) -> Result<()> + 'a;
