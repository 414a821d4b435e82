//! Reading tables that may be damaged.

use crate::check::{Checker, Place};
use crate::error::Result;
use crate::kv::{Key, Step, Table};

/// What [`Checker::each`] calls with the key and value of each entry.
pub(super) type Visit<'v, C> = dyn FnMut(&mut C, &[u8], &[u8]) + 'v;

/// As [`Visit`]; it returns whether to go on.
pub(super) type VisitSome<'v, C> = dyn FnMut(&mut C, &[u8], &[u8]) -> bool + 'v;

impl Checker<'_> {
    /// Shows all entries of a table to `visit`. Where the engine cannot read on, that is noted, and
    /// the scan goes on behind the damage: keys begin with a number in all tables for which this is
    /// meant, and the gap is doubled until reading works again.
    pub(super) fn each(&mut self, table: Table, prefix: &[u8], visit: &mut Visit<'_, Self>) {
        self.each_from(table, prefix, prefix, &mut |checker, key, value| {
            visit(checker, key, value);
            true
        });
    }

    /// As [`Checker::each`], from a key on, for as long as `visit` returns true.
    pub(super) fn each_from(
        &mut self,
        table: Table,
        prefix: &[u8],
        from: &[u8],
        visit: &mut VisitSome<'_, Self>,
    ) {
        let kv = self.kv;
        let mut from = Key::from_slice(from);
        let mut gap = 1u64;
        loop {
            let mut last: Option<Key> = None;
            let read = kv.scan(table, &from, &mut |key, value| {
                if !key.starts_with(prefix) {
                    return Ok(Step::Stop);
                }
                last = Some(Key::from_slice(key));
                let more = visit(self, key, value) && self.interrupted.is_none();
                Ok(if more { Step::Next } else { Step::Stop })
            });
            let Err(error) = read else { return };
            if self.interrupted.is_some() {
                return;
            }
            if last.is_some() || gap == 1 {
                let at = last.as_deref().unwrap_or(&from);
                let detail = format!("table {} behind key {}: {error}", table.name(), hex(at));
                self.problem("I1", "a table cannot be read", detail, Place::Anywhere);
                gap = 1;
            }
            let at = last.unwrap_or_else(|| from.clone());
            let skip = prefix.len();
            let number = at
                .get(skip..skip + 8)
                .and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
            let Some(next) = number.map_or(Some(gap), |n| u64::from_be_bytes(n).checked_add(gap))
            else {
                return;
            };
            gap = gap.saturating_mul(2);
            from = Key::from_slice(prefix);
            from.extend_from_slice(&next.to_be_bytes());
        }
    }

    /// Reads a number from `meta`.
    pub(super) fn meta_number(&self, key: &str) -> Result<Option<u64>> {
        let value = self.kv.get(Table::Meta, key.as_bytes())?;
        Ok(value
            .and_then(|value| <[u8; 8]>::try_from(value).ok())
            .map(u64::from_le_bytes))
    }
}

/// Returns bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
