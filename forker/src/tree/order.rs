//! In which order processes are made, so that each has its number, parent, session and group.
//!
//! A process is born into the session of its maker, leaves it only by leading a new one, and its parent
//! is its maker, its maker's parent (`CLONE_PARENT`), or the tree's pid 1 when the maker ends. Sessions and
//! groups outlive their leaders: then a stand-in leads until all members are there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The tree's pid 1, in which everything begins.
const INIT: i32 = 1;

/// Where a process belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relation {
    /// Its number.
    pub pid: i32,
    /// Its parent.
    pub parent: i32,
    /// Its process group; 0 if that is the one of the tree's pid 1, from outside.
    pub group: i32,
    /// Its session; 0 likewise.
    pub session: i32,
}

/// Who makes a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The seed, as its sibling.
    Seed,
    /// This process, as its child.
    Parent(i32),
    /// This process, as its sibling.
    Sibling(i32),
    /// A helper that this process makes and that ends at once, so that pid 1 becomes the parent.
    Grandparent(i32),
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make a process.
    Make(i32, Maker),
    /// It leads a session of its own from now on.
    Lead(i32),
    /// It becomes a member (or the leader) of a group.
    Join(i32, i32),
    /// The seed makes a stand-in with the number of a session whose leader is gone.
    StandIn(i32),
    /// This process makes a stand-in with the number of a group whose leader is gone.
    GroupStandIn(i32, i32),
    /// A stand-in of a session ends.
    Dismiss(i32),
    /// A stand-in of a group, made by this process, ends.
    DismissGroup(i32, i32),
}

/// Sessions and groups of pid 1, wherever it has its own from, are one.
fn home(number: i32) -> i32 {
    if number <= INIT { INIT } else { number }
}

/// Finds the steps, or a process that cannot be made.
///
/// # Errors
/// The number of a process for which there is no way.
pub fn order(relations: &[Relation]) -> Result<Vec<Step>, i32> {
    let mut work = Work {
        relations: relations.iter().map(|one| (one.pid, *one)).collect(),
        ..Work::default()
    };
    work.births()?;
    work.make_all()?;
    work.join_all()?;
    Ok(work.steps)
}

#[derive(Debug, Default)]
struct Work {
    relations: BTreeMap<i32, Relation>,
    /// The session that a leader must be born into, where one of its children shows it.
    births: BTreeMap<i32, i32>,
    /// The session that each process that is made is in now, and its group.
    sessions: BTreeMap<i32, i32>,
    groups: BTreeMap<i32, i32>,
    stand_ins: BTreeSet<i32>,
    steps: Vec<Step>,
}

impl Work {
    fn leads(&self, pid: i32) -> bool {
        self.relations
            .get(&pid)
            .is_some_and(|one| one.session == pid)
    }

    /// The session that a process must be born into, `None` if any will do.
    fn birth(&self, pid: i32) -> Option<i32> {
        match self.relations.get(&pid) {
            Some(one) if one.session != pid => Some(home(one.session)),
            _ => self.births.get(&pid).copied(),
        }
    }

    /// A child that is in another session than its parent, which leads one, was born before.
    fn births(&mut self) -> Result<(), i32> {
        // Each round carries the demand one generation up.
        loop {
            let mut changed = false;
            for one in self.relations.values() {
                let Some(birth) = self.birth(one.pid) else {
                    continue;
                };
                if !self.leads(one.parent) || birth == one.parent {
                    continue;
                }
                match self.births.insert(one.parent, birth) {
                    None => changed = true,
                    Some(before) if before == birth => {}
                    Some(_) => return Err(one.pid),
                }
                if changed {
                    break;
                }
            }
            if !changed {
                return Ok(());
            }
        }
    }

    fn make_all(&mut self) -> Result<(), i32> {
        let mut left: BTreeSet<i32> = self.relations.keys().copied().collect();
        while let Some(&first) = left.first() {
            let ready = left.iter().find_map(|&pid| Some((pid, self.maker(pid)?)));
            let (pid, maker) = match ready {
                Some(found) => found,
                None => {
                    self.add_stand_in(&left).ok_or(first)?;
                    continue;
                }
            };
            left.remove(&pid);
            self.steps.push(Step::Make(pid, maker));
            let (session, group) = match maker {
                Maker::Seed => (INIT, INIT),
                Maker::Parent(by) | Maker::Sibling(by) | Maker::Grandparent(by) => (
                    self.session_of(by),
                    self.groups.get(&by).copied().unwrap_or(by),
                ),
            };
            self.sessions.insert(pid, session);
            self.groups.insert(pid, group);
            self.lead_where_possible(&left);
        }
        for stand_in in std::mem::take(&mut self.stand_ins) {
            self.steps.push(Step::Dismiss(stand_in));
        }
        Ok(())
    }

    fn session_of(&self, pid: i32) -> i32 {
        if self.stand_ins.contains(&pid) {
            pid
        } else {
            self.sessions.get(&pid).copied().unwrap_or(INIT)
        }
    }

    /// Who can make a process now.
    fn maker(&self, pid: i32) -> Option<Maker> {
        let one = self.relations.get(&pid)?;
        let birth = self.birth(pid);
        let fits = |maker: i32| birth.is_none_or(|birth| self.session_of(maker) == birth);
        if one.parent != INIT {
            return (self.sessions.contains_key(&one.parent) && fits(one.parent))
                .then_some(Maker::Parent(one.parent));
        }
        match birth {
            None | Some(INIT) => return Some(Maker::Seed),
            Some(session) if self.stand_ins.contains(&session) => {
                return Some(Maker::Sibling(session));
            }
            Some(_) => {}
        }
        let mut there = self.sessions.keys().copied().filter(|&maker| fits(maker));
        let sibling = there.clone().find(|maker| {
            self.relations
                .get(maker)
                .is_some_and(|one| one.parent == INIT)
        });
        sibling
            .map(Maker::Sibling)
            .or_else(|| there.next().map(Maker::Grandparent))
    }

