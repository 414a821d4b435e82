//! Credentials and confinement of a thread.

use serde::{Deserialize, Serialize};

use super::{may, must, signed};
use crate::memory::calls::Calls;
use crate::proc::status::Status;

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// Highest capability of this kernel and then some; the kernel refuses what it does not know.
const CAPABILITIES: u64 = 64;
/// `SECBIT_NO_SETUID_FIXUP` and `SECBIT_KEEP_CAPS`: users change without touching capabilities.
const NO_FIXUP: u64 = (1 << 2) | (1 << 4);

/// Who a thread is and what it may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// Real, effective, saved and filesystem user.
    users: [u32; 4],
    /// The same of the group.
    groups: [u32; 4],
    /// Supplementary groups.
    supplementary: Vec<u32>,
    /// Inheritable, permitted, effective, bounding, ambient.
    capabilities: [u64; 5],
    /// `PR_GET_SECUREBITS`.
    secure_bits: u64,
    no_new_privileges: bool,
    /// Seccomp filters, the oldest first.
    filters: Vec<Vec<u8>>,
    /// Seccomp's strict mode.
    strict: bool,
}

impl Credentials {
    /// Adds the question that only the thread can answer.
    pub(crate) fn ask(calls: &mut Calls) -> usize {
        may(
            calls,
            "tell its secure bits",
            libc::SYS_prctl,
            [signed(libc::PR_GET_SECUREBITS), 0, 0, 0, 0],
        )
    }

    /// Puts together what the kernel shows and what the thread has answered; filters come as the kernel
    /// gives them, the newest first.
    pub(crate) fn read(status: &Status, secure_bits: u64, mut filters: Vec<Vec<u8>>) -> Self {
        filters.reverse();
        Self {
            users: status.uids,
            groups: status.gids,
            supplementary: status.groups.clone(),
            capabilities: status.capabilities,
            secure_bits,
            no_new_privileges: status.no_new_privs,
            filters,
            strict: status.seccomp == 1,
        }
    }

    /// Adds the calls by which a thread that may do everything becomes this one.
    pub(crate) fn tell(&self, calls: &mut Calls) {
        let [inheritable, permitted, effective, bounding, ambient] = self.capabilities;
        let prctl = |calls: &mut Calls, what, arguments: [u64; 3]| {
            let [option, second, third] = arguments;
            must(calls, what, libc::SYS_prctl, [option, second, third, 0, 0]);
        };
        let bits = signed(libc::PR_SET_SECUREBITS);
        prctl(calls, "keep capabilities for now", [bits, NO_FIXUP, 0]);
        let mut list = Vec::new();
        list.extend(
            self.supplementary
                .iter()
                .flat_map(|group| group.to_ne_bytes()),
        );
        let list = calls.place(&list);
        let count = self.supplementary.len() as u64;
        must(calls, "take its groups", libc::SYS_setgroups, [count, list]);
        let [real, effective_id, saved, filesystem] = self.groups.map(u64::from);
        must(
            calls,
            "take its group",
            libc::SYS_setresgid,
            [real, effective_id, saved],
        );
        may(calls, "take its group", libc::SYS_setfsgid, [filesystem]);
        let [real, effective_id, saved, filesystem] = self.users.map(u64::from);
        must(
            calls,
            "take its user",
            libc::SYS_setresuid,
            [real, effective_id, saved],
        );
        may(calls, "take its user", libc::SYS_setfsuid, [filesystem]);
        for capability in (0..CAPABILITIES).filter(|bit| bounding & (1 << bit) == 0) {
            let arguments = [signed(libc::PR_CAPBSET_DROP), capability, 0, 0, 0];
            may(calls, "give up a capability", libc::SYS_prctl, arguments);
        }
        self.tell_filters(calls);
        let head = [CAPABILITY_VERSION, 0];
        let head: Vec<u8> = head.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let head = calls.place(&head);
        let halves = |shift: u32| {
            [effective, permitted, inheritable].map(|set| u32::try_from(set >> shift & 0xffff_ffff))
        };
        let sets = [halves(0), halves(32)].into_iter().flatten();
        let sets: Vec<u8> = sets
            .flat_map(|half| half.unwrap_or(0).to_ne_bytes())
            .collect();
        let sets = calls.place(&sets);
        // Secure bits want a capability that the thread may not keep; the ambient set wants both others.
        prctl(calls, "take its secure bits", [bits, self.secure_bits, 0]);
        must(
            calls,
            "take its capabilities",
            libc::SYS_capset,
            [head, sets],
        );
        for capability in (0..CAPABILITIES).filter(|bit| ambient & (1 << bit) != 0) {
            let raise = signed(libc::PR_CAP_AMBIENT_RAISE);
            prctl(
                calls,
                "raise an ambient capability",
                [signed(libc::PR_CAP_AMBIENT), raise, capability],
            );
        }
    }

    fn tell_filters(&self, calls: &mut Calls) {
        for filter in &self.filters {
            let program = calls.place(filter);
            let mut head = ((filter.len() / 8) as u64).to_ne_bytes().to_vec();
            head.extend(program.to_ne_bytes());
            let head = calls.place(&head);
            let mode = u64::from(libc::SECCOMP_SET_MODE_FILTER);
            must(
                calls,
                "take its seccomp filter",
                libc::SYS_seccomp,
                [mode, 0, head],
            );
        }
        if self.no_new_privileges {
            let arguments = [signed(libc::PR_SET_NO_NEW_PRIVS), 1, 0, 0, 0];
            must(calls, "give up new privileges", libc::SYS_prctl, arguments);
        }
    }

    /// Whether the thread is in seccomp's strict mode, which cannot be left or taken by injected calls.
    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }
}
