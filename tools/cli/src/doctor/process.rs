//! What stopping, reading and rebuilding processes needs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

use super::{Ability, Finding, State, sys};

/// Number of the capability for administration.
pub(super) const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_RESOURCE: u32 = 24;
const CAP_CHECKPOINT_RESTORE: u32 = 40;

pub(super) fn examine() -> Vec<Finding> {
    vec![
        cgroup(),
        ptrace(),
        pidfd(),
        kcmp(),
        capabilities(),
        namespaces(),
    ]
}

/// Says whether this process has a capability.
pub(super) fn has_capability(number: u32) -> bool {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("CapEff:"))?
                .to_owned();
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .is_some_and(|set| set >> number & 1 == 1)
}

fn cgroup() -> Finding {
    let ability = Ability {
        id: "cgroup_freezer",
        used_for: "stopping all processes of a box at one instant",
        without: "they are stopped one by one until no new one appears",
    };
    let root = Path::new("/sys/fs/cgroup");
    let unified =
        |path: &Path| statfs(path).is_ok_and(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC);
    if unified(root) {
        return ability.found(State::Present, "cgroup v2");
    }
    if unified(&root.join("unified")) {
        return ability.found(
            State::Present,
            "cgroup v2 beside v1, at /sys/fs/cgroup/unified",
        );
    }
    if root.join("freezer").exists() {
        return ability.found(State::Present, "cgroup v1 with its freezer");
    }
    ability.found(
        State::Missing,
        "no cgroup filesystem with a freezer is mounted",
    )
}

fn ptrace() -> Finding {
    let ability = Ability {
        id: "ptrace",
        used_for: "reading and rebuilding processes",
        without: "boxes cannot be checkpointed; files can",
    };
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    let scope = yama
        .map(|scope| format!(", yama scope {}", scope.trim()))
        .unwrap_or_default();
    let child = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(reason) => return ability.found(State::Missing, format!("cannot try: {reason}")),
    };
    let seized = sys::probe_ptrace(child.id());
    drop(child.kill());
    drop(child.wait());
    match seized {
        Ok(()) => ability.found(State::Present, format!("a child was seized{scope}")),
        Err(reason) => ability.found(State::Missing, format!("{reason}{scope}")),
    }
}

fn pidfd() -> Finding {
    Ability {
        id: "pidfd_getfd",
        used_for: "looking at what is queued in pipes and sockets of a process",
        without: "boxes cannot be checkpointed; files can",
    }
    .tried(sys::probe_pidfd_getfd().map(|()| "a descriptor was copied".to_owned()))
}

fn kcmp() -> Finding {
    Ability {
        id: "kcmp",
        used_for: "telling which processes share a descriptor",
        without: "boxes cannot be checkpointed; files can",
    }
    .tried(sys::probe_kcmp().map(|()| "two descriptors were compared".to_owned()))
}

fn capabilities() -> Finding {
    let ability = Ability {
        id: "capabilities",
        used_for: "rebuilding processes with their pids, limits and owners",
        without: "run as root for boxes; mounting does not need them",
    };
    let wanted = [
        (CAP_SYS_ADMIN, "SYS_ADMIN"),
        (CAP_SYS_PTRACE, "SYS_PTRACE"),
        (CAP_SYS_RESOURCE, "SYS_RESOURCE"),
        (CAP_CHECKPOINT_RESTORE, "CHECKPOINT_RESTORE"),
    ];
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|(number, _)| !has_capability(*number))
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        ability.found(State::Present, "all")
    } else {
        ability.found(State::Missing, format!("without {}", missing.join(", ")))
    }
}

fn namespaces() -> Finding {
    let ability = Ability {
        id: "namespaces",
        used_for: "giving each box its own pids, mounts, ports and names",
        without: "boxes cannot be started; files can be branched",
    };
    let missing: Vec<&str> = ["pid", "mnt", "net", "ipc", "uts", "user"]
        .into_iter()
        .filter(|name| !Path::new("/proc/self/ns").join(name).exists())
        .collect();
    if missing.is_empty() {
        ability.found(State::Present, "pid, mnt, net, ipc, uts, user")
    } else {
        ability.found(State::Missing, format!("without {}", missing.join(", ")))
    }
}
