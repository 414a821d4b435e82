//! Putting the members of an archive into a view.

use std::io::Read;

use nix::errno::Errno;

use super::Importer;
use super::entry::{Member, below_root};
use super::reader::failed;
use crate::attr::{Attr, Caller, FileKind, SetAttr, SetTime, XattrMode};
use crate::error::{Error, Result};
use crate::id::Ino;
use crate::tree;

/// Bytes of content in memory at a time.
const CHUNK_BYTES: usize = 1 << 20;

impl Importer<'_> {
    pub(super) fn member(&mut self, member: &Member, content: &mut impl Read) -> Result<()> {
        use tar::EntryType;
        if member.path.is_empty() {
            if member.kind != EntryType::Directory {
                return Err(self.refuse(member, "would replace the root directory"));
            }
            self.outcome.directories += 1;
            return self.attributes(member, Ino::ROOT);
        }
        let (dir, name) = tree::split(&member.path);
        let dir = self.directory(member, dir)?;
        match member.kind {
            EntryType::Directory => {
                self.outcome.directories += 1;
                let ino = match self.find(dir, name)? {
                    Some(there) if there.kind == FileKind::Directory => there.ino,
                    _ => {
                        self.make_room(member, dir, name)?;
                        self.named(member, self.view.mkdir(Caller::ROOT, dir, name, 0o700, 0))?
                    }
                };
                self.attributes(member, ino)
            }
            EntryType::Link => {
                self.outcome.hard_links += 1;
                self.hard_link(member, dir, name)
            }
            EntryType::Symlink => {
                self.outcome.symlinks += 1;
                self.make_room(member, dir, name)?;
                let made = self.view.symlink(Caller::ROOT, dir, name, &member.target);
                let ino = self.named(member, made)?;
                self.attributes(member, ino)
            }
            EntryType::Char | EntryType::Block | EntryType::Fifo => {
                self.outcome.special_files += 1;
                let kind = match member.kind {
                    EntryType::Char => FileKind::CharDevice,
                    EntryType::Block => FileKind::BlockDevice,
                    _ => FileKind::Fifo,
                };
                let ino = self.make(member, dir, name, kind)?;
                self.attributes(member, ino)
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.outcome.files += 1;
                let ino = self.make(member, dir, name, FileKind::Regular)?;
                self.content(member, ino, content)?;
                self.attributes(member, ino)
            }
            _ => Err(self.refuse(member, "is of a kind that a branch cannot hold")),
        }
    }

    fn refuse(&self, member: &Member, why: &str) -> Error {
        Error::BadInput {
            what: format!("archive member '{}' {why}", member.shown),
        }
    }

    /// Names the member in an error that is about its name.
    fn named(&self, member: &Member, made: Result<Attr>) -> Result<Ino> {
        match made {
            Ok(attr) => Ok(attr.ino),
            Err(Error::Posix(errno)) => {
                Err(self.refuse(member, &format!("cannot be made: {}", errno.desc())))
            }
            Err(error) => Err(error),
        }
    }

    fn find(&self, dir: Ino, name: &[u8]) -> Result<Option<Attr>> {
        match self.view.lookup(dir, name) {
            Ok(attr) => Ok(Some(attr)),
            Err(Error::Posix(Errno::ENOENT)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a directory of the branch, made if it is missing. Links are not followed: they could
    /// be the archive's own, and lead anywhere.
    fn directory(&mut self, member: &Member, path: &[u8]) -> Result<Ino> {
        let mut at = Ino::ROOT;
        for name in path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            at = match self.lookup_named(member, at, name)? {
                Some(there) => match there.kind {
                    FileKind::Directory => there.ino,
                    FileKind::Symlink => {
                        let link = String::from_utf8_lossy(name).into_owned();
                        let why = format!("has a path through the symbolic link '{link}'");
                        return Err(self.refuse(member, &why));
                    }
                    _ => return Err(self.refuse(member, "has a path through a file")),
                },
                None => self.named(member, self.view.mkdir(Caller::ROOT, at, name, 0o755, 0))?,
            };
        }
        Ok(at)
    }

    fn lookup_named(&self, member: &Member, dir: Ino, name: &[u8]) -> Result<Option<Attr>> {
        match self.find(dir, name) {
            Err(Error::Posix(errno)) => {
                Err(self.refuse(member, &format!("has a bad path: {}", errno.desc())))
            }
            other => other,
        }
    }

    /// Removes what has the member's name.
    fn make_room(&self, member: &Member, dir: Ino, name: &[u8]) -> Result<()> {
        let Some(there) = self.lookup_named(member, dir, name)? else {
            return Ok(());
        };
        if there.kind != FileKind::Directory {
            return self.view.unlink(dir, name);
        }
        match self.view.rmdir(dir, name) {
            Err(Error::Posix(Errno::ENOTEMPTY)) => Err(self.refuse(
                member,
                "would replace a directory of the branch that is not empty",
            )),
            other => other,
        }
    }

    fn make(&self, member: &Member, dir: Ino, name: &[u8], kind: FileKind) -> Result<Ino> {
        self.make_room(member, dir, name)?;
        let rdev = member.rdev;
        let made = self
            .view
            .mknod(Caller::ROOT, dir, name, kind, 0o600, 0, rdev);
        self.named(member, made)
    }

    fn hard_link(&mut self, member: &Member, dir: Ino, name: &[u8]) -> Result<()> {
        let target = below_root(&member.target, &member.shown, &mut self.outcome)?;
        let (target_dir, target_name) = tree::split(&target);
        let shown = String::from_utf8_lossy(&member.target).into_owned();
        let missing = format!("is a hard link to '{shown}', which is not there");
        if target.is_empty() {
            return Err(self.refuse(member, &missing));
        }
        let target_dir = self.directory(member, target_dir)?;
        let Some(there) = self.lookup_named(member, target_dir, target_name)? else {
            return Err(self.refuse(member, &missing));
        };
        if there.kind == FileKind::Directory {
            return Err(self.refuse(member, "is a hard link to a directory"));
        }
        let old = self.lookup_named(member, dir, name)?;
        if old.is_some_and(|old| old.ino == there.ino) {
            return Ok(());
        }
        self.make_room(member, dir, name)?;
        let made = self.view.link(there.ino, dir, name);
        self.named(member, made).map(drop)
    }

    fn content(&mut self, member: &Member, ino: Ino, content: &mut impl Read) -> Result<()> {
        let whole = [(0, member.size)];
        let (parts, size) = match &member.sparse {
            Some(sparse) => (sparse.parts.as_slice(), sparse.size),
            None => (&whole[..], member.size),
        };
        let mut buffer = vec![0; CHUNK_BYTES];
        for (offset, length) in parts.iter().copied() {
            let mut done = 0;
            while done < length {
                let wanted = usize::try_from(length - done).unwrap_or(CHUNK_BYTES);
                let bytes = &mut buffer[..wanted.min(CHUNK_BYTES)];
                match content.read_exact(bytes) {
                    Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                        return Err(self.refuse(member, "is cut short: the archive ends inside it"));
                    }
                    other => other.map_err(failed)?,
                }
                // Zeros become a hole; the size is set below.
                if bytes.iter().any(|byte| *byte != 0) {
                    self.view.write(ino, offset + done, bytes, false)?;
                }
                done += bytes.len() as u64;
            }
            self.outcome.bytes += length;
        }
        let change = SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
        self.view.setattr(Caller::ROOT, ino, &change).map(drop)
    }

    /// Gives a new or kept inode what the archive says of it. Owners first, for a change of owner
    /// drops privileges; the mode after the attributes, one of which may change it.
    fn attributes(&mut self, member: &Member, ino: Ino) -> Result<()> {
        let owners = SetAttr {
            uid: Some(member.uid),
            gid: Some(member.gid),
            ..SetAttr::default()
        };
        self.view.setattr(Caller::ROOT, ino, &owners)?;
        for name in self.view.listxattr(ino)? {
            if !member.xattrs.iter().any(|(kept, _)| *kept == name) {
                self.view.removexattr(ino, &name)?;
            }
        }
        for (name, value) in &member.xattrs {
            let set = self
                .view
                .setxattr(Caller::ROOT, ino, name, value, XattrMode::Either);
            match set {
                Err(Error::Posix(Errno::EOPNOTSUPP)) => self.outcome.attributes_skipped += 1,
                Err(Error::Posix(errno)) => {
                    let name = String::from_utf8_lossy(name).into_owned();
                    let why = format!(
                        "has an attribute '{name}' that is not valid: {}",
                        errno.desc()
                    );
                    return Err(self.refuse(member, &why));
                }
                other => other?,
            }
        }
        let is_link = member.kind == tar::EntryType::Symlink;
        let rest = SetAttr {
            perm: (!is_link).then_some(member.perm),
            mtime: Some(SetTime::At(member.mtime)),
            ..SetAttr::default()
        };
        self.view.setattr(Caller::ROOT, ino, &rest)?;
        if member.kind == tar::EntryType::Directory {
            self.dir_times.push((ino, member.mtime));
        }
        Ok(())
    }
}
