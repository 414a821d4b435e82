//! Reads images. Nothing in one is trusted: any bytes give an image or an error.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::{HEADER, ImageError, Kind, MAGIC, MOST_SECTION_BYTES, SECTION_HEADER, VERSION};

/// An image whose structure and checksums are right.
#[derive(Debug)]
pub struct Image<'a> {
    sections: BTreeMap<Kind, &'a [u8]>,
}

impl<'a> Image<'a> {
    /// Checks everything that can be checked without decoding.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ImageError> {
        let length = || ImageError::Length(bytes.len());
        let (header, mut rest) = bytes.split_at_checked(HEADER).ok_or_else(length)?;
        if header[..4] != MAGIC {
            return Err(ImageError::Magic);
        }
        if word(header, 12) != crc32c::crc32c(&header[..12]) {
            return Err(ImageError::Header);
        }
        if word(header, 4) != VERSION {
            return Err(ImageError::Version(word(header, 4)));
        }
        let mut sections = BTreeMap::new();
        for _ in 0..word(header, 8) {
            let (header, behind) = rest.split_at_checked(SECTION_HEADER).ok_or_else(length)?;
            if word(header, 16) != crc32c::crc32c(&header[..16]) {
                return Err(ImageError::Header);
            }
            let kind = Kind::from_number(word(header, 0)).ok_or(ImageError::Header)?;
            let size = u64::from(word(header, 4)) | u64::from(word(header, 8)) << 32;
            let last: Option<Kind> = sections.keys().next_back().copied();
            if last.is_some_and(|last| last >= kind) || size > MOST_SECTION_BYTES {
                return Err(ImageError::Misplaced(kind));
            }
            let size = usize::try_from(size).map_err(|_| ImageError::Misplaced(kind))?;
            let (payload, behind) = behind.split_at_checked(size).ok_or_else(length)?;
            if word(header, 12) != crc32c::crc32c(payload) {
                return Err(ImageError::Damaged(kind));
            }
            sections.insert(kind, payload);
            rest = behind;
        }
        if rest.is_empty() {
            Ok(Self { sections })
        } else {
            Err(length())
        }
    }

    /// Decodes a section.
    ///
    /// # Errors
    /// [`ImageError::Missing`], or [`ImageError::Payload`] if it holds something else.
    pub fn section<T: DeserializeOwned>(&self, kind: Kind) -> Result<T, ImageError> {
        let payload = self.sections.get(&kind).ok_or(ImageError::Missing(kind))?;
        let (value, rest) = postcard::take_from_bytes(payload)
            .map_err(|source| ImageError::Payload { kind, source })?;
        if rest.is_empty() {
            Ok(value)
        } else {
            Err(ImageError::Damaged(kind))
        }
    }
}

/// The little-endian word at `at` of a header, which is long enough.
fn word(header: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    if let Some(part) = header.get(at..at + 4) {
        bytes.copy_from_slice(part);
    }
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::image::Writer;
    use crate::memory::space::Run;
    use crate::report::{Line, Verdict};

    fn image() -> (Vec<u8>, Vec<Line>, Vec<Run>) {
        let lines = vec![Line {
            verdict: Verdict::Degraded,
            pid: 7,
            what: "descriptor 3".to_owned(),
            reason: "a reason".to_owned(),
            way_out: None,
        }];
        let runs = vec![
            Run {
                first: 1,
                count: u64::MAX
            };
            20
        ];
        let mut writer = Writer::new();
        writer.section(Kind::Report, &lines).unwrap();
        writer.section(Kind::Memory, &runs).unwrap();
        (writer.finish(), lines, runs)
    }

    #[test]
    fn sections_come_back() {
        let (bytes, lines, runs) = image();
        let image = Image::parse(&bytes).unwrap();
        assert_eq!(image.section::<Vec<Line>>(Kind::Report).unwrap(), lines);
        assert_eq!(image.section::<Vec<Run>>(Kind::Memory).unwrap(), runs);
        assert!(matches!(
            image.section::<u8>(Kind::Files),
            Err(ImageError::Missing(Kind::Files))
        ));
        assert!(image.section::<u8>(Kind::Report).is_err());
    }

    #[test]
    fn order_is_kept() {
        let mut writer = Writer::new();
        writer.section(Kind::Files, &1_u8).unwrap();
        assert!(matches!(
            writer.section(Kind::Files, &1_u8),
            Err(ImageError::Misplaced(_))
        ));
        assert!(matches!(
            writer.section(Kind::Tree, &1_u8),
            Err(ImageError::Misplaced(_))
        ));
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_an_error() {
        let (bytes, ..) = image();
        for length in 0..bytes.len() {
            assert!(Image::parse(&bytes[..length]).is_err(), "{length}");
        }
        for at in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            assert!(Image::parse(&bytes).is_err(), "bit {at}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(matches!(Image::parse(&longer), Err(ImageError::Length(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_image_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Image::parse(&bytes);
        }

        /// A payload that somebody wrote with a right checksum decodes or is an error.
        #[test]
        fn any_payload_decodes_or_is_an_error(payload in proptest::collection::vec(any::<u8>(), 0..99)) {
            let sections = BTreeMap::from([(Kind::Memory, payload.as_slice())]);
            let image = Image { sections };
            let _ = image.section::<Vec<(String, Vec<Run>)>>(Kind::Memory);
            let _ = image.section::<Vec<crate::memory::space::AddressSpace>>(Kind::Memory);
        }
    }
}
