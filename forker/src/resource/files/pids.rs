//! From the caller's pids to those inside the box.

use std::collections::BTreeMap;

use crate::proc::status;

/// From the caller's pids to those inside the box.
#[derive(Debug, Default)]
pub(super) struct Pids {
    known: BTreeMap<i32, i32>,
}

impl Pids {
    pub(super) fn new(pairs: impl Iterator<Item = (i32, i32)>) -> Self {
        Self {
            known: pairs.collect(),
        }
    }

    /// Any process of the tree, as the caller sees it.
    pub(super) fn any(&self) -> Option<i32> {
        self.known.keys().next().copied()
    }

    /// The pid inside of a process, thread, group or session that the tree has.
    pub(super) fn inside(&self, outside: i32) -> Option<i32> {
        if outside <= 0 {
            return None;
        }
        self.known
            .get(&outside)
            .copied()
            .or_else(|| self.thread(outside))
            .or_else(|| self.group(outside))
    }

    fn status(pid: i32) -> Option<status::Status> {
        status::parse(&std::fs::read(format!("/proc/{pid}/status")).ok()?).ok()
    }

    fn thread(&self, outside: i32) -> Option<i32> {
        let status = Self::status(outside)?;
        let ours = self.known.contains_key(&status.tgid);
        ours.then(|| status.nspid.last().copied()).flatten()
    }

    /// A group or session whose leader is gone still has members.
    fn group(&self, outside: i32) -> Option<i32> {
        self.known.keys().find_map(|&pid| {
            let status = Self::status(pid)?;
            [status.nspgid, status.nssid]
                .into_iter()
                .find(|ids| ids.first() == Some(&outside))
                .and_then(|ids| ids.last().copied())
        })
    }
}
