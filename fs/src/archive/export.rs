//! Writing a tree as an archive.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use serde::Serialize;

use super::XATTR;
use super::pax::{self, BLOCK, Records};
use crate::attr::{Attr, FileKind};
use crate::error::{Error, Result};
use crate::id::{Ino, LayerId};
use crate::progress::{Progress, Watch};
use crate::rdev;
use crate::store::Store;
use crate::tree;
use crate::view::View;

/// Bytes of content in memory at a time.
const CHUNK_BYTES: u32 = 1 << 20;
/// What a number of seven octal digits can hold.
const OCTAL_7_MAX: u64 = 0o777_7777;
/// What a number of eleven octal digits can hold.
const OCTAL_11_MAX: u64 = 0o777_7777_7777;

/// What an export wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportOutcome {
    /// Regular files; further names of one are not counted.
    pub files: u64,
    /// Directories, the root too.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices and named pipes.
    pub special_files: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Sockets, which no archive can hold.
    pub sockets_skipped: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// Writes the tree of `layer` to `out`, always in the same order: equal trees give equal archives.
/// An open layer is frozen for that, and its branch goes on in a new one.
///
/// # Errors
/// [`Error::Io`] if `out` fails, and those of reading.
pub fn export(
    store: &Arc<Store>,
    layer: LayerId,
    out: impl Write,
    progress: &mut Watch<'_>,
) -> Result<ExportOutcome> {
    let view = store.snapshot(layer)?;
    let mut exporter = Exporter {
        view: &view,
        out,
        outcome: ExportOutcome::default(),
        written: HashMap::new(),
    };
    exporter.entry(b"", &view.getattr(Ino::ROOT)?)?;
    let mut done = 1;
    tree::walk(&view, Ino::ROOT, b"", &mut |path, attr| {
        exporter.entry(&path, attr)?;
        done += 1;
        progress(Progress {
            done,
            total: None,
            what: "exporting files",
        })?;
        Ok(())
    })?;
    exporter.put(&[0; 2 * BLOCK])?;
    exporter.out.flush().map_err(failed)?;
    Ok(exporter.outcome)
}

fn failed(error: std::io::Error) -> Error {
    Error::io("write the archive", error)
}

struct Exporter<'a, W> {
    view: &'a View,
    out: W,
    outcome: ExportOutcome,
    /// Under which name a file with several is in the archive.
    written: HashMap<Ino, Vec<u8>>,
}

impl<W: Write> Exporter<'_, W> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(failed)
    }

    fn entry(&mut self, path: &[u8], attr: &Attr) -> Result<()> {
        if attr.kind == FileKind::Socket {
            self.outcome.sockets_skipped += 1;
            return Ok(());
        }
        let mut name = if path.is_empty() { b"." } else { path }.to_vec();
        if attr.kind == FileKind::Directory {
            name.push(b'/');
        } else if attr.nlink > 1 {
            if let Some(first) = self.written.get(&attr.ino).cloned() {
                self.outcome.hard_links += 1;
                return self.header(&name, attr, tar::EntryType::Link, &first, 0);
            }
            self.written.insert(attr.ino, name.clone());
        }
        let mut target = Vec::new();
        let mut size = 0;
        let (kind, count) = match attr.kind {
            FileKind::Regular => {
                size = attr.size;
                (tar::EntryType::Regular, &mut self.outcome.files)
            }
            FileKind::Directory => (tar::EntryType::Directory, &mut self.outcome.directories),
            FileKind::Symlink => {
                target = self.view.readlink(attr.ino)?;
                (tar::EntryType::Symlink, &mut self.outcome.symlinks)
            }
            FileKind::CharDevice => (tar::EntryType::Char, &mut self.outcome.special_files),
            FileKind::BlockDevice => (tar::EntryType::Block, &mut self.outcome.special_files),
            FileKind::Fifo | FileKind::Socket => {
                (tar::EntryType::Fifo, &mut self.outcome.special_files)
            }
        };
        *count += 1;
        self.header(&name, attr, kind, &target, size)?;
        self.content(attr.ino, size)
    }

    fn header(
        &mut self,
        name: &[u8],
        attr: &Attr,
        kind: tar::EntryType,
        target: &[u8],
        size: u64,
    ) -> Result<()> {
        let mut records = Records::default();
        let mut header = tar::Header::new_ustar();
        let fields = header.as_old_mut();
        let name_fits = pax::put(&mut fields.name, name);
        let target_fits = pax::put(&mut fields.linkname, target);
        if !name_fits || std::str::from_utf8(name).is_err() {
            records.push(b"path", name);
        }
        if !target_fits || std::str::from_utf8(target).is_err() {
            records.push(b"linkpath", target);
        }
        let mut number = |key: &[u8], value: u64, max: u64| {
            if value > max {
                records.push(key, value.to_string().as_bytes());
            }
            value.min(max)
        };
        header.set_mode(attr.perm);
        header.set_uid(number(b"uid", attr.uid.into(), OCTAL_7_MAX));
        header.set_gid(number(b"gid", attr.gid.into(), OCTAL_7_MAX));
        header.set_size(number(b"size", size, OCTAL_11_MAX));
        let mtime = attr.mtime;
        let seconds = u64::try_from(mtime.secs).unwrap_or(0).min(OCTAL_11_MAX);
        header.set_mtime(seconds);
        if mtime.nanos != 0 || i64::try_from(seconds) != Ok(mtime.secs) {
            records.push(b"mtime", pax::time(mtime).as_bytes());
        }
        header.set_entry_type(kind);
        if matches!(kind, tar::EntryType::Char | tar::EntryType::Block) {
            let (major, minor) = rdev::split(attr.rdev);
            header.set_device_major(major).map_err(failed)?;
            header.set_device_minor(minor).map_err(failed)?;
        }
        if kind != tar::EntryType::Link {
            let mut names = self.view.listxattr(attr.ino)?;
            names.sort();
            for name in names {
                let value = self.view.getxattr(attr.ino, &name)?;
                records.push(&[XATTR, &name].concat(), &value);
            }
        }
        header.set_cksum();
        records.write(&mut self.out).map_err(failed)?;
        self.put(header.as_bytes())
    }

    fn content(&mut self, ino: Ino, size: u64) -> Result<()> {
        let mut offset = 0;
        let mut bytes = Vec::new();
        while offset < size {
            bytes.clear();
            self.view.read(ino, offset, CHUNK_BYTES, &mut bytes)?;
            if bytes.is_empty() {
                return Err(nix::errno::Errno::EIO.into());
            }
            self.put(&bytes)?;
            offset += bytes.len() as u64;
        }
        self.outcome.bytes += size;
        pax::pad(&mut self.out, size).map_err(failed)
    }
}
