//! From a path below the base to a descriptor, without leaving the base and without entering what is
//! hidden.
//!
//! Nearly all paths cross no mount. For them one `openat2` does, which refuses to cross any. Only when it
//! has refused is the path walked component by component, looking at each mount that is entered.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use parking_lot::Mutex;

use super::{Base, device};
use crate::error::Result;
use crate::sys;

/// Types of file systems whose content is not files on a disk.
const HIDDEN_TYPES: [&str; 29] = [
    "autofs",
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "cpuset",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fuse.branchpoint",
    "fuse.lxcfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sysfs",
    "tracefs",
    "usbfs",
];

/// Longest path handed to the kernel at once; its own limit is 4096 with the NUL.
const PATH_BYTES_MAX: usize = 4000;

/// Verdicts remembered before all are dropped: many more than a host has mounts.
const VERDICTS_MAX: usize = 1024;

/// What a path leads to.
pub(super) struct Found {
    /// An `O_PATH` descriptor; of a symbolic link itself.
    pub(super) fd: OwnedFd,
    /// Whether it is the root of a hidden mount, or the store.
    pub(super) hidden: bool,
}

/// What is known about the mounts of the host.
#[derive(Debug)]
pub(super) struct Mounts {
    /// The mount in which the base's directory lies: always visible, whatever its type.
    root: u64,
    /// Whether the mount of this never reused id is hidden.
    verdicts: Mutex<HashMap<u64, bool>>,
}

impl Mounts {
    /// Returns what is known when the base's directory has been opened: nothing but its own mount.
    pub(super) fn below(root: &OwnedFd) -> Result<Self, Errno> {
        let root = place_of(root)?.mount;
        Ok(Self {
            root,
            verdicts: Mutex::new(HashMap::new()),
        })
    }

    fn is_hidden(&self, fd: impl AsFd, mount: u64) -> bool {
        if mount == self.root {
            return false;
        }
        // Ordinary ids are given again after an unmount, so only unique ones can be remembered.
        let unique = sys::statx(&fd, libc::STATX_MNT_ID_UNIQUE, libc::AT_STATX_DONT_SYNC)
            .ok()
            .filter(|stat| stat.stx_mask & libc::STATX_MNT_ID_UNIQUE != 0)
            .map(|stat| stat.stx_mnt_id);
        if let Some(known) = unique.and_then(|id| self.verdicts.lock().get(&id).copied()) {
            return known;
        }
        let hidden = match type_of_mount(mount) {
            Some(kind) => HIDDEN_TYPES.contains(&kind.as_str()),
            // Detached meanwhile, or of another namespace: nobody can say what it is.
            None => true,
        };
        if let Some(id) = unique {
            let mut verdicts = self.verdicts.lock();
            if verdicts.len() >= VERDICTS_MAX {
                verdicts.clear();
            }
            verdicts.insert(id, hidden);
        }
        hidden
    }
}

impl Base {
    /// Finds `path`; `None` if it leads nowhere, or into something hidden.
    pub(super) fn find(&self, path: &[u8]) -> Result<Option<Found>> {
        if !is_well_formed(path) {
            return Err(self.failed("use the path", path, Errno::EINVAL));
        }
        if self.is_inside_store(path) {
            return Ok(None);
        }
        let found = match open_beneath(&self.root, path, ResolveFlag::RESOLVE_NO_XDEV) {
            Err(Errno::EXDEV) => self.walk(path),
            result => result.map(|fd| {
                Some(Found {
                    fd,
                    hidden: self.is_store(path),
                })
            }),
        };
        match found {
            Ok(Some(found)) => Ok(Some(found)),
            // A link in the middle is as good as nothing there: the store resolves links itself. A
            // component that is too long cannot exist.
            Ok(None) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG) => {
                self.check().map(|()| None)
            }
            Err(errno) => Err(self.failed("find", path, errno)),
        }
    }

    /// Finds a path that crosses mounts.
    fn walk(&self, path: &[u8]) -> Result<Option<Found>, Errno> {
        let mut fd = self.root.try_clone().map_err(errno_of)?;
        let mut mount = self.mounts.root;
        let mut components = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = components.next() {
            fd = open_beneath(&fd, name, ResolveFlag::empty())?;
            let place = place_of(&fd)?;
            let hidden = place.id == self.store_id
                || (place.mount != mount && self.mounts.is_hidden(&fd, place.mount));
            mount = place.mount;
            if hidden {
                let is_last = components.peek().is_none();
                return Ok(is_last.then_some(Found { fd, hidden }));
            }
        }
        Ok(Some(Found { fd, hidden: false }))
    }

    fn is_store(&self, path: &[u8]) -> bool {
        self.store_path.as_deref() == Some(path)
    }

    fn is_inside_store(&self, path: &[u8]) -> bool {
        self.store_path
            .as_deref()
            .and_then(|store| path.strip_prefix(store))
            .is_some_and(|rest| rest.first() == Some(&b'/'))
    }
}

