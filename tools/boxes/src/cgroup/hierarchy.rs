//! Where the cgroup hierarchies of this machine are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The mounted cgroup hierarchies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchies {
    unified: PathBuf,
    v1: BTreeMap<String, PathBuf>,
}

impl Hierarchies {
    /// Finds them.
    ///
    /// # Errors
    /// [`Error::NoCgroups`] without a v2 hierarchy; [`Error::System`].
    pub fn find() -> Result<Self> {
        let table = fs::read_to_string("/proc/self/mountinfo")
            .map_err(|reason| Error::system("read /proc/self/mountinfo", reason))?;
        Self::parse(&table).ok_or(Error::NoCgroups)
    }

    /// Returns the root of the v2 hierarchy.
    pub fn unified(&self) -> &Path {
        &self.unified
    }

    /// Returns the root of the v1 hierarchy of a controller.
    pub(super) fn v1(&self, controller: &str) -> Option<&Path> {
        self.v1.get(controller).map(PathBuf::as_path)
    }

    /// Returns the roots of all hierarchies.
    pub(super) fn roots(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.unified.as_path()).chain(self.v1.values().map(PathBuf::as_path))
    }

    fn parse(table: &str) -> Option<Self> {
        let mut unified = None;
        let mut v1 = BTreeMap::new();
        for line in table.lines() {
            let Some((place, kind)) = line.split_once(" - ") else {
                continue;
            };
            let Some(dir) = place.split(' ').nth(4) else {
                continue;
            };
            let mut kind = kind.split(' ');
            match kind.next() {
                // The first one: a box of somebody else's may have others further down.
                Some("cgroup2") if unified.is_none() => unified = Some(PathBuf::from(dir)),
                Some("cgroup") => {
                    for option in kind.nth(1).unwrap_or_default().split(',') {
                        v1.entry(option.to_owned())
                            .or_insert_with(|| PathBuf::from(dir));
                    }
                }
                _ => {}
            }
        }
        v1.retain(|option, _| matches!(option.as_str(), "memory" | "pids" | "cpu"));
        unified.map(|unified| Self { unified, v1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_and_pure_machines_are_understood() {
        let mixed = "\
30 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
garbage
";
        let found = Hierarchies::parse(mixed).unwrap();
        assert_eq!(found.unified(), Path::new("/sys/fs/cgroup/unified"));
        assert_eq!(found.v1("memory"), Some(Path::new("/sys/fs/cgroup/memory")));
        assert_eq!(found.v1("cpu"), Some(Path::new("/sys/fs/cgroup/cpu")));
        assert_eq!(found.v1("pids"), None);
        let pure = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = Hierarchies::parse(pure).unwrap();
        assert_eq!(found.unified(), Path::new("/sys/fs/cgroup"));
        assert_eq!(Hierarchies::parse("30 22 0:26 / / rw - ext4 x rw"), None);
    }
}
