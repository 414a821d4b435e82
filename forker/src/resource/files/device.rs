//! `/dev/null` and its like: devices without state.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::stat::{FileStat, fstat};
use serde::{Deserialize, Serialize};

use super::capture::Taken;
use super::model::Description;
use super::place::{Place, Source};
use super::trouble::{Trouble, way};
use super::{regular, sys};

/// A device that holds no state of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Path beneath the tree's root through which it was opened.
    pub path: Vec<u8>,
    /// Major and minor number.
    pub number: (u32, u32),
}

/// Memory devices of which every open is like every other.
const STATELESS: [(u32, u32, &[u8]); 5] = [
    (1, 3, b"/dev/null"),
    (1, 5, b"/dev/zero"),
    (1, 7, b"/dev/full"),
    (1, 8, b"/dev/random"),
    (1, 9, b"/dev/urandom"),
];

/// Major and minor number of a device node.
pub(super) fn number(stat: &FileStat) -> (u32, u32) {
    (libc::major(stat.st_rdev), libc::minor(stat.st_rdev))
}

pub(super) fn capture(source: &dyn Source, taken: &Taken) -> Result<Device, Trouble> {
    let number = number(&taken.stat);
    let known = taken.stat.st_mode & libc::S_IFMT == libc::S_IFCHR
        && STATELESS.iter().any(|entry| (entry.0, entry.1) == number);
    if known {
        return Ok(Device {
            path: regular::path_beneath(source, &taken.link),
            number,
        });
    }
    Err(Trouble::refuse(
        format!(
            "the device {} ({}:{}) has state that cannot be read",
            String::from_utf8_lossy(&taken.link),
            number.0,
            number.1
        ),
        way("close the device before the checkpoint"),
    ))
}

/// Opens it again: by its path, or where the box keeps its own.
pub(super) fn rebuild(
    place: &dyn Place,
    state: &Device,
    description: &Description,
) -> io::Result<OwnedFd> {
    let flags = description.flags & !libc::O_ASYNC | libc::O_CLOEXEC | libc::O_NOCTTY;
    let usual = STATELESS
        .iter()
        .find(|entry| (entry.0, entry.1) == state.number)
        .map_or(&b"/dev/null"[..], |entry| entry.2);
    for path in [state.path.as_slice(), usual] {
        if let Ok(file) = sys::open_beneath(place.root(), path, flags, 0)
            && number(&fstat(file.as_fd())?) == state.number
        {
            return Ok(file);
        }
    }
    Err(io::Error::other(format!(
        "there is no device {}:{}",
        state.number.0, state.number.1
    )))
}
