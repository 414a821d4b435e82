//! Renaming: one place for all four modes.

use nix::errno::Errno;

use crate::attr::{Caller, FileKind};
use crate::error::Result;
use crate::id::Ino;
use crate::layout::key::{self, ChangeOf};
use crate::layout::record::InodeRecord;
use crate::view::View;
use crate::view::edit::Edit;
use crate::view::op::{Name, Op};
use crate::view::remove::{drop_name, forget_name};

/// One end of a rename.
#[derive(Clone, Copy)]
struct End<'a> {
    dir: Ino,
    name: &'a [u8],
}

impl View {
    /// Moves a name, as `renameat2` does.
    ///
    /// # Errors
    /// ENOENT, EEXIST, ENOTDIR, EISDIR, ENOTEMPTY, EINVAL (a directory into itself), ENAMETOOLONG.
    pub fn rename(
        &self,
        caller: Caller,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: crate::attr::RenameMode,
    ) -> Result<()> {
        use crate::attr::RenameMode;
        let op = self.changing()?;
        op.directory(parent)?;
        op.directory(new_parent)?;
        let (from, to) = (
            End { dir: parent, name },
            End {
                dir: new_parent,
                name: new_name,
            },
        );
        // Directory renames change the shape of the tree: one at a time, so that two of them
        // cannot make a circle together.
        let _tree = self.tree.lock();
        loop {
            let source = op.name(from.dir, from.name)?.require()?;
            let target = op.name(to.dir, to.name)?.record;
            let target_ino = target.map_or(source.ino, |target| target.ino);
            let _locks = self
                .locks
                .exclusive(&[from.dir, to.dir, source.ino, target_ino]);
            let (from_place, to_place) = (op.name(from.dir, from.name)?, op.name(to.dir, to.name)?);
            let unchanged = from_place.record.map(|record| record.ino) == Some(source.ino)
                && to_place.record.map(|record| record.ino) == target.map(|target| target.ino);
            if !unchanged {
                continue;
            }
            if op.inode(to.dir)?.record.attr.nlink == 0 {
                return Err(Errno::ENOENT.into());
            }
            if source.kind == FileKind::Directory {
                refuse_loop(&op, source.ino, to.dir)?;
            }
            let mut edit = Edit::new(&op);
            match (mode, target) {
                (RenameMode::NoReplace, Some(_)) => return Err(Errno::EEXIST.into()),
                (RenameMode::Exchange, None) => return Err(Errno::ENOENT.into()),
                (RenameMode::Exchange, Some(target)) => {
                    if target.kind == FileKind::Directory {
                        refuse_loop(&op, target.ino, from.dir)?;
                    }
                    if source.ino == target.ino {
                        return Ok(());
                    }
                    exchange(&mut edit, (from, &from_place), (to, &to_place))?;
                }
                // POSIX: two names of one file stay as they are.
                (_, Some(target)) if target.ino == source.ino => return Ok(()),
                (_, target) => {
                    if let Some(target) = target {
                        let (old, new) = (target.kind, source.kind);
                        match (new == FileKind::Directory, old == FileKind::Directory) {
                            (true, false) => return Err(Errno::ENOTDIR.into()),
                            (false, true) => return Err(Errno::EISDIR.into()),
                            _ => {}
                        }
                        if drop_name(&mut edit, &to_place, to.dir, to.name)? {
                            self.end_inode(&mut edit, target.ino)?;
                        }
                        if old == FileKind::Directory {
                            edit.touch_dir(to.dir, -1)?;
                        }
                    }
                    replace(&mut edit, (from, &from_place), (to, &to_place))?;
                }
            }
            if mode == RenameMode::Whiteout {
                self.put_whiteout(&mut edit, caller, from, &from_place)?;
            }
            return edit.commit();
        }
    }

    /// Leaves a character device 0:0 where the source was, as overlay filesystems want it.
    fn put_whiteout(
        &self,
        edit: &mut Edit<'_>,
        caller: Caller,
        from: End<'_>,
        place: &Name,
    ) -> Result<()> {
        let ino = edit.op.store.new_ino()?;
        let now = edit.now;
        // As for everything made in a setgid directory.
        let dir = edit.inode(from.dir)?.attr;
        let gid = match dir.perm & libc::S_ISGID {
            0 => caller.gid,
            _ => dir.gid,
        };
        let attr = crate::attr::Attr {
            ino,
            kind: FileKind::CharDevice,
            perm: 0,
            nlink: 1,
            uid: caller.uid,
            gid,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        edit.put_inode(InodeRecord {
            attr,
            parent: from.dir,
            name: from.name.to_vec(),
            born: edit.op.head,
            in_base: false,
            has_xattrs: false,
            target: Vec::new(),
            cuts: Vec::new(),
        });
        // The name was just taken away in this edit; put it back with the new inode.
        edit.put_name(place, ino, FileKind::CharDevice);
        Ok(())
    }
}

/// Moves the source's name to a free place.
fn replace(
    edit: &mut Edit<'_>,
    (from, from_place): (End<'_>, &Name),
    (to, to_place): (End<'_>, &Name),
) -> Result<()> {
    let source = from_place.require()?;
    edit.remove_name(from_place);
    edit.put_name(to_place, source.ino, source.kind);
    let mut record = edit.inode(source.ino)?;
    move_name(edit, &mut record, from, to)?;
    record.attr.ctime = edit.now;
    edit.put_inode(record);
    let moved = i32::from(source.kind == FileKind::Directory && from.dir != to.dir);
    edit.touch_dir(from.dir, -moved)?;
    edit.touch_dir(to.dir, moved)
}

fn exchange(
    edit: &mut Edit<'_>,
    (from, from_place): (End<'_>, &Name),
    (to, to_place): (End<'_>, &Name),
) -> Result<()> {
    let (source, target) = (from_place.require()?, to_place.require()?);
    edit.put_name(from_place, target.ino, target.kind);
    edit.put_name(to_place, source.ino, source.kind);
    for (ino, old, new) in [(source.ino, from, to), (target.ino, to, from)] {
        let mut record = edit.inode(ino)?;
        move_name(edit, &mut record, old, new)?;
        record.attr.ctime = edit.now;
        edit.put_inode(record);
    }
    let (source_dir, target_dir) = (
        source.kind == FileKind::Directory,
        target.kind == FileKind::Directory,
    );
    let moved = if from.dir == to.dir {
        0
    } else {
        i32::from(source_dir) - i32::from(target_dir)
    };
    edit.touch_dir(from.dir, -moved)?;
    edit.touch_dir(to.dir, moved)
}

/// Replaces one of an inode's own names by another.
fn move_name(
    edit: &mut Edit<'_>,
    record: &mut InodeRecord,
    from: End<'_>,
    to: End<'_>,
) -> Result<()> {
    if record.parent == from.dir && record.name == from.name {
        record.parent = to.dir;
        record.name = to.name.to_vec();
    } else {
        forget_name(edit, record, from.dir, from.name)?;
        let link = key::link(record.attr.ino, to.dir, to.name);
        edit.put_thing(ChangeOf::Link, &link, vec![1]);
    }
    Ok(())
}

/// Refuses to move a directory below itself.
fn refuse_loop(op: &Op<'_>, moved: Ino, mut into: Ino) -> Result<()> {
    while into != Ino::ROOT {
        if into == moved {
            return Err(Errno::EINVAL.into());
        }
        into = op.inode(into)?.record.parent;
    }
    if moved == Ino::ROOT {
        Err(Errno::EBUSY.into())
    } else {
        Ok(())
    }
}
