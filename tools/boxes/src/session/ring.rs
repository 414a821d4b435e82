//! What came out of a session lately.

use std::collections::VecDeque;

/// The last bytes of a stream, up to a limit.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: VecDeque<u8>,
    bytes_max: usize,
    /// How many came in all.
    total: u64,
}

impl Ring {
    /// Returns an empty one that keeps `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes: VecDeque::new(),
            bytes_max,
            total: 0,
        }
    }

    /// Adds `bytes`, forgetting the oldest.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total = self
            .total
            .saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let kept = bytes.len().min(self.bytes_max);
        let from = bytes.get(bytes.len() - kept..).unwrap_or_default();
        let excess = (self.bytes.len() + kept).saturating_sub(self.bytes_max);
        self.bytes.drain(..excess);
        self.bytes.extend(from);
    }

    /// Returns what is kept, oldest first.
    pub(super) fn contents(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }

    /// Returns how many bytes came in all.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_bytes_stay() {
        let mut ring = Ring::new(4);
        ring.push(b"ab");
        assert_eq!(ring.contents(), b"ab");
        ring.push(b"cde");
        assert_eq!(ring.contents(), b"bcde");
        ring.push(b"0123456789");
        assert_eq!(ring.contents(), b"6789");
        ring.push(b"");
        assert_eq!((ring.contents(), ring.total()), (b"6789".to_vec(), 15));
    }
}
