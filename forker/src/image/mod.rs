//! The format of a process image: everything that a restore needs but the content of memory, which
//! is kept as blocks of the layer.
//!
//! ```text
//! header   magic "BPIM" | version u32 | number of sections u32 | CRC-32C of these twelve bytes
//! section  kind u32 | length u64 | CRC-32C of the payload u32 | CRC-32C of these sixteen bytes
//!          payload: postcard
//! ```
//!
//! All numbers are little-endian. Sections come in the order of their kinds, each at most once.
//! A reader takes images of its own version only: what a section means changes with the version, and
//! an image lives no longer than its store.

mod reader;
mod writer;

pub use reader::Image;
pub use writer::Writer;

/// The first bytes of an image.
pub const MAGIC: [u8; 4] = *b"BPIM";

/// The version that this build writes and reads.
pub const VERSION: u32 = 1;

/// Bytes in the header.
const HEADER: usize = 16;

/// Bytes in front of each payload.
const SECTION_HEADER: usize = 20;

/// No payload is longer: what is larger is memory, and belongs into the store.
pub const MOST_SECTION_BYTES: u64 = 256 << 20;

/// What a section holds. The number is what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Kind {
    /// The report.
    Report = 1,
    /// Processes, their relations, and what is created in which order.
    Tree = 2,
    /// Threads: registers, signals, timers.
    Threads = 3,
    /// Open file descriptions and the tables that refer to them.
    Files = 4,
    /// Address spaces, and which of their pages are kept.
    Memory = 5,
    /// Memory that several processes share.
    Shared = 6,
    /// System V objects.
    SysV = 7,
    /// Properties of the box itself.
    Place = 8,
}

impl Kind {
    /// All kinds, in order.
    pub const ALL: [Self; 8] = [
        Self::Report,
        Self::Tree,
        Self::Threads,
        Self::Files,
        Self::Memory,
        Self::Shared,
        Self::SysV,
        Self::Place,
    ];

    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// Why an image cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// It ends too early, or goes on behind its end.
    #[error("the image is {0} bytes long, which is not what it says")]
    Length(usize),
    /// It does not begin as an image does.
    #[error("this is no process image")]
    Magic,
    /// Another version wrote it.
    #[error("the image has version {0}, and this program reads {VERSION}")]
    Version(u32),
    /// A header is damaged.
    #[error("a header of the image is damaged")]
    Header,
    /// The payload of a section is damaged.
    #[error("section {0:?} of the image is damaged")]
    Damaged(Kind),
    /// A section is not there.
    #[error("section {0:?} of the image is missing")]
    Missing(Kind),
    /// A section came out of order, twice, or is larger than any can be.
    #[error("section {0:?} of the image is not where or what it can be")]
    Misplaced(Kind),
    /// A payload does not decode, or a value does not encode.
    #[error("section {kind:?} of the image: {source}")]
    Payload {
        /// Which section.
        kind: Kind,
        /// What the decoder says.
        source: postcard::Error,
    },
}
