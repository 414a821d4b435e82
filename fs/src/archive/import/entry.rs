//! What a member of an archive says of itself.

use super::ImportOutcome;
use super::reader::Head;
use super::sparse::Sparse;
use crate::archive::{XATTR, pax};
use crate::attr::Timestamp;
use crate::error::{Error, Result};
use crate::rdev;

/// The attributes of a member.
pub(super) struct Member {
    /// Its path below the root, without `.`; empty for the root itself.
    pub(super) path: Vec<u8>,
    /// Its path as it is in the archive, for messages.
    pub(super) shown: String,
    pub(super) kind: tar::EntryType,
    /// Of a link.
    pub(super) target: Vec<u8>,
    pub(super) perm: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    /// Bytes of content.
    pub(super) size: u64,
    /// Which parts of the file they are, unless they are the whole.
    pub(super) sparse: Option<Sparse>,
    pub(super) mtime: Timestamp,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Member {
    pub(super) fn parse(head: Head, outcome: &mut ImportOutcome) -> Result<Self> {
        let Head {
            header,
            path: raw,
            target,
            size,
            sparse,
            extensions,
        } = head;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let shown = text(&raw);
        let damaged = |error: std::io::Error| Error::BadInput {
            what: format!("archive member '{shown}' has a damaged header: {error}"),
        };
        let mut kind = header.entry_type();
        let perm = header.mode().map_err(damaged)? & 0o7777;
        let mut uid = header.uid().map_err(damaged)?;
        let mut gid = header.gid().map_err(damaged)?;
        // Times before 1970 come as the bits of a signed number.
        let mut mtime = Timestamp {
            secs: header.mtime().map_err(damaged)?.cast_signed(),
            nanos: 0,
        };
        let is_device = matches!(kind, tar::EntryType::Char | tar::EntryType::Block);
        let rdev = if is_device {
            let part = |number: std::io::Result<Option<u32>>| {
                number.map(Option::unwrap_or_default).map_err(damaged)
            };
            let (major, minor) = (part(header.device_major())?, part(header.device_minor())?);
            rdev::join(major, minor)
        } else {
            0
        };
        let mut xattrs = Vec::new();
        for (key, value) in extensions {
            let bad = || Error::BadInput {
                what: format!("archive member '{shown}' has a malformed '{}'", text(&key)),
            };
            let number = || {
                std::str::from_utf8(&value)
                    .ok()
                    .and_then(|text| text.parse::<u64>().ok())
                    .ok_or_else(bad)
            };
            match key.as_slice() {
                b"mtime" => mtime = pax::parse_time(&value).ok_or_else(bad)?,
                b"uid" => uid = number()?,
                b"gid" => gid = number()?,
                key if key.starts_with(b"SCHILY.acl.") => outcome.attributes_skipped += 1,
                key => {
                    if let Some(name) = key.strip_prefix(XATTR) {
                        xattrs.push((name.to_vec(), value));
                    }
                }
            }
        }
        if raw.ends_with(b"/") && kind == tar::EntryType::Regular {
            // How archives older than ustar say it.
            kind = tar::EntryType::Directory;
        }
        let id = |number: u64| {
            u32::try_from(number).map_err(|_| Error::BadInput {
                what: format!("archive member '{shown}' has an owner beyond 32 bits"),
            })
        };
        Ok(Self {
            path: below_root(&raw, &shown, outcome)?,
            kind,
            target,
            perm,
            uid: id(uid)?,
            gid: id(gid)?,
            rdev,
            mtime,
            size,
            sparse,
            xattrs,
            shown,
        })
    }
}

/// Returns a path in an archive as one below the root, refusing what would lead out of it.
pub(super) fn below_root(raw: &[u8], shown: &str, outcome: &mut ImportOutcome) -> Result<Vec<u8>> {
    if raw.starts_with(b"/") {
        outcome.made_relative += 1;
    }
    let mut path = Vec::new();
    for part in raw.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                return Err(Error::BadInput {
                    what: format!("archive member '{shown}' leads out of the branch with '..'"),
                });
            }
            part if part.contains(&0) => {
                return Err(Error::BadInput {
                    what: format!(
                        "archive member '{}' has a NUL in its name",
                        shown.escape_debug()
                    ),
                });
            }
            part => path = crate::tree::join(&path, part),
        }
    }
    Ok(path)
}
