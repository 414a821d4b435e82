//! Putting another view in the place of the one that is mounted.
//!
//! 1. Flush, so that the old view has everything that was written before.
//! 2. At the gate, with no operation under way: the caller makes the new view, the difference of the
//!    two is taken, the kernel's references move over, the new view is shown.
//! 3. The kernel forgets all names at once, and the pages and attributes of the inodes that differ.
//!    Operations go on meanwhile, on the new view; only what the kernel writes back from pages of a
//!    differing inode that it has not dropped yet is led to the old view.
//! 4. With writeback caching, the kernel takes the size and the times of a file that it knows from
//!    nobody but itself. Files that no program holds are dropped by their names. Those that programs
//!    hold are reached through the hidden directory and truncated to the size that they have in the new
//!    view, and their time is set; the daemon changes nothing when the thread that does this asks.
//!
//! The caller of [`Mount::switch`] and the threads that serve the mount must be different threads: the
//! kernel waits for answers while it forgets.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;

use crate::attr::{Attr, FileKind};
use crate::error::Result;
use crate::fuse::control;
use crate::fuse::mount::Mount;
use crate::fuse::node::{Node, SlotId};
use crate::fuse::slot::{Gate, Settling};
use crate::fuse::sys;
use crate::id::Ino;
use crate::view::View;

/// What the kernel must forget.
#[derive(Debug, Default)]
struct Outdated {
    /// Inodes whose content or attributes may differ and that the kernel knows.
    inodes: Vec<Ino>,
    /// Of those, regular files that the new view has.
    files: Vec<Ino>,
}

impl Mount {
    /// Shows the view that `next` returns instead of the present one, in place: descriptors,
    /// mappings and working directories stay and mean the same inodes with the new content. Those of
    /// inodes that the new view does not have get `ESTALE`.
    ///
    /// `next` runs while no operation on the mount can, so it must not touch the mount. If it fails,
    /// nothing has changed.
    pub fn switch(&self, next: impl FnOnce() -> Result<Arc<View>>) -> Result<()> {
        let _one_at_a_time = self.settled.lock();
        self.flush_settled()?;
        let one_by_one = !self.session.notifier.has_epochs()?;
        let (outdated, names) = self.slot.exchange(|gate| {
            // Afterwards the old view answers nothing any more.
            let mut names = HashSet::new();
            if one_by_one {
                add_root_names(&gate.view, &mut names)?;
            }
            let new = next()?;
            Ok((exchange(gate, new), names))
        })?;
        let forgotten = self.forget(&outdated, names);
        self.slot.exchange(|gate| {
            gate.settling = None;
            Ok(())
        })?;
        forgotten
    }

    /// Steps 3 and 4.
    fn forget(&self, outdated: &Outdated, names: HashSet<Vec<u8>>) -> Result<()> {
        if !self.session.notifier.expire_all_entries()? {
            self.forget_names(names)?;
        }
        for &ino in &outdated.inodes {
            self.forget_pages(ino)?;
        }
        if outdated.files.is_empty() {
            return Ok(());
        }
        for &ino in &outdated.files {
            self.evict(ino)?;
        }
        let Some(inodes) = control::open(&self.session.dir, self.session.device) else {
            return Ok(());
        };
        let view = self.slot.view();
        for &ino in outdated.files.iter().filter(|ino| view.knows(**ino)) {
            if let Ok(attr) = view.getattr(ino) {
                correct_size_and_time(&inodes, ino, &attr);
            }
        }
        Ok(())
    }

    /// Makes the kernel drop an inode that no program holds; it asks for everything the next time.
    /// What it has then not forgotten is held open, or it has not come round to saying so; correcting
    /// such a file is merely superfluous.
    fn evict(&self, ino: Ino) -> Result<()> {
        for (parent, name) in self.slot.view().names_of(ino)? {
            if let Some(parent) = (Node {
                slot: SlotId::FIRST,
                ino: parent,
            })
            .raw()
            {
                self.session.notifier.invalidate_entry(parent, &name)?;
            }
        }
        Ok(())
    }

