//! Gives every process its memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::fstat;

use super::life::Work;
use super::tree::{Tree, mappings};
use crate::error::{Error, Result};
use crate::memory::fill::{self, Target};
use crate::memory::finish::finish;
use crate::memory::place::Specials;
use crate::memory::plan::{self, Hand, Opening};
use crate::memory::shared;
use crate::memory::space::{FileRef, SharedKey};
use crate::memory::sysv;
use crate::proc::maps::Map;
use crate::resource::files::{Files, Kind, Place, Rebuilt};
use crate::snapshot::Space;
use crate::sys::pidfd;

/// Everything that processes need from the tracer to have their memory.
pub(super) struct Sources {
    files: HashMap<Opening, OwnedFd>,
    executables: HashMap<FileRef, OwnedFd>,
    pieces: HashMap<SharedKey, File>,
    segments: HashMap<i32, u64>,
    namespace: File,
}

impl Sources {
    /// Opens the files and makes the shared memory.
    pub(super) fn open(work: &Work, place: &dyn Place, rebuilt: &Rebuilt) -> Result<Self> {
        let snapshot = &work.snapshot;
        let (mut files, mut executables) = (HashMap::new(), HashMap::new());
        let mut pieces = memfds(&snapshot.files, rebuilt)?;
        for piece in &snapshot.shared {
            if let Entry::Vacant(entry) = pieces.entry(piece.key) {
                let file = shared::create(piece, &*work.store)
                    .map_err(|error| Error::io("making shared memory", error))?;
                entry.insert(file);
            }
        }
        for space in &snapshot.spaces {
            for opening in plan::openings(&space.space) {
                if !files.contains_key(&opening) {
                    let flags = if opening.write {
                        OFlag::O_RDWR
                    } else {
                        OFlag::O_RDONLY
                    };
                    files.insert(opening.clone(), open(place, &opening.file, flags)?);
                }
            }
            let exe = &space.space.exe;
            if space.space.exe_shared.is_none() && !executables.contains_key(exe) {
                executables.insert(exe.clone(), open(place, exe, OFlag::O_RDONLY)?);
            }
        }
        let path = format!("/proc/{}/ns/ipc", work.init);
        let namespace =
            File::open(path).map_err(|error| Error::io("opening the ipc namespace", error))?;
        if !snapshot.segments.is_empty() {
            sysv::create(namespace.as_fd(), &snapshot.segments, &*work.store)
                .map_err(|error| Error::io("making System V memory", error))?;
        }
        let segments = sysv::sizes(&snapshot.segments);
        Ok(Self {
            files,
            executables,
            pieces,
            segments,
            namespace,
        })
    }

    /// The addresses that no process may have the runner at.
    pub(super) fn give(&self, work: &Work, tree: &Tree, tracer: i32) -> Result<()> {
        let spaces = &work.snapshot.spaces;
        for space in spaces {
            self.lay_out(tree, space, tracer)?;
        }
        let mut pidfds = Vec::new();
        for space in spaces {
            let pid = of(tree, space)?.pid;
            let pidfd = pidfd::open(pid)
                .map_err(|error| Error::io(format!("opening process {pid}"), error))?;
            pidfds.push((pid, pidfd));
        }
        let targets: Vec<Target<'_>> = spaces
            .iter()
            .zip(&pidfds)
            .map(|(space, (pid, pidfd))| Target {
                pid: *pid,
                pidfd: pidfd.as_fd(),
                object: space.object,
                space: &space.space,
                runs: &space.runs,
            })
            .collect();
        fill::fill(&targets, work.twins, &*work.store)
            .map_err(|error| Error::io("bringing memory back", error))?;
        for space in spaces {
            let calls = finish(&space.space, tree.region.data());
            of(tree, space)?.run(&tree.region, &calls)?;
        }
        for piece in &work.snapshot.shared {
            if let Some(file) = self.pieces.get(&piece.key) {
                shared::seal(piece, file)
                    .map_err(|error| Error::io("sealing shared memory", error))?;
            }
        }
        if !work.snapshot.segments.is_empty() {
            sysv::mark(self.namespace.as_fd(), &work.snapshot.segments)
                .map_err(|error| Error::io("marking System V memory", error))?;
        }
        Ok(())
    }

