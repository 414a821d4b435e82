//! Which processes use a mount, and their files on it, as `/proc` shows them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::fuse::device::Device;
use crate::fuse::sys;

/// Processes named in a message; the rest are counted.
const NAMED_MAX: usize = 4;

/// Returns a phrase that names the processes which have something of the mount open, or `None` if
/// none is seen.
pub(super) fn describe(device: Device) -> Option<String> {
    let mut users: Vec<String> = Vec::new();
    let mut more = 0;
    for pid in processes() {
        if !uses(&pid, device) {
            continue;
        }
        if users.len() < NAMED_MAX {
            let name = fs::read_to_string(pid.join("comm")).unwrap_or_default();
            let number = pid
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            users.push(format!("process {number} ({})", name.trim()));
        } else {
            more += 1;
        }
    }
    match (users.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(users.join(", ")),
        (false, more) => Some(format!("{} and {more} more", users.join(", "))),
    }
}

/// Calls `visit` with a descriptor of each regular file of the mount that one of these processes (their
/// directories in `/proc`) could be writing: open for writing, or mapped shared and writable. One file may
/// come several times.
pub(super) fn for_each_writable(
    processes: impl Iterator<Item = PathBuf>,
    device: Device,
    visit: &mut dyn FnMut(&File),
) {
    for pid in processes {
        for entry in entries(&pid.join("fd")) {
            if is_regular_on(&entry, device)
                && is_open_for_writing(&pid, &entry)
                && let Some(file) = reopen(&entry)
            {
                visit(&file);
            }
        }
        for range in writable_mappings(&pid, device) {
            if let Some(file) = reopen(&pid.join("map_files").join(range)) {
                visit(&file);
            }
        }
    }
}

/// Returns the directories of all processes in `/proc`.
pub(super) fn processes() -> impl Iterator<Item = PathBuf> {
    let is_number = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    };
    entries(Path::new("/proc")).filter(is_number)
}

/// Lists a directory; a process that ends meanwhile has nothing.
fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

fn uses(pid: &Path, device: Device) -> bool {
    let is_on = |path: PathBuf| Device::of(&path).is_ok_and(|found| found == device);
    is_on(pid.join("cwd"))
        || is_on(pid.join("root"))
        || entries(&pid.join("fd")).any(is_on)
        || mapped_ranges(pid, device, |_| true).next().is_some()
}

fn is_regular_on(path: &Path, device: Device) -> bool {
    sys::identity(path).is_ok_and(|found| {
        found.device == (device.major, device.minor) && found.mode & libc::S_IFMT == libc::S_IFREG
    })
}

fn is_open_for_writing(pid: &Path, descriptor: &Path) -> bool {
    let Some(number) = descriptor.file_name() else {
        return false;
    };
    let info = fs::read_to_string(pid.join("fdinfo").join(number)).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|text| i32::from_str_radix(text.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// Returns the address ranges, as `map_files` names them, that can dirty pages of the mount's files.
fn writable_mappings(pid: &Path, device: Device) -> impl Iterator<Item = String> {
    mapped_ranges(pid, device, |permissions| {
        permissions.as_bytes().get(3) == Some(&b's')
    })
}

fn mapped_ranges(
    pid: &Path,
    device: Device,
    wanted: fn(&str) -> bool,
) -> impl Iterator<Item = String> {
    let number = format!("{:02x}:{:02x}", device.major, device.minor);
    let lines = File::open(pid.join("maps"))
        .ok()
        .map(|file| BufReader::new(file).split(b'\n'));
    lines
        .into_iter()
        .flatten()
        .map_while(Result::ok)
        .filter_map(move |line| {
            let line = String::from_utf8_lossy(&line);
            let mut fields = line.split_ascii_whitespace();
            let (range, permissions) = (fields.next()?, fields.next()?);
            let on_device = fields.nth(1)? == number;
            // The kernel leaves out the leading zeros that it prints in `maps` on some machines.
            (on_device && wanted(permissions)).then(|| {
                let short = |end: &str| match end.trim_start_matches('0') {
                    "" => "0".to_owned(),
                    digits => digits.to_owned(),
                };
                range.split('-').map(short).collect::<Vec<_>>().join("-")
            })
        })
}

/// Opens what a link of `/proc` leads to; reading is enough to have pages written.
fn reopen(link: &Path) -> Option<File> {
    let flags = libc::O_NOATIME | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let open = |flags| {
        fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(link)
    };
    // O_NOATIME is for the owner and the superuser only.
    open(flags).or_else(|_| open(flags & !libc::O_NOATIME)).ok()
}
