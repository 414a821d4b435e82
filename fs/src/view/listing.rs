//! Reading directories, without any state between calls.
//!
//! Names are kept in order of a keyed hash, and the hash is the cookie: reading goes on behind a
//! hash whatever came or went meanwhile. Names whose hashes are equal share a place: the cookie of
//! all but the last of them leads back to the first, so none is ever lost.

use crate::attr::{Attr, DirEntry, FileKind};
use crate::error::Result;
use crate::id::Ino;
use crate::kv::Table;
use crate::layout::key::{self, NameHash};
use crate::layout::record::DentryRecord;
use crate::view::View;
use crate::view::op::Op;

const COOKIE_DOT: u64 = 1;
const COOKIE_DOT_DOT: u64 = 2;

impl View {
    /// Visits the entries of a directory behind `cookie` (0 is the start), `.` and `..` included,
    /// until `visit` returns false.
    ///
    /// # Errors
    /// ENOTDIR, ESTALE.
    pub fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        visit: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        let op = self.reading()?;
        list(&op, ino, cookie, &mut |entry| Ok(visit(entry)))
    }

    /// As [`View::readdir`], with attributes.
    ///
    /// # Errors
    /// As [`View::readdir`].
    pub fn readdir_plus(
        &self,
        ino: Ino,
        cookie: u64,
        visit: &mut dyn FnMut(&DirEntry, &Attr) -> bool,
    ) -> Result<()> {
        let op = self.reading()?;
        list(&op, ino, cookie, &mut |entry| {
            let attr = self.with_newer_atime(op.inode(entry.ino)?.record.attr);
            Ok(visit(entry, &attr))
        })
    }
}

fn list(
    op: &Op<'_>,
    ino: Ino,
    cookie: u64,
    visit: &mut dyn FnMut(&DirEntry) -> Result<bool>,
) -> Result<()> {
    let dir = op.directory(ino)?;
    let dots = [
        (b".".as_slice(), ino, COOKIE_DOT),
        (b"..", dir.record.parent, COOKIE_DOT_DOT),
    ];
    for (name, ino, own) in dots {
        let entry = DirEntry {
            name: name.to_vec(),
            ino,
            kind: FileKind::Directory,
            cookie: own,
        };
        if cookie < own && !visit(&entry)? {
            return Ok(());
        }
    }
    // Each entry waits for its successor, which decides its cookie.
    let mut waiting: Option<(NameHash, DirEntry)> = None;
    let mut before = cookie.max(COOKIE_DOT_DOT);
    let mut stopped = false;
    let first = NameHash((cookie + 1).max(NameHash::FIRST.0));
    let (from, prefix) = (key::dentries_from(ino, first), key::inode(ino));
    op.store.scan_versions(
        Table::Dentries,
        &from,
        &prefix,
        op.head,
        &mut |thing, _, value| {
            let Some(record) = DentryRecord::decode(value)? else {
                return Ok(true);
            };
            let (_, hash, name) = key::parse_dentry(thing)?;
            let DentryRecord { ino, kind, .. } = record;
            let next = DirEntry {
                name: name.to_vec(),
                ino,
                kind,
                cookie: hash.0,
            };
            if let Some((last_hash, mut entry)) = waiting.replace((hash, next)) {
                if last_hash == hash {
                    entry.cookie = before;
                } else {
                    before = last_hash.0;
                }
                if !visit(&entry)? {
                    stopped = true;
                    return Ok(false);
                }
            }
            Ok(true)
        },
    )?;
    if let Some((_, entry)) = waiting
        && !stopped
    {
        visit(&entry)?;
    }
    Ok(())
}

/// Returns whether a directory has no names but `.` and `..`.
pub(super) fn is_empty(op: &Op<'_>, ino: Ino) -> Result<bool> {
    let mut empty = true;
    let prefix = key::inode(ino);
    op.store.scan_versions(
        Table::Dentries,
        &prefix,
        &prefix,
        op.head,
        &mut |_, _, value| {
            empty = value.is_empty();
            Ok(empty)
        },
    )?;
    Ok(empty)
}
