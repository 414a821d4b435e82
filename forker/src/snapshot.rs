//! All of a process image, but for the content of memory.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::image::{self, Kind, Writer};
use crate::memory::shared::SharedMemory;
use crate::memory::space::{AddressSpace, ObjectId, Run};
use crate::memory::sysv::KeptSegment;
use crate::report::Report;
use crate::resource::files::Files;
use crate::tree::model::Process;

/// The address space of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// The process, inside.
    pub pid: i32,
    /// The object that holds its pages.
    pub object: ObjectId,
    /// Its mappings.
    pub space: AddressSpace,
    /// The pages that were kept.
    pub runs: Vec<Run>,
}

/// A process tree as it was at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// What was kept how well.
    pub report: Report,
    /// Its processes, parents before children.
    pub processes: Vec<Process>,
    /// Descriptors.
    pub files: Files,
    /// Address spaces of the living.
    pub spaces: Vec<Space>,
    /// Memory that is shared.
    pub shared: Vec<SharedMemory>,
    /// System V segments.
    pub segments: Vec<KeptSegment>,
}

impl Snapshot {
    /// Encodes it.
    ///
    /// # Errors
    /// A section is too large.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut writer = Writer::new();
        writer
            .section(Kind::Report, &self.report)
            .map_err(damaged)?;
        writer
            .section(Kind::Tree, &self.processes)
            .map_err(damaged)?;
        writer.section(Kind::Files, &self.files).map_err(damaged)?;
        writer
            .section(Kind::Memory, &self.spaces)
            .map_err(damaged)?;
        writer
            .section(Kind::Shared, &self.shared)
            .map_err(damaged)?;
        writer
            .section(Kind::SysV, &self.segments)
            .map_err(damaged)?;
        Ok(writer.finish())
    }

    /// Decodes it.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let image = image::Image::parse(bytes).map_err(damaged)?;
        Ok(Self {
            report: image.section(Kind::Report).map_err(damaged)?,
            processes: image.section(Kind::Tree).map_err(damaged)?,
            files: image.section(Kind::Files).map_err(damaged)?,
            spaces: image.section(Kind::Memory).map_err(damaged)?,
            shared: image.section(Kind::Shared).map_err(damaged)?,
            segments: image.section(Kind::SysV).map_err(damaged)?,
        })
    }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "it is what map_err hands over"
)]
fn damaged(error: image::ImageError) -> Error {
    Error::Image(error.to_string())
}
