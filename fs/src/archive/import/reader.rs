//! Taking an archive apart into members.
//!
//! The headers' fields are the `tar` crate's business. Its own reader is not used: it takes extended
//! headers for lines, and a value may hold line feeds.

use std::io::{self, Read};

use tar::EntryType;

use super::sparse::{self, Form, Sparse};
use crate::archive::pax::{self, BLOCK};
use crate::error::{Error, Result};

/// Extended headers beyond this are an attack on memory.
const EXTENSION_BYTES_MAX: u64 = 16 << 20;

/// Keys and values of an extended header.
pub(super) type Extensions = Vec<(Vec<u8>, Vec<u8>)>;

/// A member's header with what extends it.
pub(super) struct Head {
    pub(super) header: tar::Header,
    /// Its path: the longest that any of the headers gives.
    pub(super) path: Vec<u8>,
    /// Of a link.
    pub(super) target: Vec<u8>,
    /// Bytes of content, which follow.
    pub(super) size: u64,
    /// Which parts of the file that content is, unless it is the whole.
    pub(super) sparse: Option<Sparse>,
    /// The archive's own first, the member's after them.
    pub(super) extensions: Extensions,
}

/// An archive being read. Reading from it gives the present member's content.
pub(super) struct Reader<R> {
    input: R,
    /// What is left of the present member's content.
    left: u64,
    /// What fills its last block.
    padding: u64,
    globals: Extensions,
    members: u64,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            left: 0,
            padding: 0,
            globals: Vec::new(),
            members: 0,
        }
    }

    /// Returns the next member; [`None`] at the end mark.
    pub(super) fn next(&mut self) -> Result<Option<Head>> {
        let mut extensions = Extensions::new();
        let (mut long_path, mut long_target) = (None, None);
        loop {
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let size = header.entry_size().map_err(|error| self.bad(&error))?;
            match header.entry_type() {
                EntryType::XGlobalHeader => {
                    let found = self.extension(size)?;
                    self.globals.extend(found);
                }
                EntryType::XHeader => extensions = self.extension(size)?,
                EntryType::GNULongName => long_path = Some(self.long(size)?),
                EntryType::GNULongLink => long_target = Some(self.long(size)?),
                _ => {
                    let own = extensions;
                    let mut extensions = self.globals.clone();
                    extensions.extend(own);
                    let value = |key: &[u8]| {
                        let found = extensions.iter().rev().find(|(found, _)| found == key);
                        found.map(|(_, value)| value.clone())
                    };
                    let size = match value(b"size") {
                        None => size,
                        Some(text) => std::str::from_utf8(&text)
                            .ok()
                            .and_then(|text| text.parse().ok())
                            .ok_or_else(|| self.bad(&"a size that is no number"))?,
                    };
                    let path = value(b"GNU.sparse.name")
                        .or_else(|| value(b"path"))
                        .or(long_path)
                        .unwrap_or_else(|| header.path_bytes().into_owned());
                    let own_target = || {
                        let target = header.link_name_bytes();
                        target.map(std::borrow::Cow::into_owned).unwrap_or_default()
                    };
                    let target = value(b"linkpath")
                        .or(long_target)
                        .unwrap_or_else(own_target);
                    let old = header.entry_type() == EntryType::GNUSparse;
                    let form = sparse::form(old, &extensions).map_err(|what| self.bad(&what))?;
                    let (mut sparse, mut real_size) = (None, None);
                    match form {
                        Form::Whole => {}
                        Form::InHeader => sparse = Some(self.parts_behind_header(&header)?),
                        Form::Listed(listed) => sparse = Some(listed),
                        Form::InContent { size } => real_size = Some(size),
                    }
                    self.begin(size)?;
                    if let Some(size) = real_size {
                        sparse = Some(self.parts_in_content(size)?);
                    }
                    if let Some(sparse) = &sparse {
                        let checked = sparse.check(self.left);
                        checked.map_err(|what| self.bad(&what))?;
                    }
                    self.members += 1;
                    return Ok(Some(Head {
                        header,
                        path,
                        target,
                        size,
                        sparse,
                        extensions,
                    }));
                }
            }
        }
    }

    /// Reads what follows the end mark, so that a program that still writes there does not fail.
    pub(super) fn drain(mut self) -> Result<()> {
        io::copy(&mut self.input, &mut io::sink())
            .map(drop)
            .map_err(failed)
    }

    /// Returns the error for an archive that is damaged at the present place.
    pub(super) fn bad(&self, what: &dyn std::fmt::Display) -> Error {
        let place = match self.members {
            0 => "this is not a tar archive".to_owned(),
            members => format!("the archive is damaged after member {members}"),
        };
        Error::BadInput {
            what: format!("{place}: {what}"),
        }
    }

    fn cut_short(&self) -> Error {
        Error::BadInput {
            what: format!(
                "the archive ends before its end mark, after {} members: it was cut short",
                self.members
            ),
        }
    }

    /// Reads the parts of a sparse file that its header and the blocks behind it list.
    fn parts_behind_header(&mut self, header: &tar::Header) -> Result<Sparse> {
        let bad = "a header of a sparse file that is malformed";
        let gnu = header.as_gnu().ok_or_else(|| self.bad(&bad))?;
        let mut sparse = Sparse {
            parts: Vec::new(),
            size: gnu.real_size().map_err(|error| self.bad(&error))?,
        };
        let mut more = gnu.is_extended();
        self.parts(&gnu.sparse, &mut sparse)?;
        while more {
            let mut block = tar::GnuExtSparseHeader::new();
            self.fill(block.as_mut_bytes())?;
            self.parts(&block.sparse, &mut sparse)?;
            more = block.is_extended();
        }
        Ok(sparse)
    }

    fn parts(&self, list: &[tar::GnuSparseHeader], sparse: &mut Sparse) -> Result<()> {
        for part in list.iter().filter(|part| !part.is_empty()) {
            let offset = part.offset().map_err(|error| self.bad(&error))?;
            let length = part.length().map_err(|error| self.bad(&error))?;
            sparse
                .push(offset, length)
                .map_err(|what| self.bad(&what))?;
        }
        Ok(())
    }

    /// Reads the parts of a sparse file that its content begins with: decimal numbers, a line each,
    /// how many parts and then offset and length of each, filled up to whole blocks.
    fn parts_in_content(&mut self, size: u64) -> Result<Sparse> {
        let bad = "a list of parts of a sparse file that is malformed";
        let mut numbers: Vec<u64> = Vec::new();
        let mut line = Vec::new();
        let mut wanted = None;
        while wanted.is_none_or(|wanted| numbers.len() < wanted) {
            let mut block = [0; BLOCK];
            match self.left.checked_sub(BLOCK as u64) {
                Some(left) => self.left = left,
                None => return Err(self.bad(&bad)),
            }
            self.fill(&mut block)?;
            for byte in block {
                if wanted.is_some_and(|wanted| numbers.len() == wanted) {
                    break;
                }
                match byte {
                    b'\n' => {
                        let number = sparse::number(&line).ok_or_else(|| self.bad(&bad))?;
                        line.clear();
                        match wanted {
                            Some(_) => numbers.push(number),
                            None => {
                                let count = usize::try_from(number).ok().filter(|n| *n <= 1 << 20);
                                wanted = Some(2 * count.ok_or_else(|| self.bad(&bad))?);
                            }
                        }
                    }
                    _ if line.len() < 20 => line.push(byte),
                    _ => return Err(self.bad(&bad)),
                }
            }
        }
        let mut sparse = Sparse {
            parts: Vec::new(),
            size,
        };
        for [offset, length] in numbers.as_chunks::<2>().0 {
            sparse
                .push(*offset, *length)
                .map_err(|what| self.bad(&what))?;
        }
        Ok(sparse)
    }

    /// Begins a member's content.
    fn begin(&mut self, size: u64) -> Result<()> {
        let rest = size % BLOCK as u64;
        self.padding = if rest == 0 { 0 } else { BLOCK as u64 - rest };
        self.left = size;
        match i64::try_from(size) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.bad(&"a size beyond all bounds")),
        }
    }

    /// Goes over what is left of the present member, and reads a header.
    fn header(&mut self) -> Result<Option<tar::Header>> {
        let skip = self.left + self.padding;
        let skipped = io::copy(&mut (&mut self.input).take(skip), &mut io::sink());
        if skipped.map_err(failed)? < skip {
            return Err(self.cut_short());
        }
        (self.left, self.padding) = (0, 0);
        let mut header = tar::Header::new_old();
        self.fill(header.as_mut_bytes())?;
        let bytes = header.as_bytes();
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum = |range: &[u8]| range.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        let sum = sum(&bytes[..148]) + 8 * u32::from(b' ') + sum(&bytes[156..]);
        match header.cksum() {
            Ok(stored) if stored == sum => Ok(Some(header)),
            _ => Err(self.bad(&"a header has a wrong checksum")),
        }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        match self.input.read_exact(buffer) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.cut_short()),
            other => other.map_err(failed),
        }
    }

    fn payload(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > EXTENSION_BYTES_MAX {
            return Err(self.bad(&"an extended header of more than 16 MiB"));
        }
        self.begin(size)?;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        self.fill(&mut bytes)?;
        self.left = 0;
        Ok(bytes)
    }

    fn extension(&mut self, size: u64) -> Result<Extensions> {
        let bytes = self.payload(size)?;
        pax::parse(&bytes).ok_or_else(|| self.bad(&"a malformed extended header"))
    }

    fn long(&mut self, size: u64) -> Result<Vec<u8>> {
        let mut bytes = self.payload(size)?;
        if bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(bytes)
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = (&mut self.input).take(self.left).read(buffer)?;
        self.left -= got as u64;
        Ok(got)
    }
}

/// Returns the error for input that cannot be read.
pub(super) fn failed(error: io::Error) -> Error {
    Error::io("read the archive", error)
}
