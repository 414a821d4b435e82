//! Reads what an address space consists of, from outside of the process.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::pages::{can_have_guards, guards};
use super::space::{
    AddressSpace, Backing, FileRef, Flags, LockFuture, Mapping, MmFields, PAGE, SharedKey,
};
use crate::proc::maps::{self, Map};
use crate::proc::{Malformed, stat};
use crate::report::Report;

/// Reads the address space of a process that stands still.
///
/// `pid` is the tracer's number of the process, `inside` the number in the box, for the report.
/// `scratch` are the ranges that the tracer itself mapped into the process; they are left out, and
/// tell what the program asked for all future mappings.
///
/// # Errors
/// `/proc` cannot be read, or does not say what it always says.
pub fn scan(pid: i32, inside: i32, scratch: &[Range<u64>]) -> io::Result<(AddressSpace, Report)> {
    let entries = maps::parse(&fs::read(format!("/proc/{pid}/smaps"))?).map_err(malformed)?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let mut report = Report::default();
    let mut mappings = Vec::new();
    let mut lock_future = None;
    let mut brk_end = None;
    let mut vdso = None;
    for entry in entries {
        if entry.path == b"[vsyscall]" {
            continue;
        }
        if scratch.iter().any(|range| overlap(&entry, range)) {
            lock_future = lock_future.or_else(|| future_lock(flags(&entry)));
        }
        for entry in without(entry, scratch) {
            match entry.path.as_slice() {
                b"[heap]" => brk_end = Some(entry.end),
                b"[vdso]" => vdso = Some(entry.start..entry.end),
                _ => {}
            }
            match refusal(&entry) {
                Some(reason) => refuse(&mut report, inside, &entry, reason),
                None => mappings.push(mapping(&entry, &pagemap)?),
            }
        }
    }
    let mut mm = mm_fields(pid)?;
    if let Some(end) = brk_end {
        mm.brk.end = end;
    }
    let (exe, exe_shared) = executable(pid)?;
    let vdso_crc = vdso.map(|range| crc_of(pid, range)).transpose()?;
    Ok((
        AddressSpace {
            mappings,
            mm,
            exe,
            exe_shared,
            lock_future,
            vdso_crc,
        },
        report,
    ))
}

fn overlap(map: &Map, range: &Range<u64>) -> bool {
    map.start < range.end && range.start < map.end
}

/// What is left of a mapping without the tracer's own ranges: the kernel joins these with anonymous
/// memory next to them.
fn without(map: Map, scratch: &[Range<u64>]) -> Vec<Map> {
    scratch.iter().fold(vec![map], |parts, range| {
        let cut = |part: Map| {
            if !overlap(&part, range) {
                return vec![part];
            }
            let (mut below, mut above) = (part.clone(), part);
            below.end = range.start;
            above.offset += range.end.saturating_sub(above.start);
            above.start = range.end;
            [below, above]
                .into_iter()
                .filter(|part| part.start < part.end)
                .collect()
        };
        parts.into_iter().flat_map(cut).collect()
    })
}

/// The file name that the kernel gives a mapping in `/proc/PID/map_files`.
pub(super) fn map_file(pid: i32, start: u64, end: u64) -> String {
    format!("/proc/{pid}/map_files/{start:x}-{end:x}")
}

/// The device number of the kernel's own shmem mount, where all shared memory without a path is.
pub(super) fn shmem_device() -> io::Result<u64> {
    static DEVICE: OnceLock<u64> = OnceLock::new();
    if let Some(device) = DEVICE.get() {
        return Ok(*device);
    }
    let probe = File::from(memfd_create("probe", MFdFlags::MFD_CLOEXEC)?);
    Ok(*DEVICE.get_or_init(|| probe.metadata().map_or(0, |metadata| metadata.dev())))
}