    /// Lets those lead whose children from before are all there.
    fn lead_where_possible(&mut self, left: &BTreeSet<i32>) {
        let ready: Vec<i32> = self
            .sessions
            .iter()
            .filter(|&(&pid, &session)| self.leads(pid) && session != pid)
            .map(|(&pid, _)| pid)
            .filter(|&pid| {
                !left.iter().any(|child| {
                    let of_it = self
                        .relations
                        .get(child)
                        .is_some_and(|one| one.parent == pid);
                    of_it && self.birth(*child).is_some_and(|birth| birth != pid)
                })
            })
            .collect();
        for pid in ready {
            self.steps.push(Step::Lead(pid));
            self.sessions.insert(pid, pid);
            self.groups.insert(pid, pid);
        }
    }

    /// A session that somebody must be born into and whose leader is gone.
    fn add_stand_in(&mut self, left: &BTreeSet<i32>) -> Option<()> {
        let session = left
            .iter()
            .filter_map(|&pid| self.birth(pid))
            .find(|session| {
                !self.relations.contains_key(session) && !self.stand_ins.contains(session)
            })?;
        self.stand_ins.insert(session);
        self.steps.push(Step::StandIn(session));
        Some(())
    }

    fn join_all(&mut self) -> Result<(), i32> {
        let wanted: Vec<(i32, i32)> = self
            .relations
            .values()
            .map(|one| (one.pid, home(one.group)))
            .filter(|(pid, group)| self.groups.get(pid) != Some(group))
            .collect();
        for &(pid, group) in wanted.iter().filter(|(pid, group)| pid == group) {
            self.steps.push(Step::Join(pid, group));
        }
        let mut stand_ins = Vec::new();
        for &(pid, group) in wanted.iter().filter(|(pid, group)| pid != group) {
            let led = self
                .relations
                .get(&group)
                .is_some_and(|leader| leader.group == group);
            if group == INIT {
                return Err(pid);
            }
            let there = self.groups.values().any(|&other| other == group);
            if !led && !there && !stand_ins.iter().any(|(_, other)| *other == group) {
                self.steps.push(Step::GroupStandIn(pid, group));
                stand_ins.push((pid, group));
            }
            self.steps.push(Step::Join(pid, group));
        }
        for (by, group) in stand_ins {
            self.steps.push(Step::DismissGroup(by, group));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relation(pid: i32, parent: i32, group: i32, session: i32) -> Relation {
        Relation {
            pid,
            parent,
            group,
            session,
        }
    }

    #[test]
    fn a_shell_with_a_job_needs_no_tricks() {
        let steps = order(&[
            relation(2, 1, 2, 2),
            relation(5, 2, 5, 2),
            relation(6, 5, 5, 2),
        ]);
        let wanted = [
            Step::Make(2, Maker::Seed),
            Step::Lead(2),
            Step::Make(5, Maker::Parent(2)),
            Step::Make(6, Maker::Parent(5)),
            Step::Join(5, 5),
            Step::Join(6, 5),
        ];
        assert_eq!(steps.unwrap(), wanted);
    }

    #[test]
    fn a_child_from_before_the_session_comes_first() {
        let steps = order(&[
            relation(2, 1, 2, 2),
            relation(3, 2, 3, 3),
            relation(4, 3, 2, 2),
        ])
        .unwrap();
        let place = |step| steps.iter().position(|other| *other == step).unwrap();
        assert!(place(Step::Make(4, Maker::Parent(3))) < place(Step::Lead(3)));
        assert!(place(Step::Lead(2)) < place(Step::Make(3, Maker::Parent(2))));
    }

    #[test]
    fn orphans_of_a_session_are_made_by_a_sibling_or_a_stand_in() {
        let steps = order(&[relation(2, 1, 2, 2), relation(9, 1, 9, 2)]).unwrap();
        assert!(steps.contains(&Step::Make(9, Maker::Sibling(2))));
        let steps = order(&[relation(9, 1, 9, 7), relation(10, 1, 8, 7)]).unwrap();
        assert_eq!(steps[0], Step::StandIn(7));
        assert!(steps.contains(&Step::Make(9, Maker::Sibling(7))));
        assert!(steps.contains(&Step::GroupStandIn(10, 8)));
        assert!(steps.contains(&Step::Dismiss(7)));
        let steps = order(&[
            relation(2, 1, 2, 2),
            relation(3, 2, 3, 3),
            relation(9, 1, 9, 3),
        ])
        .unwrap();
        assert!(steps.contains(&Step::Make(9, Maker::Grandparent(3))));
    }

    #[test]
    fn what_cannot_be_is_named() {
        // Its parent began a session of its own after having had it: that can be made again.
        let later = [relation(2, 1, 2, 2), relation(3, 2, 3, 9)];
        assert!(order(&later).is_ok());
        // But nobody is born into two sessions.
        let two = [
            relation(2, 1, 2, 2),
            relation(3, 2, 3, 9),
            relation(4, 2, 4, 8),
        ];
        assert_eq!(order(&two), Err(4));
        assert_eq!(order(&[relation(3, 8, 3, 3)]), Err(3));
    }
}
