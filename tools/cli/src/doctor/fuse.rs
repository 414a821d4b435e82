//! What mounting needs and what makes it fast.

use std::fs::{self, OpenOptions};
use std::path::Path;

use nix::unistd::Uid;

use super::{Ability, Finding, Kernel, State};

pub(super) fn examine(kernel: Kernel) -> Vec<Finding> {
    let device = Ability {
        id: "fuse",
        used_for: "mounting",
        without: "nothing can be mounted: load the module `fuse`, or let a container have /dev/fuse",
    };
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.tried(opened.map(|_| "/dev/fuse can be opened".to_owned()));
    let mut findings = vec![
        Finding {
            essential: true,
            ..device
        },
        mounter(),
    ];
    findings.push(
        Ability {
            id: "fuse_writeback",
            used_for: "collecting small writes in the kernel",
            without: "every write is a message to the daemon",
        }
        .since(kernel, 3, 15),
    );
    findings.push(
        Ability {
            id: "fuse_killpriv_v2",
            used_for: "writes without a question about file capabilities before each",
            without: "writing small pieces is about ten times slower",
        }
        .since(kernel, 5, 12),
    );
    let passthrough = Ability {
        id: "fuse_passthrough",
        used_for: "read-only mounts at the speed of the base's own filesystem",
        without: "read-only mounts read through the daemon",
    };
    findings.push(
        if super::process::has_capability(super::process::CAP_SYS_ADMIN) {
            passthrough.since(kernel, 6, 9)
        } else {
            passthrough.found(State::Missing, "needs CAP_SYS_ADMIN")
        },
    );
    findings.push(
        Ability {
            id: "fuse_notify_epoch",
            used_for: "forgetting all names of a mount at once when it is rolled back or switched",
            without: "names are forgotten one by one",
        }
        .since(kernel, 6, 16),
    );
    findings.push(request_size());
    findings.push(read_ahead());
    findings.push(debugfs());
    findings
}

fn mounter() -> Finding {
    let ability = Ability {
        id: "mounting",
        used_for: "mounting as this user",
        without: "mount as root, or install the package fuse3 for its program fusermount3",
    };
    let finding = if Uid::effective().is_root() {
        ability.found(State::Present, "the superuser mounts without help")
    } else {
        let found = std::env::var_os("PATH")
            .map(|path| std::env::split_paths(&path).collect::<Vec<_>>())
            .unwrap_or_default()
            .into_iter()
            .map(|dir| dir.join("fusermount3"))
            .find(|program| program.exists());
        match found {
            Some(program) => ability.found(State::Present, program.display().to_string()),
            None => ability.found(State::Missing, "fusermount3 is not in the PATH"),
        }
    };
    Finding {
        essential: true,
        ..finding
    }
}

fn request_size() -> Finding {
    let ability = Ability {
        id: "fuse_large_requests",
        used_for: "reading and writing 1 MiB with one message",
        without: "messages carry at most 128 KiB",
    };
    match fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit") {
        Ok(pages) => ability.found(State::Present, format!("up to {} pages", pages.trim())),
        // Before the limit could be set it was 256 pages, since 4.20.
        Err(_) => ability.found(State::Likely, "up to 256 pages"),
    }
}

fn read_ahead() -> Finding {
    let ability = Ability {
        id: "read_ahead",
        used_for: "raising the read-ahead of a mount to 1 MiB",
        without: "sequential reading is about a third slower",
    };
    let dir = Path::new("/sys/class/bdi");
    if !dir.exists() {
        return ability.found(State::Missing, "/sys/class/bdi is not there");
    }
    if Uid::effective().is_root() && !is_read_only(Path::new("/sys")) {
        ability.found(State::Present, "/sys/class/bdi can be written")
    } else {
        ability.found(State::Missing, "/sys/class/bdi cannot be written")
    }
}

fn is_read_only(path: &Path) -> bool {
    nix::sys::statvfs::statvfs(path)
        .is_ok_and(|stat| stat.flags().contains(nix::sys::statvfs::FsFlags::ST_RDONLY))
}

fn debugfs() -> Finding {
    let ability = Ability {
        id: "debugfs",
        used_for: "seeing how much of a mount the kernel has not yet written",
        without: "files that are open for writing are flushed one by one before a checkpoint; as root: \
                  mount -t debugfs none /sys/kernel/debug",
    };
    let dir = Path::new("/sys/kernel/debug/bdi");
    let found = fs::read_dir(dir).map(|_| format!("{} can be read", dir.display()));
    ability.tried(found)
}