fn malformed(error: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn flags(map: &Map) -> Flags {
    let known = map
        .flags
        .iter()
        .filter_map(|word| Flags::from_mnemonic(*word));
    known.fold(Flags::NONE, Flags::with)
}

fn future_lock(flags: Flags) -> Option<LockFuture> {
    match (flags.has(Flags::LOCKED), flags.has(Flags::LOCKED_ON_FAULT)) {
        (_, true) => Some(LockFuture::OnFault),
        (true, false) => Some(LockFuture::Now),
        (false, false) => None,
    }
}

/// Why a mapping cannot be kept, if it cannot: the reason and the way out.
fn refusal(entry: &Map) -> Option<(&'static str, &'static str)> {
    let name = entry.path.as_slice();
    let flags = flags(entry);
    let special = name.starts_with(b"[") && entry.ino == 0;
    let uffd = Flags::UFFD_MISSING
        .with(Flags::UFFD_WRITE)
        .with(Flags::UFFD_MINOR);
    if special {
        let uprobes = name == b"[uprobes]";
        return uprobes.then_some(("a probe is set in it", "remove the uprobe first"));
    }
    if name.starts_with(b"/[aio]") {
        return Some((
            "rings of asynchronous I/O cannot be rebuilt",
            "let the program use io threads instead",
        ));
    }
    if flags.has(Flags::HUGETLB) || name.starts_with(b"/anon_hugepage") {
        return Some((
            "pages of hugetlb are not kept",
            "turn explicit huge pages off; transparent ones are kept",
        ));
    }
    if flags.has_any(Flags::IO.with(Flags::PFN)) || is_device(name) {
        return Some((
            "memory of a device cannot be kept",
            "close the device before the checkpoint",
        ));
    }
    if flags.has_any(uffd) {
        return Some((
            "a userfaultfd watches it",
            "unregister the userfaultfd first",
        ));
    }
    if flags.has(Flags::SHADOW_STACK) {
        return Some((
            "shadow stacks are not kept",
            "start the program without user shadow stacks",
        ));
    }
    if entry.kib("ProtectionKey").is_some_and(|key| key != 0) {
        return Some((
            "memory protection keys are not kept",
            "start the program without protection keys",
        ));
    }
    if !name.is_empty() && !name.starts_with(b"/") && !name.starts_with(b"[") {
        return Some((
            "what stands behind it has no path",
            "close it before the checkpoint",
        ));
    }
    None
}

fn is_device(name: &[u8]) -> bool {
    name.starts_with(b"/dev/") && !name.starts_with(b"/dev/shm/") && !name.starts_with(b"/dev/zero")
}

fn refuse(report: &mut Report, inside: i32, entry: &Map, (reason, way_out): (&str, &str)) {
    let name = String::from_utf8_lossy(&entry.path);
    let what = format!("mapping {:x}-{:x} {name}", entry.start, entry.end);
    report.refuse(inside, what.trim_end(), reason, way_out);
}

fn mapping(map: &Map, pagemap: &File) -> io::Result<Mapping> {
    let flags = flags(map);
    let backing = backing(map)?;
    let special = matches!(backing, Backing::Special(_));
    let guards = if special || !can_have_guards(flags) {
        Vec::new()
    } else {
        guards(pagemap, map.start, map.end)?
    };
    let path = map.path.as_slice();
    let given = path
        .strip_prefix(b"[anon:")
        .or_else(|| path.strip_prefix(b"[anon_shmem:"));
    let name = given
        .and_then(|name| name.strip_suffix(b"]"))
        .map(<[u8]>::to_vec);
    Ok(Mapping {
        start: map.start,
        end: map.end,
        flags,
        backing,
        name,
        guards,
    })
}

fn backing(map: &Map) -> io::Result<Backing> {
    let name = map.path.as_slice();
    if map.device != 0 && map.device == shmem_device()? {
        let key = shared_key(name, map.ino);
        return Ok(Backing::Shared {
            key,
            offset: map.offset,
        });
    }
    if map.device == 0 && map.ino == 0 {
        let anonymous = name.is_empty()
            || name.starts_with(b"[heap]")
            || name.starts_with(b"[stack")
            || name.starts_with(b"[anon:");
        return Ok(if anonymous {
            Backing::Anonymous
        } else {
            Backing::Special(String::from_utf8_lossy(name).into_owned())
        });
    }
    Ok(Backing::File {
        file: file_ref(name, map.ino),
        offset: map.offset,
    })
}

/// Parts the mark of a deleted file from its path.
fn file_ref(name: &[u8], ino: u64) -> FileRef {
    let (path, deleted) = match name.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (name, false),
    };
    FileRef {
        path: path.to_vec(),
        ino,
        deleted,
    }
}

/// System V segments are told from other shared memory by their name only.
fn shared_key(name: &[u8], ino: u64) -> SharedKey {
    match (name.starts_with(b"/SYSV"), i32::try_from(ino)) {
        (true, Ok(id)) => SharedKey::SysV(id),
        _ => SharedKey::Inode(ino),
    }
}

/// The fields of the address space that `stat` and `auxv` show.
fn mm_fields(pid: i32) -> io::Result<MmFields> {
    let stat = stat::parse(&fs::read(format!("/proc/{pid}/stat"))?).map_err(malformed)?;
    let range = |(start, end)| start..end;
    Ok(MmFields {
        code: range(stat.code),
        data: range(stat.data),
        brk: stat.start_brk..stat.start_brk,
        start_stack: stat.start_stack,
        args: range(stat.args),
        env: range(stat.env),
        auxv: fs::read(format!("/proc/{pid}/auxv"))?,
    })
}

fn executable(pid: i32) -> io::Result<(FileRef, Option<SharedKey>)> {
    let link = format!("/proc/{pid}/exe");
    let name = fs::read_link(&link)?.into_os_string().into_vec();
    let metadata = fs::metadata(&link)?;
    let shared = (metadata.dev() == shmem_device()?).then(|| SharedKey::Inode(metadata.ino()));
    Ok((file_ref(&name, metadata.ino()), shared))
}

fn crc_of(pid: i32, range: Range<u64>) -> io::Result<u32> {
    let pages = (range.end - range.start) / PAGE;
    let mut bytes = vec![0; usize::try_from(pages * PAGE).map_err(io::Error::other)?];
    super::copy::read_remote(pid, range.start, &mut bytes)?;
    Ok(crc32c::crc32c(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracers_own_pages_are_cut_out_wherever_they_lie() {
        let text = b"10000-20000 rw-p 00000000 00:00 0 \n";
        let parts = |scratch: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let map = maps::parse(text).unwrap().remove(0);
            let ranges: Vec<Range<u64>> = scratch.iter().map(|(start, end)| *start..*end).collect();
            without(map, &ranges)
                .iter()
                .map(|part| (part.start, part.end))
                .collect()
        };
        assert_eq!(parts(&[]), [(0x10000, 0x20000)]);
        assert_eq!(
            parts(&[(0x20000, 0x30000), (0, 0x10000)]),
            [(0x10000, 0x20000)]
        );
        assert_eq!(parts(&[(0xf000, 0x11000)]), [(0x11000, 0x20000)]);
        let two = [(0x12000, 0x13000), (0x1f000, 0x21000)];
        assert_eq!(parts(&two), [(0x10000, 0x12000), (0x13000, 0x1f000)]);
        assert_eq!(parts(&[(0, 0x30000)]), []);
    }
}
