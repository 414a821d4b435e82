//! Steps that can be made to fail, for tests.

use crate::error::{Error, Result};

/// Which step fails, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults(Option<&'static str>);

impl Faults {
    /// Nothing fails that would not fail anyway.
    pub fn none() -> Self {
        Self::default()
    }

    /// One step fails, by its name.
    pub fn at(step: &'static str) -> Self {
        Self(Some(step))
    }

    /// Comes to a step.
    pub(crate) fn reach(self, step: &'static str) -> Result<()> {
        if self.0 == Some(step) {
            return Err(Error::Fault(step));
        }
        Ok(())
    }
}
