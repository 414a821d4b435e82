//! The mount point: attaching, detaching, and clearing away what a dead daemon left.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::error::{Error, Result};
use crate::fuse::device::Device;
use crate::fuse::holders;
use crate::fuse::wire;

/// Filesystem type in the mount table; also how our own mounts are recognised.
pub(super) const KIND: &str = "fuse.branchpoint";

/// How a session is to be attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attach<'a> {
    /// Name in the first column of the mount table.
    pub(super) source: &'a str,
    /// Whether nothing may be written.
    pub(super) read_only: bool,
    /// Whether users other than the mounting one may enter.
    pub(super) everybody: bool,
}

/// Mounts at `dir`, with the help of the setuid program if this process may not. Returns the session's
/// device.
pub(super) fn attach(dir: &Path, how: Attach<'_>) -> Result<File> {
    let by_helper = || {
        wire::attach_by_helper(dir, how.source, how.read_only)
            .map_err(|error| Error::io(format!("mount at '{}'", dir.display()), error))
    };
    let device = match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(device) => device,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return by_helper(),
        Err(error) => {
            let what = "open '/dev/fuse' (is the fuse module loaded?)";
            return Err(Error::io(what, error));
        }
    };
    let mut options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        nix::unistd::getuid(),
        nix::unistd::getgid(),
    );
    if how.everybody {
        options.push_str(",allow_other");
    }
    let flags = if how.read_only {
        MsFlags::MS_RDONLY
    } else {
        MsFlags::empty()
    };
    match mount(
        Some(how.source),
        dir,
        Some(KIND),
        flags,
        Some(options.as_str()),
    ) {
        Ok(()) => Ok(device),
        Err(Errno::EPERM) => by_helper(),
        Err(error) => Err(Error::io(format!("mount at '{}'", dir.display()), error)),
    }
}

/// Checks that `dir` can be mounted on; returns its absolute path without symbolic links.
pub(super) fn prepare(dir: &Path) -> Result<PathBuf> {
    clean_stale_mount(dir)?;
    let bad = |reason: String| Error::BadPath {
        path: dir.to_owned(),
        reason,
    };
    let real = dir.canonicalize().map_err(|error| {
        bad(format!(
            "{error}; a directory is needed that exists and can be reached"
        ))
    })?;
    if !real.is_dir() {
        return Err(bad("it is not a directory".to_owned()));
    }
    if let Some(found) = top_mount_at(&real)
        && found.kind == KIND
    {
        let reason = format!(
            "'{}' is mounted there already; unmount it first",
            found.source
        );
        return Err(bad(reason));
    }
    Ok(real)
}

/// Detaches the mount with `device`, whose session is alive, at `dir`. If it is gone or another one
/// covers it, that is left alone. A busy one is refused with who uses it, unless `force` tears it out
/// of their hands.
pub(super) fn detach(dir: &Path, device: Device, force: bool) -> Result<()> {
    if Device::of(dir).ok() != Some(device) {
        return Ok(());
    }
    match umount2(dir, MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => return Ok(()),
        Err(Errno::EBUSY) => {}
        Err(Errno::EPERM) => return fusermount_detach(dir, device, force),
        Err(error) => return Err(Error::io(format!("unmount '{}'", dir.display()), error)),
    }
    if !force {
        return Err(busy_error(dir, device));
    }
    // Ends the session for whoever still uses it: their next operation fails, and nothing more of
    // theirs reaches the view.
    let _ = umount2(dir, MntFlags::MNT_FORCE | MntFlags::UMOUNT_NOFOLLOW);
    match umount2(dir, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) | Err(Errno::EINVAL) => Ok(()),
        Err(error) => Err(Error::io(format!("detach '{}'", dir.display()), error)),
    }
}

fn busy_error(dir: &Path, device: Device) -> Error {
    let by = holders::describe(device).map_or_else(
        || "something has a file or a directory of it open, or is mounted on it".to_owned(),
        |who| format!("it is in use by {who}"),
    );
    let reason = format!("{by}; close that first, or unmount with force");
    Error::BadPath {
        path: dir.to_owned(),
        reason,
    }
}

