//! Device numbers in the kernel's encoding: 12 bits of major, 20 of minor.

/// Takes one apart into major and minor.
pub(crate) const fn split(rdev: u32) -> (u32, u32) {
    (
        (rdev >> 8) & 0xfff,
        (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00),
    )
}

/// Puts one together.
pub(crate) const fn join(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_make_the_whole() {
        for rdev in [0, 0x103, 0x0120_08ab, u32::MAX] {
            let (major, minor) = split(rdev);
            assert_eq!(join(major, minor), rdev);
        }
        assert_eq!(split(0x0120_08ab), (8, 0x0_12ab));
    }
}
