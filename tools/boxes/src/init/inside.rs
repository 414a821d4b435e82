//! What a box sees: its root, and what lies on top of the view.
//!
//! ```text
//! /               the view; no device nodes work in it
//! /proc           of the box's own pid namespace; what would change the host is read-only or hidden
//! /sys            of the box's own network namespace, read-only
//! /dev            a small read-only tmpfs with the devices below: nothing in it can change, so there is nothing
//!                 that a checkpoint would have to keep
//! /dev/pts        the box's own terminals
//! /dev/shm        the view's directory of the same name: it rolls back with all other files
//! ```
//! `/tmp`, `/run` and `/var` are not covered, and so are part of the view.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod, umask};
use nix::unistd::{chdir, fchdir, pivot_root, sethostname};

use crate::sys;

/// `MOUNT_ATTR_NODEV`.
const NODEV: u64 = 4;

/// The devices of a box, by name and number.
const DEVICES: [(&str, u64, u64); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Below `/proc`: what the superuser of a box could change the host through.
const READ_ONLY: [&str; 5] = ["sys", "sysrq-trigger", "irq", "bus", "fs"];

/// Below `/proc` and `/sys`: what tells too much of the host.
const HIDDEN: [&str; 8] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/latency_stats",
    "/proc/acpi",
    "/proc/scsi",
    "/sys/firmware",
];

const QUIET: MsFlags = MsFlags::MS_NOSUID
    .union(MsFlags::MS_NODEV)
    .union(MsFlags::MS_NOEXEC);

/// What was tried, and why it did not work.
type Failed = (String, io::Error);

/// Makes `root`, a detached mount, the root of this process, and everything else around it.
pub(super) fn make(root: OwnedFd, hostname: &str) -> Result<(), Failed> {
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    // This process has been born in the box's cgroup, which so becomes the top of all that it shows.
    step(
        "make a cgroup namespace",
        unshare(CloneFlags::CLONE_NEWCGROUP),
    )?;
    step("set the host name", sethostname(hostname))?;
    step("switch the loopback interface on", sys::net::loopback_up())?;
    enter(root)?;
    proc_and_sys()?;
    dev()?;
    dir("/tmp", 0o1777)?;
    dir("/run", 0o755)?;
    mask()
}

fn enter(root: OwnedFd) -> Result<(), Failed> {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    step(
        "part from the host's mounts",
        mount_plain("none", "/", private),
    )?;
    step("forbid devices", sys::mount::add_attributes(&root, NODEV))?;
    step("attach the root", sys::mount::attach(&root, c"/"))?;
    step("enter the root", fchdir(&root))?;
    drop(root);
    // With both arguments the same, the old root lies on top of the new one afterwards.
    step("change the root", pivot_root(".", "."))?;
    step("let the old root go", umount2(".", MntFlags::MNT_DETACH))?;
    step("enter the root", chdir("/"))
}

fn proc_and_sys() -> Result<(), Failed> {
    dir("/proc", 0o555)?;
    step("mount /proc", mount_new("proc", "/proc", QUIET, ""))?;
    dir("/sys", 0o555)?;
    let flags = QUIET | MsFlags::MS_RDONLY;
    step("mount /sys", mount_new("sysfs", "/sys", flags, ""))
}

fn dev() -> Result<(), Failed> {
    dir("/dev", 0o755)?;
    dir("/dev/shm", 0o1777)?;
    open_to_all("/dev/shm")?;
    let shm = step(
        "open /dev/shm",
        fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open("/dev/shm"),
    )?;
    let shm = step("copy /dev/shm", sys::mount::detached_copy(&shm))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let options = "mode=755,size=64k,nr_inodes=64";
    step("mount /dev", mount_new("tmpfs", "/dev", flags, options))?;
    for (name, major, minor) in DEVICES {
        let path = Path::new("/dev").join(name);
        let mode = Mode::from_bits_truncate(0o666);
        let made = mknod(&path, SFlag::S_IFCHR, mode, makedev(major, minor));
        step(format!("make /dev/{name}"), made)?;
        let open_to_all = fs::set_permissions(&path, fs::Permissions::from_mode(0o666));
        step(format!("open /dev/{name} to all"), open_to_all)?;
    }
    for (name, to) in LINKS {
        let made = symlink(to, Path::new("/dev").join(name));
        step(format!("make /dev/{name}"), made)?;
    }
    dir("/dev/pts", 0o755)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    // 5 is the group tty of every Debian.
    let options = "newinstance,ptmxmode=0666,mode=0620,gid=5";
    step(
        "mount /dev/pts",
        mount_new("devpts", "/dev/pts", flags, options),
    )?;
    dir("/dev/shm", 0o1777)?;
    step(
        "attach /dev/shm",
        sys::mount::attach(shm.as_fd(), c"/dev/shm"),
    )?;
    let again = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | flags;
    step("make /dev read-only", mount_plain("none", "/dev", again))
}

fn mask() -> Result<(), Failed> {
    for name in READ_ONLY {
        let path = format!("/proc/{name}");
        if !Path::new(&path).exists() {
            continue;
        }
        step(
            format!("bind {path}"),
            mount_plain(&path, &path, MsFlags::MS_BIND),
        )?;
        let again = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | QUIET;
        step(
            format!("make {path} read-only"),
            mount_plain("none", &path, again),
        )?;
    }
    for path in HIDDEN {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => {
                let flags = QUIET | MsFlags::MS_RDONLY;
                let hidden = mount_new("tmpfs", path, flags, "size=0,nr_inodes=2");
                step(format!("hide {path}"), hidden)?;
            }
            Ok(_) => step(
                format!("hide {path}"),
                mount_plain("/dev/null", path, MsFlags::MS_BIND),
            )?,
            Err(_) => {}
        }
    }
    Ok(())
}

/// Makes a directory if nothing is there.
fn dir(path: &str, mode: u32) -> Result<(), Failed> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(reason) if reason.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(reason) => Err((format!("make {path}"), reason)),
        Ok(()) => step(
            format!("set the mode of {path}"),
            fs::set_permissions(path, fs::Permissions::from_mode(mode)),
        ),
    }
}

/// Lets everybody make files in a directory that may come from a base where it was only a mount point.
fn open_to_all(path: &str) -> Result<(), Failed> {
    let found = step(format!("look at {path}"), fs::metadata(path))?;
    if found.permissions().mode() & 0o7777 == 0o1777 {
        return Ok(());
    }
    let opened = fs::set_permissions(path, fs::Permissions::from_mode(0o1777));
    step(format!("open {path} to all"), opened)
}

fn mount_new(kind: &str, at: &str, flags: MsFlags, options: &str) -> Result<(), Errno> {
    mount(Some(kind), at, Some(kind), flags, Some(options))
}

fn mount_plain(from: &str, at: &str, flags: MsFlags) -> Result<(), Errno> {
    let none: Option<&CStr> = None;
    mount(Some(from), at, none, flags, none)
}

fn step<T, E: Into<io::Error>>(what: impl Into<String>, done: Result<T, E>) -> Result<T, Failed> {
    done.map_err(|reason| (what.into(), reason.into()))
}
