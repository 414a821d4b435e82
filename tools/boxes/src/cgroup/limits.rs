//! What a box may use of the machine.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Hierarchies, Made, write};
use crate::error::{Error, Result};

/// The period in which processor time is measured out, in microseconds.
const PERIOD_US: u64 = 100_000;

/// The least processor time a period that the kernel accepts, in microseconds.
const QUOTA_US_MIN: u64 = 1_000;

/// What a box may use; nothing is limited by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory in bytes, that of files in the page cache included.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Thousandths of one processor.
    pub cpu_millis: Option<u64>,
}

/// One limit in the words of the kernel.
#[derive(Debug)]
struct Rule {
    controller: &'static str,
    limit: &'static str,
    v2: Vec<(&'static str, String)>,
    v1: Vec<(&'static str, String)>,
}

impl Limits {
    fn rules(&self) -> Vec<Rule> {
        let mut rules = Vec::new();
        if let Some(bytes) = self.memory_bytes {
            rules.push(Rule {
                controller: "memory",
                limit: "memory",
                v2: vec![("memory.max", bytes.to_string())],
                v1: vec![("memory.limit_in_bytes", bytes.to_string())],
            });
        }
        if let Some(count) = self.pids {
            // Init is ours and counts as well.
            let count = count.saturating_add(1).to_string();
            rules.push(Rule {
                controller: "pids",
                limit: "processes",
                v2: vec![("pids.max", count.clone())],
                v1: vec![("pids.max", count)],
            });
        }
        if let Some(millis) = self.cpu_millis {
            let quota = (millis.saturating_mul(PERIOD_US) / 1000).max(QUOTA_US_MIN);
            rules.push(Rule {
                controller: "cpu",
                limit: "processor time",
                v2: vec![("cpu.max", format!("{quota} {PERIOD_US}"))],
                v1: vec![
                    ("cpu.cfs_period_us", PERIOD_US.to_string()),
                    ("cpu.cfs_quota_us", quota.to_string()),
                ],
            });
        }
        rules
    }
}

/// Sets `limits` for the cgroup `name` and returns the v1 groups that were made for it.
pub(super) fn apply(
    hierarchies: &Hierarchies,
    name: &Path,
    limits: &Limits,
    made: &mut Made,
) -> Result<Vec<PathBuf>> {
    let mut v1 = Vec::new();
    for rule in limits.rules() {
        if let Some(root) = hierarchies.v1(rule.controller) {
            let dir = root.join(name);
            if !v1.contains(&dir) {
                made.dir(&dir)?;
                v1.push(dir.clone());
            }
            set(&dir, &rule, &rule.v1)?;
        } else {
            enable(hierarchies.unified(), name, &rule)?;
            set(&hierarchies.unified().join(name), &rule, &rule.v2)?;
        }
    }
    Ok(v1)
}

fn set(dir: &Path, rule: &Rule, files: &[(&'static str, String)]) -> Result<()> {
    for (file, value) in files {
        let path = dir.join(file);
        if !path.exists() {
            return Err(missing(rule, &format!("'{}' is missing", path.display())));
        }
        write(&path, value)?;
    }
    Ok(())
}

/// Hands the rule's controller down to the cgroup `name` of the v2 hierarchy.
fn enable(root: &Path, name: &Path, rule: &Rule) -> Result<()> {
    let has = |dir: &Path| {
        fs::read_to_string(dir.join("cgroup.controllers"))
            .is_ok_and(|text| text.split_whitespace().any(|one| one == rule.controller))
    };
    if !has(root) {
        let reason = format!("the cgroup controller '{}' is missing", rule.controller);
        return Err(missing(rule, &reason));
    }
    let mut dir = root.to_owned();
    for part in name.components() {
        let below = dir.join(part);
        if !has(&below) {
            let enabled = write(
                &dir.join("cgroup.subtree_control"),
                &format!("+{}", rule.controller),
            );
            if let Err(failure) = enabled {
                log::warn!("{failure}");
                let reason = format!(
                    "the cgroup '{}' does not hand down its controller '{}'",
                    dir.display(),
                    rule.controller
                );
                return Err(missing(rule, &reason));
            }
        }
        dir = below;
    }
    Ok(())
}

fn missing(rule: &Rule, reason: &str) -> Error {
    Error::NoController {
        limit: rule.limit,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_said_in_the_kernels_words() {
        let limits = Limits {
            memory_bytes: Some(1 << 20),
            pids: Some(10),
            cpu_millis: Some(1500),
        };
        let rules = limits.rules();
        assert_eq!(rules[0].v2, [("memory.max", "1048576".to_owned())]);
        assert_eq!(rules[1].v1, [("pids.max", "11".to_owned())]);
        assert_eq!(rules[2].v2, [("cpu.max", "150000 100000".to_owned())]);
        assert!(Limits::default().rules().is_empty());
    }

    #[test]
    fn a_missing_controller_is_named() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.controllers"), "hugetlb\n").unwrap();
        let limits = Limits {
            memory_bytes: Some(1),
            ..Limits::default()
        };
        let failure = enable(root.path(), Path::new("a/b"), &limits.rules()[0]).unwrap_err();
        assert!(
            failure.to_string().contains("'memory' is missing"),
            "{failure}"
        );
        assert!(failure.way_out().is_some());
    }
}