/// Where a descriptor's thing is.
struct Place {
    mount: u64,
    /// Device and inode.
    id: (u64, u64),
}

/// Asks the kernel only, never the server of a FUSE mount, which may be this process.
fn place_of(fd: impl AsFd) -> Result<Place, Errno> {
    let mask = libc::STATX_MNT_ID | libc::STATX_INO;
    let stat = sys::statx(fd, mask, libc::AT_STATX_DONT_SYNC)?;
    if stat.stx_mask & libc::STATX_MNT_ID == 0 {
        // Kernels before 5.8.
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(Place {
        mount: stat.stx_mnt_id,
        id: (device(&stat), stat.stx_ino),
    })
}

/// Opens `path` below `dir` as `O_PATH`, in pieces if it is too long for one call.
fn open_beneath(dir: &OwnedFd, path: &[u8], also: ResolveFlag) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(
        ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_MAGICLINKS
            | also,
    );
    if path.is_empty() {
        return openat2(dir, c".", how);
    }
    let mut held: Option<OwnedFd> = None;
    let mut rest = path;
    loop {
        let from = held.as_ref().unwrap_or(dir);
        let (piece, next) = split_piece(rest);
        let fd = openat2(from, OsStr::from_bytes(piece), how)?;
        match next {
            None => return Ok(fd),
            Some(next) => (held, rest) = (Some(fd), next),
        }
    }
}

/// Splits off as many components as fit in one call. A single one that does not fit is left to the kernel,
/// which refuses it.
fn split_piece(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    if path.len() <= PATH_BYTES_MAX {
        return (path, None);
    }
    let slash = path[..PATH_BYTES_MAX]
        .iter()
        .rposition(|byte| *byte == b'/')
        .or_else(|| path.iter().position(|byte| *byte == b'/'));
    match slash {
        Some(at) => (&path[..at], Some(&path[at + 1..])),
        None => (path, None),
    }
}

fn is_well_formed(path: &[u8]) -> bool {
    path.is_empty()
        || !path.contains(&0)
            && path
                .split(|byte| *byte == b'/')
                .all(|name| !name.is_empty() && name != b"." && name != b"..")
}

/// Returns the type of the mount, by the list that the kernel keeps for this thread's namespace.
fn type_of_mount(mount: u64) -> Option<String> {
    let list = fs::read("/proc/thread-self/mountinfo").ok()?;
    String::from_utf8_lossy(&list).lines().find_map(|line| {
        let (id, _) = line.split_once(' ')?;
        let (_, kind) = line.split_once(" - ")?;
        (id.parse() == Ok(mount)).then(|| kind.split(' ').next().unwrap_or("").to_owned())
    })
}

fn errno_of(error: std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_could_escape_are_not_well_formed() {
        for good in [&b""[..], b"a", b"a/b", b"...", b"\xff/ ", b".hidden"] {
            assert!(is_well_formed(good), "{good:?}");
        }
        for bad in [
            &b"/"[..],
            b"/a",
            b"a/",
            b"a//b",
            b".",
            b"..",
            b"a/../b",
            b"a/.",
            b"a\0b",
        ] {
            assert!(!is_well_formed(bad), "{bad:?}");
        }
    }

    #[test]
    fn long_paths_are_split_between_components() {
        let path = [&[b'a'; 200][..]; 60].join(&b'/');
        let mut rest = Some(&path[..]);
        let mut pieces = Vec::new();
        while let Some(path) = rest {
            let (piece, next) = split_piece(path);
            assert!(piece.len() <= PATH_BYTES_MAX && is_well_formed(piece));
            pieces.push(piece);
            rest = next;
        }
        assert_eq!(pieces.len(), 4);
        assert_eq!(pieces.join(&b'/'), path);
        let name = [b'a'; 5000];
        assert_eq!(split_piece(&name), (&name[..], None));
    }

    #[test]
    fn hidden_types_are_sorted_and_unique() {
        assert!(HIDDEN_TYPES.is_sorted_by(|a, b| a < b));
    }
}