    fn forget_pages(&self, ino: Ino) -> Result<()> {
        let Some(node) = (Node {
            slot: SlotId::FIRST,
            ino,
        })
        .raw() else {
            return Ok(());
        };
        self.session.notifier.invalidate_inode(node)?;
        // A write that came while the pages were being dropped may have been of a page read after the
        // exchange. It went to the old view, so the page, now clean, must not stay.
        let gate = self.slot.enter();
        let caught = gate
            .settling
            .as_ref()
            .is_some_and(|settling| settling.release(ino));
        drop(gate);
        if caught {
            self.session.notifier.invalidate_inode(node)
        } else {
            Ok(())
        }
    }

    /// On kernels that cannot expire all names at once: every name below every directory that the
    /// kernel knows. It finds those itself if the root's own are dropped: `names`, which the old view
    /// had, and those of the new one.
    fn forget_names(&self, mut names: HashSet<Vec<u8>>) -> Result<()> {
        add_root_names(&self.slot.view(), &mut names)?;
        let root = Ino::ROOT.0;
        names
            .iter()
            .try_for_each(|name| self.session.notifier.invalidate_entry(root, name))
    }
}

/// Adds the names in the root of `view` to `names`.
fn add_root_names(view: &View, names: &mut HashSet<Vec<u8>>) -> Result<()> {
    view.readdir(Ino::ROOT, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.insert(entry.name.clone());
        }
        true
    })
}

/// Step 4 for one file. Failures are left: the file is being executed, or its last descriptor was
/// closed meanwhile, and then the kernel asks for everything the next time.
fn correct_size_and_time(inodes: &OwnedFd, ino: Ino, attr: &Attr) {
    let found = openat(
        inodes,
        ino.to_string().as_str(),
        OFlag::O_PATH | OFlag::O_CLOEXEC,
        Mode::empty(),
    );
    let Ok(file) = found else { return };
    let Ok(known) = sys::identity_of(&file) else {
        return;
    };
    if known.size != attr.size {
        // A path that leads to the descriptor's inode costs no message, unlike a second lookup.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let length = i64::try_from(attr.size).unwrap_or(i64::MAX);
        let _ = nix::unistd::truncate(path.as_str(), length);
    }
    if known.size != attr.size || known.mtime != (attr.mtime.secs, attr.mtime.nanos) {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mtime = TimeSpec::new(attr.mtime.secs, i64::from(attr.mtime.nanos));
        let omit = TimeSpec::UTIME_OMIT;
        let _ = utimensat(
            AT_FDCWD,
            path.as_str(),
            &omit,
            &mtime,
            UtimensatFlags::FollowSymlink,
        );
    }
}

/// Step 2, once the new view is there. From here on nothing may fail: the store has moved on.
fn exchange(gate: &mut Gate, new: Arc<View>) -> Outdated {
    let old = gate.view.clone();
    let references = old.take_references();
    let known: HashSet<Ino> = references
        .iter()
        .map(|&(ino, _)| ino)
        .chain([Ino::ROOT])
        .collect();
    let inodes: Vec<Ino> = match old.delta_inodes(&new) {
        Ok(delta) => delta
            .inodes
            .into_iter()
            .chain(delta.dirs)
            .filter(|ino| known.contains(ino))
            .collect(),
        Err(error) => {
            log::error!("cannot tell what differs, so the kernel forgets everything: {error}");
            known.into_iter().collect()
        }
    };
    new.adopt_references(&references);
    let is_file = |ino: &Ino| {
        matches!(
            new.getattr(*ino),
            Ok(Attr {
                kind: FileKind::Regular,
                ..
            })
        )
    };
    let files: Vec<Ino> = inodes.iter().copied().filter(is_file).collect();
    let thread = nix::unistd::gettid().as_raw().cast_unsigned();
    gate.settling = Some(Settling::new(old, thread, inodes.iter().copied()));
    gate.view = new;
    Outdated { inodes, files }
}