    fn lay_out(&self, tree: &Tree, space: &Space, tracer: i32) -> Result<()> {
        let made = of(tree, space)?;
        let specials = specials(&mappings(made.pid)?);
        let files = self
            .files
            .iter()
            .map(|(key, file)| (key.clone(), file.as_raw_fd()))
            .collect();
        let shared = self
            .pieces
            .iter()
            .map(|(key, file)| (*key, file.as_raw_fd()))
            .collect();
        let exe = match space.space.exe_shared {
            Some(key) => self.pieces.get(&key).map(AsRawFd::as_raw_fd),
            None => self
                .executables
                .get(&space.space.exe)
                .map(AsRawFd::as_raw_fd),
        };
        let missing = |what: &str| Error::Image(format!("process {}: {what}", space.pid));
        let hand = Hand {
            tracer,
            free: tracer + 1,
            files: &files,
            shared: &shared,
            segments: &self.segments,
            exe: exe.ok_or_else(|| missing("its executable is missing"))?,
        };
        let keep = [tree.region.range()];
        let calls = plan::lay_out(&space.space, &specials, &keep, &hand, tree.region.data())
            .ok_or_else(|| missing("its memory needs what this kernel has not"))?;
        made.run(&tree.region, &calls).map(drop)
    }
}

fn of<'a>(tree: &'a Tree, space: &Space) -> Result<&'a super::maker::Made> {
    let made = tree.made.get(&space.pid);
    made.ok_or_else(|| Error::Image(format!("process {} has memory but no life", space.pid)))
}

/// What the kernel itself has mapped.
pub(super) fn specials(maps: &[Map]) -> Specials {
    let kernel = maps
        .iter()
        .filter(|map| map.ino == 0 && (map.path.starts_with(b"[v") || map.path == b"[uprobes]"));
    kernel
        .filter(|map| map.path != b"[vsyscall]")
        .map(|map| {
            (
                String::from_utf8_lossy(&map.path).into_owned(),
                map.start..map.end,
            )
        })
        .collect()
}

/// Memory files that descriptors refer to: the mappings show the same.
fn memfds(files: &Files, rebuilt: &Rebuilt) -> Result<HashMap<SharedKey, File>> {
    let mut found = HashMap::new();
    for (description, file) in files.descriptions.iter().zip(&rebuilt.files) {
        let Kind::Memfd(index) = &description.kind else {
            continue;
        };
        let Some(memfd) = files.memfds.get(*index) else {
            continue;
        };
        let key = SharedKey::Inode(memfd.ino);
        if let Entry::Vacant(entry) = found.entry(key) {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            let opened = File::options().read(true).write(true).open(path);
            entry.insert(opened.map_err(|error| Error::io("opening a memory file", error))?);
        }
    }
    Ok(found)
}

/// Opens a file of a mapping: by its path if that still leads to it, and else by its number.
fn open(place: &dyn Place, file: &FileRef, flags: OFlag) -> Result<OwnedFd> {
    let failed = |error: std::io::Error| {
        Error::io(
            format!("opening {}", String::from_utf8_lossy(&file.path)),
            error,
        )
    };
    if !file.deleted {
        let path = Path::new(std::ffi::OsStr::from_bytes(&file.path));
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        if let Ok(opened) = openat2(place.root(), path, how)
            && fstat(&opened).is_ok_and(|stat| stat.st_ino == file.ino)
        {
            return Ok(opened);
        }
    }
    place.open_inode(file.ino, flags.bits()).map_err(failed)
}
