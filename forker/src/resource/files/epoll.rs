//! epoll sets.
//!
//! A member is a pair of file and number. The number may long mean another file, or none, so the
//! file is found with `kcmp`, and put back under that number in a table of descriptors that only one
//! short-lived thread has. A signalfd is added by its owner: the set remembers whose signals to look at.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use serde::{Deserialize, Serialize};

use super::capture::Taken;
use super::inside::{Argument, InsideCall};
use super::model::{Files, Kind};
use super::sys;
use crate::proc::fdinfo::EpollEntry;

/// An epoll set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoll {
    /// Its members.
    pub members: Vec<Member>,
}

/// A member of an epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Number under which it was added.
    pub fd: i32,
    /// What is waited for.
    pub events: u32,
    /// What the caller gets back.
    pub data: u64,
    /// Which of [`Files::descriptions`] it is.
    pub description: usize,
}

// From linux/eventpoll.h: what remains of the events of a one-shot member that has fired.
const PRIVATE: u32 = 0xf000_0000;
const ONESHOT: u32 = 1 << 30;

/// Finds the descriptions behind the members. The second result are the members whose file is held
/// outside of the tree only.
pub(super) fn capture(
    taken: &[Taken],
    set: &Taken,
    entries: &[EpollEntry],
) -> io::Result<(Epoll, Vec<EpollEntry>)> {
    let mut by_ino: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (index, one) in taken.iter().enumerate() {
        by_ino.entry(one.info.ino).or_default().push(index);
    }
    let mut seen: BTreeMap<i32, u32> = BTreeMap::new();
    let (mut members, mut lost) = (Vec::new(), Vec::new());
    for entry in entries {
        let nth = seen.entry(entry.fd).or_default();
        let fd = entry.fd.cast_unsigned();
        let mut candidates = by_ino.get(&entry.ino).cloned().unwrap_or_default();
        // The one that has the number now is nearly always it.
        candidates.sort_by_key(|&index| {
            !taken
                .get(index)
                .is_some_and(|one| one.numbers.contains(&entry.fd))
        });
        let mut found = None;
        for index in candidates {
            let Some(one) = taken.get(index) else {
                continue;
            };
            if sys::is_epoll_target(one.file.as_fd(), set.file.as_fd(), fd, *nth)? {
                found = Some(index);
                break;
            }
        }
        *nth += 1;
        match found {
            Some(description) => members.push(Member {
                fd: entry.fd,
                events: entry.events,
                data: entry.data,
                description,
            }),
            None => lost.push(*entry),
        }
    }
    Ok((Epoll { members }, lost))
}

/// Fills all sets; `made` has the description of each index. What has to be added by an owner is
/// returned.
pub(super) fn fill(files: &Files, made: &[Option<OwnedFd>]) -> io::Result<Vec<InsideCall>> {
    let mut jobs = Vec::new();
    let mut inside = Vec::new();
    for (set, description) in files.descriptions.iter().enumerate() {
        let Kind::Epoll(epoll) = &description.kind else {
            continue;
        };
        for member in &epoll.members {
            let target = files.descriptions.get(member.description);
            if target.is_some_and(|target| matches!(target.kind, Kind::Signal(_)))
                && let Some(call) = by_owner(files, set, member)
            {
                inside.push(call);
                continue;
            }
            let raw = |index: usize| made.get(index)?.as_ref().map(AsRawFd::as_raw_fd);
            if let (Some(set), Some(target)) = (raw(set), raw(member.description)) {
                jobs.push((set, target, *member));
            }
        }
    }
    if jobs.is_empty() {
        return Ok(inside);
    }
    // Members that fired already come first, while their set holds nothing else.
    jobs.sort_by_key(|(_, _, member)| member.events & !PRIVATE != 0);
    std::thread::scope(|scope| {
        scope
            .spawn(|| add_all(&jobs))
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that fills epoll sets died")))
    })?;
    Ok(inside)
}

fn add_all(jobs: &[(RawFd, RawFd, Member)]) -> io::Result<()> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES)?;
    // Everything that is needed moves above the highest wanted number, out of the way.
    let highest = jobs.iter().map(|(_, _, member)| member.fd).max();
    let floor = highest.unwrap_or(0).saturating_add(1);
    let mut moved: BTreeMap<RawFd, RawFd> = BTreeMap::new();
    for &(set, target, _) in jobs {
        for raw in [set, target] {
            if let std::collections::btree_map::Entry::Vacant(entry) = moved.entry(raw) {
                entry.insert(sys::duplicate_above(raw, floor)?);
            }
        }
    }
    // Nothing else of this process stays open here longer than needed.
    sys::close_range(3, floor.cast_unsigned().saturating_sub(1).max(3))?;
    for (set, target, member) in jobs {
        let (Some(&set), Some(&target)) = (moved.get(set), moved.get(target)) else {
            continue;
        };
        sys::place_at(target, member.fd)?;
        add(set, member)?;
    }
    Ok(())
}

fn add(set: RawFd, member: &Member) -> io::Result<()> {
    let fired = member.events & ONESHOT != 0 && member.events & !PRIVATE == 0;
    if !fired {
        return sys::epoll_add(set, member.fd, member.events, member.data);
    }
    // It is disarmed until its owner arms it again. Only firing disarms, so it is made to fire if it
    // can; if it is not ready for anything, it stays armed for errors and hang-ups alone.
    let any = u32::try_from(libc::EPOLLIN | libc::EPOLLOUT).unwrap_or(0);
    sys::epoll_add(set, member.fd, member.events | any, member.data)?;
    if sys::epoll_ready(set)?.contains(&member.data) {
        return Ok(());
    }
    sys::epoll_modify(set, member.fd, member.events, member.data)
}

/// The call by which the process that has both under their numbers adds a member.
fn by_owner(files: &Files, set: usize, member: &Member) -> Option<InsideCall> {
    files.tables.iter().find_map(|table| {
        let slot = |description| {
            let found = table
                .slots
                .iter()
                .find(|slot| slot.description == description);
            found.map(|slot| slot.fd)
        };
        let at_number = table
            .slots
            .iter()
            .any(|slot| slot.fd == member.fd && slot.description == member.description);
        let (pid, set) = (*table.pids.first()?, slot(set)?);
        let mut event = member.events.to_ne_bytes().to_vec();
        event.extend_from_slice(&member.data.to_ne_bytes());
        at_number.then(|| InsideCall {
            pid,
            what: "add a signalfd to an epoll set",
            file: None,
            number: libc::SYS_epoll_ctl,
            arguments: vec![
                Argument::number(set),
                Argument::number(libc::EPOLL_CTL_ADD),
                Argument::number(member.fd),
                Argument::Bytes(event),
            ],
        })
    })
}
