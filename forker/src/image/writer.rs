//! Writes images.

use serde::Serialize;

use super::{ImageError, Kind, MAGIC, MOST_SECTION_BYTES, VERSION};

/// An image that is being written.
#[derive(Debug, Default)]
pub struct Writer {
    sections: Vec<u8>,
    count: u32,
    last: Option<Kind>,
}

impl Writer {
    /// An image without sections.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a section. Sections are added in the order of their kinds.
    ///
    /// # Errors
    /// [`ImageError::Misplaced`] out of order or too large, [`ImageError::Payload`] if `value`
    /// cannot be encoded.
    pub fn section(&mut self, kind: Kind, value: &impl Serialize) -> Result<(), ImageError> {
        let payload =
            postcard::to_allocvec(value).map_err(|source| ImageError::Payload { kind, source })?;
        let length = payload.len() as u64;
        if self.last.is_some_and(|last| last >= kind) || length > MOST_SECTION_BYTES {
            return Err(ImageError::Misplaced(kind));
        }
        let mut header = Vec::with_capacity(super::SECTION_HEADER);
        header.extend((kind as u32).to_le_bytes());
        header.extend(length.to_le_bytes());
        header.extend(crc32c::crc32c(&payload).to_le_bytes());
        header.extend(crc32c::crc32c(&header).to_le_bytes());
        self.sections.extend(header);
        self.sections.extend(payload);
        self.count += 1;
        self.last = Some(kind);
        Ok(())
    }

    /// The whole image.
    pub fn finish(self) -> Vec<u8> {
        let mut image = Vec::with_capacity(super::HEADER + self.sections.len());
        image.extend(MAGIC);
        image.extend(VERSION.to_le_bytes());
        image.extend(self.count.to_le_bytes());
        image.extend(crc32c::crc32c(&image).to_le_bytes());
        image.extend(self.sections);
        image
    }
}
