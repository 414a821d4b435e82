//! What processes of a box may not do: capabilities, system calls, resource limits.

use std::collections::BTreeMap;
use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// The capabilities of the superuser of a box, by number: what container engines leave by default, without
/// raw sockets and device nodes, which a box has no use for.
const CAPABILITIES: [u32; 11] = [
    0,  // chown
    1,  // dac_override
    3,  // fowner
    4,  // fsetid
    5,  // kill
    6,  // setgid
    7,  // setuid
    8,  // setpcap
    10, // net_bind_service
    18, // sys_chroot
    31, // setfcap
];

/// The capabilities that the superuser of a box has, a bit for each.
pub fn capabilities() -> u64 {
    CAPABILITIES.iter().fold(0, |set, number| set | 1 << number)
}

/// Refused with EPERM: what would reach the host or change what a box is made of. Most of it needs
/// capabilities that are gone as well; this holds even if one comes back.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_setns,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_fanotify_init,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
];

/// The flags by which `clone` and `unshare` make namespaces.
const NAMESPACE_FLAGS: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// `CLONE_NEWTIME`, which only `unshare` and `clone3` know.
const NEW_TIME: libc::c_int = 0x80;

/// Added to the number of a system call made through the x32 interface of x86-64, which is the same
/// architecture to a filter.
const X32: libc::c_long = 0x4000_0000;

/// Returns the two filters of every process in a box.
///
/// `clone3` hides its flags behind a pointer, so it is said not to exist, upon which the C libraries
/// use `clone`. That takes another answer than the rest, and a filter has only one.
///
/// # Errors
/// Only a bug in the rules.
pub fn filters() -> Result<[BpfProgram; 2], seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|number| (*number, Vec::new())).collect();
    let namespaces = NAMESPACE_FLAGS.map(libc::c_int::cast_unsigned);
    rules.insert(libc::SYS_clone, any_flag(&namespaces)?);
    let mut with_time = namespaces.to_vec();
    with_time.push(NEW_TIME.cast_unsigned());
    rules.insert(libc::SYS_unshare, any_flag(&with_time)?);
    let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([
        compile(rules, libc::EPERM.cast_unsigned())?,
        compile(absent, libc::ENOSYS.cast_unsigned())?,
    ])
}

/// Matches a call whose first argument has one of `flags`.
fn any_flag(flags: &[u32]) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    flags
        .iter()
        .map(|flag| {
            let flag = u64::from(*flag);
            let has = SeccompCondition::new(
                0,
                SeccompCmpArgLen::Qword,
                SeccompCmpOp::MaskedEq(flag),
                flag,
            )?;
            Ok(SeccompRule::new(vec![has])?)
        })
        .collect()
}

fn compile(
    mut rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: u32,
) -> Result<BpfProgram, seccompiler::Error> {
    if cfg!(target_arch = "x86_64") {
        let twins: Vec<_> = rules
            .iter()
            .map(|(number, rule)| (number | X32, rule.clone()))
            .collect();
        rules.extend(twins);
    }
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno),
        std::env::consts::ARCH.try_into()?,
    )?;
    Ok(filter.try_into()?)
}

/// Installs the filters in this thread, for good.
pub(crate) fn apply_filters(filters: &[BpfProgram; 2]) -> io::Result<()> {
    filters
        .iter()
        .try_for_each(|filter| seccompiler::apply_filter(filter))
        .map_err(io::Error::other)
}

/// Sets the resource limits that a login on Debian has.
pub(crate) fn set_resource_limits() -> io::Result<()> {
    const MIB: u64 = 1 << 20;
    for (resource, soft, hard) in [
        (Resource::RLIMIT_NOFILE, 1024, 524_288),
        (Resource::RLIMIT_STACK, 8 * MIB, libc::RLIM_INFINITY),
        (Resource::RLIMIT_MEMLOCK, 8 * MIB, 8 * MIB),
        (Resource::RLIMIT_CORE, 0, libc::RLIM_INFINITY),
    ] {
        // Not everybody may raise what the daemon was started with.
        let (_, highest) = getrlimit(resource)?;
        let hard = hard.min(highest);
        setrlimit(resource, soft.min(hard), hard)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile_and_fit() {
        for filter in filters().unwrap() {
            assert!(!filter.is_empty() && filter.len() < 4096);
        }
    }

    #[test]
    fn the_dangerous_capabilities_are_not_there() {
        for number in [12, 13, 16, 17, 19, 21, 22, 25, 27, 38, 39, 40] {
            assert_eq!(capabilities() & 1 << number, 0, "{number}");
        }
    }
}
