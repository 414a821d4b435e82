//! Making things: files, directories, links.

use nix::errno::Errno;

use crate::attr::{Attr, Caller, FileKind};
use crate::error::Result;
use crate::id::Ino;
use crate::layout::key::{self, ChangeOf};
use crate::layout::record::InodeRecord;
use crate::view::View;
use crate::view::acl;
use crate::view::edit::Edit;

/// The longest target of a symbolic link, in bytes.
const TARGET_BYTES_MAX: usize = 4095;
/// What a new directory says its size is, as on ext4.
const DIRECTORY_BYTES: u64 = 4096;

/// What is to be made.
struct New<'a> {
    kind: FileKind,
    perm: u32,
    umask: u32,
    rdev: u32,
    target: &'a [u8],
}

impl View {
    /// Makes a file of any kind but directory and symbolic link.
    ///
    /// # Errors
    /// EEXIST, ENOENT (the directory was removed), ENOTDIR, ENAMETOOLONG, EINVAL.
    #[expect(clippy::too_many_arguments, reason = "they are mknod's")]
    pub fn mknod(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        kind: FileKind,
        perm: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<Attr> {
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(Errno::EINVAL.into());
        }
        self.make(
            caller,
            parent,
            Some(name),
            &New {
                kind,
                perm,
                umask,
                rdev,
                target: &[],
            },
        )
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`View::mknod`].
    pub fn mkdir(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        perm: u32,
        umask: u32,
    ) -> Result<Attr> {
        let kind = FileKind::Directory;
        self.make(
            caller,
            parent,
            Some(name),
            &New {
                kind,
                perm,
                umask,
                rdev: 0,
                target: &[],
            },
        )
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As [`View::mknod`]; ENAMETOOLONG for a target that no path can be.
    pub fn symlink(&self, caller: Caller, parent: Ino, name: &[u8], target: &[u8]) -> Result<Attr> {
        if target.len() > TARGET_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let kind = FileKind::Symlink;
        self.make(
            caller,
            parent,
            Some(name),
            &New {
                kind,
                perm: 0o777,
                umask: 0,
                rdev: 0,
                target,
            },
        )
    }

    /// Makes a regular file without a name (`O_TMPFILE`) and remembers it once.
    ///
    /// # Errors
    /// As [`View::mknod`].
    pub fn create_unnamed(
        &self,
        caller: Caller,
        parent: Ino,
        perm: u32,
        umask: u32,
    ) -> Result<Attr> {
        let kind = FileKind::Regular;
        self.make(
            caller,
            parent,
            None,
            &New {
                kind,
                perm,
                umask,
                rdev: 0,
                target: &[],
            },
        )
    }

    fn make(
        &self,
        caller: Caller,
        parent: Ino,
        name: Option<&[u8]>,
        new: &New<'_>,
    ) -> Result<Attr> {
        let op = self.changing()?;
        let _locks = self.locks.exclusive(&[parent]);
        let dir = op.directory(parent)?;
        if dir.record.attr.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        let place = name.map(|name| op.name(parent, name)).transpose()?;
        if place.as_ref().is_some_and(|place| place.record.is_some()) {
            return Err(Errno::EEXIST.into());
        }
        let mut ino = op.store.new_ino()?;
        if parent.is_annex() {
            ino = ino.into_annex();
        }
        let mut edit = Edit::new(&op);
        let now = edit.now;
        let is_dir = new.kind == FileKind::Directory;
        let setgid = dir.record.attr.perm & libc::S_ISGID != 0;
        let mut perm = new.perm & 0o7777;
        let mut has_xattrs = false;
        if new.kind != FileKind::Symlink {
            match acl::default_of(&op, &dir.record)? {
                None => perm &= !(new.umask & 0o777),
                Some(default) => {
                    let inherited = default.for_new(perm);
                    perm = inherited.perm(perm);
                    if !inherited.is_plain() {
                        let value = inherited.encode();
                        acl::put(&mut edit, ino, acl::ACCESS, value);
                        has_xattrs = true;
                    }
                    if is_dir {
                        acl::put(&mut edit, ino, acl::DEFAULT, default.encode());
                        has_xattrs = true;
                    }
                }
            }
        }
        if setgid && is_dir {
            perm |= libc::S_ISGID;
        }
        let (nlink, size, blocks) = match new.kind {
            FileKind::Directory => (2, DIRECTORY_BYTES, DIRECTORY_BYTES / 512),
            FileKind::Symlink => (1, new.target.len() as u64, 0),
            _ => (u32::from(name.is_some()), 0, 0),
        };
        let attr = Attr {
            ino,
            kind: new.kind,
            perm,
            nlink,
            uid: caller.uid,
            gid: if setgid {
                dir.record.attr.gid
            } else {
                caller.gid
            },
            rdev: new.rdev,
            size,
            blocks,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        edit.put_inode(InodeRecord {
            attr,
            parent,
            name: name.unwrap_or_default().to_vec(),
            born: op.head,
            in_base: false,
            has_xattrs,
            target: new.target.to_vec(),
            cuts: Vec::new(),
        });
        match &place {
            Some(place) => {
                edit.put_name(place, ino, new.kind);
                edit.touch_dir(parent, i32::from(is_dir))?;
            }
            None => {
                edit.put_thing(ChangeOf::Orphan, &key::inode(ino), Vec::new());
                self.remember(ino, 1);
            }
        }
        edit.commit()?;
        Ok(attr)
    }

    /// Gives an inode a further name.
    ///
    /// # Errors
    /// EPERM for a directory, EEXIST, ENOENT (the inode lost its last name), EMLINK.
    pub fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Attr> {
        let op = self.changing()?;
        let _locks = self.locks.exclusive(&[ino, new_parent]);
        let dir = op.directory(new_parent)?;
        let mut record = op.inode(ino)?.record.clone();
        if record.attr.kind == FileKind::Directory {
            return Err(Errno::EPERM.into());
        }
        if dir.record.attr.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        let place = op.name(new_parent, new_name)?;
        if place.record.is_some() {
            return Err(Errno::EEXIST.into());
        }
        let mut edit = Edit::new(&op);
        let first_name = record.attr.nlink == 0;
        record.attr.nlink = record.attr.nlink.checked_add(1).ok_or(Errno::EMLINK)?;
        record.attr.ctime = edit.now;
        if first_name {
            // Only a file made without a name, or one still open, can come back to life.
            record.parent = new_parent;
            record.name = new_name.to_vec();
            edit.erase_thing(ChangeOf::Orphan, &key::inode(ino));
        } else {
            edit.put_thing(
                ChangeOf::Link,
                &key::link(ino, new_parent, new_name),
                vec![1],
            );
        }
        let (attr, kind) = (record.attr, record.attr.kind);
        edit.put_inode(record);
        edit.put_name(&place, ino, kind);
        edit.touch_dir(new_parent, 0)?;
        edit.commit()?;
        Ok(attr)
    }
}
