//! Doing what is planned.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{Mode, SFlag, UtimensatFlags, mknod, utimensat};
use nix::sys::time::TimeSpec;

use super::host::{Host, Spot};
use super::plan::{Step, What};
use super::{ApplyOutcome, Job, same};
use crate::attr::{Attr, FileKind, Timestamp};
use crate::error::Result;
use crate::id::Ino;
use crate::kv::{Batch, Durability, Table};
use crate::layout::key;
use crate::layout::record::BaseRecord;
use crate::progress::{Progress, Watch};
use crate::{rdev, sys, tree};

/// Bytes of content in memory at a time.
const CHUNK_BYTES: u32 = 1 << 20;

impl Job<'_> {
    /// Does all steps but those in `done`: removals that make room, directories, files, links,
    /// other removals, attributes of directories.
    pub(super) fn carry(
        &self,
        host: &Host,
        done: &BTreeSet<usize>,
        outcome: &mut ApplyOutcome,
        progress: &mut Watch<'_>,
    ) -> Result<()> {
        let steps = &self.plan.steps;
        outcome.unchanged = done.len() as u64;
        let open: Vec<&Step> = steps
            .iter()
            .enumerate()
            .filter_map(|(number, step)| (!done.contains(&number)).then_some(step))
            .collect();
        let total = Some(open.len() as u64);
        let mut finished = 0;
        let mut tell = || {
            finished += 1;
            // What was begun is completed: half of it in a directory helps nobody.
            let _ = progress(Progress {
                done: finished,
                total,
                what: "applying changes",
            });
        };
        for step in open.iter().rev() {
            if matches!(step.what, What::Remove { early: true }) {
                self.remove(host, step, outcome)?;
                tell();
            }
        }
        for step in &open {
            if let What::Directory(_) = step.what {
                self.make_directory(host, step)?;
            }
        }
        for step in &open {
            if let What::Write(ino) = step.what {
                self.write(host, step, ino, outcome)?;
                tell();
            }
        }
        for step in &open {
            if let What::Link { first, .. } = &step.what {
                self.link(host, step, first, outcome)?;
                tell();
            }
        }
        for step in open.iter().rev() {
            if matches!(step.what, What::Remove { early: false }) {
                self.remove(host, step, outcome)?;
                tell();
            }
        }
        for step in open.iter().rev() {
            if let What::Directory(ino) = step.what {
                self.directory_attributes(host, step, ino, outcome)?;
                tell();
            }
        }
        // What had been done before an interruption may not have been noted.
        for step in steps {
            self.note(step)?;
        }
        if self.is_base {
            self.store.sync()?;
        }
        Ok(())
    }

    fn was_directory(&self, step: &Step) -> Result<bool> {
        let old = step.old.map(|old| self.old.getattr(old)).transpose()?;
        Ok(old.is_some_and(|attr| attr.kind == FileKind::Directory))
    }

    fn remove(&self, host: &Host, step: &Step, outcome: &mut ApplyOutcome) -> Result<()> {
        let spot = host.spot(&step.path)?;
        self.forget(step)?;
        spot.clear(self.was_directory(step)?)?;
        spot.sync()?;
        outcome.removed += 1;
        Ok(())
    }

    fn make_directory(&self, host: &Host, step: &Step) -> Result<()> {
        let spot = host.spot(&step.path)?;
        match fs::symlink_metadata(&spot.path) {
            Ok(there) if there.is_dir() => return Ok(()),
            Ok(_) => {
                self.forget(step)?;
                self.note_absent(step)?;
                spot.clear(false)?;
            }
            Err(_) => {}
        }
        fs::create_dir(&spot.path).map_err(|error| spot.failed("make directory", error))?;
        fs::set_permissions(&spot.path, Permissions::from_mode(0o700))
            .map_err(|error| spot.failed("make directory", error))?;
        spot.sync()
    }

    fn write(&self, host: &Host, step: &Step, ino: Ino, outcome: &mut ApplyOutcome) -> Result<()> {
        let spot = host.spot(&step.path)?;
        let attr = self.new.getattr(ino)?;
        let fresh = spot.beside(&self.temporary(&step.path));
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(spot.failed("write", error));
            }
            _ => {}
        }
        let file = self.create(&spot, &fresh, &attr)?;
        let file = match file {
            Some(file) => {
                self.content(&spot, &file, &attr)?;
                outcome.bytes += attr.size;
                Some(file)
            }
            None => None,
        };
        self.attributes(&spot, &fresh, None, &attr, outcome)?;
        if let Some(file) = file {
            file.sync_all()
                .map_err(|error| spot.failed("sync", error))?;
        }
        self.replace(&spot, &fresh, step)?;
        outcome.written += 1;
        Ok(())
    }

    fn link(
        &self,
        host: &Host,
        step: &Step,
        first: &[u8],
        outcome: &mut ApplyOutcome,
    ) -> Result<()> {
        let spot = host.spot(&step.path)?;
        let from = host.spot(first)?;
        let fresh = spot.beside(&self.temporary(&step.path));
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(spot.failed("link", error));
            }
            _ => {}
        }
        fs::hard_link(&from.path, &fresh).map_err(|error| spot.failed("link", error))?;
        self.replace(&spot, &fresh, step)?;
        outcome.hard_links += 1;
        Ok(())
    }

    /// The same name each time: what an interruption left is found and replaced.
    fn temporary(&self, path: &[u8]) -> String {
        let (_, name) = tree::split(path);
        format!(".branchpoint-{:016x}.new", self.store.hash(name).0)
    }

    fn replace(&self, spot: &Spot, fresh: &Path, step: &Step) -> Result<()> {
        if self.was_directory(step)? && fs::symlink_metadata(&spot.path).is_ok_and(|m| m.is_dir()) {
            self.note_absent(step)?;
            spot.clear(true)?;
        }
        self.forget(step)?;
        spot.take(fresh)?;
        self.note(step)
    }

    /// A host's inode number may soon be another file's.
    fn forget(&self, step: &Step) -> Result<()> {
        if !self.is_base {
            return Ok(());
        }
        self.target.forget_file(&step.path);
        let Some(stat) = self.target.stat(&step.path)? else {
            return Ok(());
        };
        let is_dir = FileKind::from_mode(stat.mode) == Some(FileKind::Directory);
        if is_dir || stat.nlink > 1 {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.delete(Table::Base, key::base_index(stat.dev, stat.ino));
        self.store.write(&batch, Durability::Process)
    }

    /// Notes that nothing is at a path of the base for a moment: an interruption may come then.
    fn note_absent(&self, step: &Step) -> Result<()> {
        if !self.is_base {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.put(Table::Base, key::base_applied(&step.path), Vec::new());
        self.store.write(&batch, Durability::Disk)
    }

    /// Notes what is at a path of the base now: the next apply has to begin with that.
    fn note(&self, step: &Step) -> Result<()> {
        if !self.is_base {
            return Ok(());
        }
        let value = match self.target.stat(&step.path)? {
            None => Vec::new(),
            Some(stat) => BaseRecord {
                path: step.path.clone(),
                ctime: stat.ctime,
                size: stat.size,
                listed: false,
            }
            .encode(),
        };
        let mut batch = Batch::new();
        batch.put(Table::Base, key::base_applied(&step.path), value);
        self.store.write(&batch, Durability::Process)
    }

    fn create(&self, spot: &Spot, fresh: &Path, attr: &Attr) -> Result<Option<File>> {
        let failed = |error: std::io::Error| spot.failed("write", error);
        let kind = match attr.kind {
            FileKind::Regular => {
                return File::options()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(fresh)
                    .map(Some)
                    .map_err(failed);
            }
            FileKind::Symlink => {
                let target = self.new.readlink(attr.ino)?;
                let target = std::ffi::OsStr::from_bytes(&target);
                std::os::unix::fs::symlink(target, fresh).map_err(failed)?;
                return Ok(None);
            }
            FileKind::Fifo => SFlag::S_IFIFO,
            FileKind::Socket => SFlag::S_IFSOCK,
            FileKind::CharDevice => SFlag::S_IFCHR,
            FileKind::BlockDevice => SFlag::S_IFBLK,
            FileKind::Directory => return Err(Errno::EISDIR.into()),
        };
        let (major, minor) = rdev::split(attr.rdev);
        let device = libc::makedev(major, minor);
        mknod(fresh, kind, Mode::S_IRUSR | Mode::S_IWUSR, device)
            .map_err(|errno| failed(errno.into()))?;
        Ok(None)
    }

    fn content(&self, spot: &Spot, file: &File, attr: &Attr) -> Result<()> {
        let failed = |error| spot.failed("write", error);
        file.set_len(attr.size).map_err(failed)?;
        let mut bytes = Vec::new();
        let mut offset = 0;
        while offset < attr.size {
            bytes.clear();
            self.new.read(attr.ino, offset, CHUNK_BYTES, &mut bytes)?;
            if bytes.is_empty() {
                return Err(Errno::EIO.into());
            }
            if bytes.iter().any(|byte| *byte != 0) {
                file.write_all_at(&bytes, offset).map_err(failed)?;
            }
            offset += bytes.len() as u64;
        }
        Ok(())
    }

    /// Gives what is at `path` the attributes of `attr`; those that `old` has too stay as they are.
    fn attributes(
        &self,
        spot: &Spot,
        path: &Path,
        old: Option<&Attr>,
        attr: &Attr,
        outcome: &mut ApplyOutcome,
    ) -> Result<()> {
        let failed = |error: std::io::Error| spot.failed("set the attributes of", error);
        let differs = |part: fn(&Attr) -> u32| old.is_none_or(|old| part(old) != part(attr));
        let now = fs::symlink_metadata(path).map_err(failed)?;
        let uid = (differs(|a| a.uid) && now.uid() != attr.uid).then_some(attr.uid);
        let gid = (differs(|a| a.gid) && now.gid() != attr.gid).then_some(attr.gid);
        if uid.is_some() || gid.is_some() {
            std::os::unix::fs::lchown(path, uid, gid).map_err(failed)?;
        }
        self.xattrs(spot, path, old, attr, outcome)?;
        let is_link = attr.kind == FileKind::Symlink;
        if !is_link && differs(|a| a.perm) {
            fs::set_permissions(path, Permissions::from_mode(attr.perm)).map_err(failed)?;
        }
        let (atime, mtime) = (time(attr.atime), time(attr.mtime));
        utimensat(
            AT_FDCWD,
            path,
            &atime,
            &mtime,
            UtimensatFlags::NoFollowSymlink,
        )
        .map_err(|errno| failed(errno.into()))
    }

    fn xattrs(
        &self,
        spot: &Spot,
        path: &Path,
        old: Option<&Attr>,
        attr: &Attr,
        outcome: &mut ApplyOutcome,
    ) -> Result<()> {
        let failed = |errno: Errno| spot.failed("set the attributes of", errno);
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| failed(Errno::EINVAL));
        let target = text(path.as_os_str().as_bytes())?;
        let wanted = same::xattrs(self.new, attr.ino)?;
        let before = match old {
            Some(old) => same::xattrs(self.old, old.ino)?,
            None => Vec::new(),
        };
        for (name, _) in &before {
            if !wanted.iter().any(|(kept, _)| kept == name) {
                match sys::remove_xattr(&target, &text(name)?) {
                    Ok(()) | Err(Errno::ENODATA) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
        }
        for wanted in &wanted {
            if before.contains(wanted) {
                continue;
            }
            match sys::set_xattr(&target, &text(&wanted.0)?, &wanted.1) {
                Ok(()) => {}
                Err(Errno::EOPNOTSUPP | Errno::EPERM) => outcome.attributes_skipped += 1,
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }

    fn directory_attributes(
        &self,
        host: &Host,
        step: &Step,
        ino: Ino,
        outcome: &mut ApplyOutcome,
    ) -> Result<()> {
        let spot = host.spot(&step.path)?;
        let attr = self.new.getattr(ino)?;
        // Of a directory that was there before, only what the source changed.
        let old = match step.old {
            Some(old) if old == ino => Some(self.old.getattr(old)?),
            _ => None,
        };
        self.attributes(&spot, &spot.path, old.as_ref(), &attr, outcome)?;
        spot.sync()?;
        outcome.directories += 1;
        Ok(())
    }
}

fn time(time: Timestamp) -> TimeSpec {
    TimeSpec::new(time.secs, time.nanos.into())
}