/// Without privileges, the helper that mounted must unmount.
fn fusermount_detach(dir: &Path, device: Device, force: bool) -> Result<()> {
    match helper(dir, force) {
        Ok(true) => Ok(()),
        Ok(false) => Err(busy_error(dir, device)),
        Err(error) => Err(Error::io("run fusermount3", error)),
    }
}

/// Lets the setuid helper unmount, or with `force` detach, `dir`. Returns whether it did.
fn helper(dir: &Path, force: bool) -> io::Result<bool> {
    let mut command = std::process::Command::new("fusermount3");
    command.arg("-u").arg("-q");
    if force {
        command.arg("-z");
    }
    Ok(command.arg("--").arg(dir).status()?.success())
}

/// Removes a mount of ours at `dir` whose daemon is gone (every access that the kernel cannot answer
/// from memory says "Transport endpoint is not connected"). Returns whether there was one. Live mounts
/// and mounts of other kinds are left alone.
pub fn clean_stale_mount(dir: &Path) -> Result<bool> {
    let absolute = std::path::absolute(dir)
        .map_err(|error| Error::io(format!("find '{}'", dir.display()), error))?;
    // The root of a dead mount may not be asked any more; the directory that it is in can be.
    let real = match (absolute.parent(), absolute.components().next_back()) {
        (Some(parent), Some(Component::Normal(name))) => parent
            .canonicalize()
            .map(|parent| parent.join(name))
            .unwrap_or(absolute),
        _ => absolute,
    };
    match top_mount_at(&real) {
        Some(found) if found.kind == KIND => {}
        _ => return Ok(false),
    }
    // The kernel keeps no answer to this one.
    if nix::sys::statfs::statfs(&real).err() != Some(Errno::ENOTCONN) {
        return Ok(false);
    }
    let failed = |error: io::Error| {
        Error::io(
            format!("remove the dead mount at '{}'", real.display()),
            error,
        )
    };
    match umount2(&real, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
        Ok(()) => Ok(true),
        // Without privileges, the helper that mounted must unmount.
        Err(Errno::EPERM) => match helper(&real, true) {
            Ok(true) => Ok(true),
            Ok(false) => Err(failed(Errno::EPERM.into())),
            Err(error) => Err(failed(error)),
        },
        Err(error) => Err(failed(error.into())),
    }
}

/// A line of the mount table.
#[derive(Debug, PartialEq, Eq)]
struct Mounted {
    kind: String,
    source: String,
}

/// Returns what is mounted at exactly `dir`, the topmost if several are.
fn top_mount_at(dir: &Path) -> Option<Mounted> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    table
        .split(|&byte| byte == b'\n')
        .filter_map(|line| mounted_at(line, dir))
        .next_back()
}

/// Reads a line of `mountinfo`: `ID PARENT MAJ:MIN ROOT DIR OPTIONS FIELD… - KIND SOURCE OPTIONS`.
fn mounted_at(line: &[u8], dir: &Path) -> Option<Mounted> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    if unescape(fields.get(4)?) != dir.as_os_str().as_bytes() {
        return None;
    }
    let dash = fields.iter().skip(5).position(|field| *field == b"-")? + 5;
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    Some(Mounted {
        kind: text(fields.get(dash + 1)?),
        source: text(fields.get(dash + 2)?),
    })
}

/// Undoes the octal escapes of the mount table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = rest
            .get(1..4)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(value) if byte == b'\\' => {
                out.push(value);
                rest = &rest[4..];
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    out
}

/// Turns a failed start of the session into our error.
pub(super) fn start_error(dir: &Path, error: io::Error) -> Error {
    Error::io(
        format!("start the session of the mount at '{}'", dir.display()),
        error,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mount_table_is_read() {
        let line = b"36 35 0:52 / /mnt/a\\040b rw,relatime shared:1 - fuse.branchpoint /s#main rw";
        let found = mounted_at(line, Path::new("/mnt/a b")).unwrap();
        assert_eq!(
            found,
            Mounted {
                kind: KIND.to_owned(),
                source: "/s#main".to_owned()
            }
        );
        assert_eq!(mounted_at(line, Path::new("/mnt/a")), None);
    }

    #[test]
    fn a_live_directory_is_not_a_stale_mount() {
        assert!(!clean_stale_mount(Path::new("/")).unwrap());
        assert!(!clean_stale_mount(Path::new("/does/not/exist")).unwrap());
    }
}
