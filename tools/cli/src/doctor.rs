//! Which abilities of the kernel are there, found by trying where trying is possible.

mod fuse;
mod memory;
mod process;
mod sys;

use serde::Serialize;

/// How well an ability is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// It works.
    Present,
    /// It does not.
    Missing,
    /// It cannot be tried without consequences; the version of the kernel speaks for it.
    Likely,
}

/// One ability.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// Its name, for scripts.
    pub(crate) id: &'static str,
    /// How well it is there.
    pub(crate) state: State,
    /// What was seen.
    pub(crate) detail: String,
    /// What Branchpoint does with it.
    pub(crate) used_for: &'static str,
    /// What happens without.
    pub(crate) without: &'static str,
    /// Whether nothing can be mounted without.
    pub(crate) essential: bool,
}

/// What an ability is, before it has been looked for.
#[derive(Clone, Copy, Debug)]
struct Ability {
    id: &'static str,
    used_for: &'static str,
    without: &'static str,
}

impl Ability {
    fn found(self, state: State, detail: impl Into<String>) -> Finding {
        Finding {
            id: self.id,
            state,
            detail: detail.into(),
            used_for: self.used_for,
            without: self.without,
            essential: false,
        }
    }

    /// Returns what trying it gave.
    fn tried(self, result: std::io::Result<String>) -> Finding {
        match result {
            Ok(detail) => self.found(State::Present, detail),
            Err(reason) => self.found(State::Missing, reason.to_string()),
        }
    }

    /// Returns what the version of the kernel says.
    fn since(self, kernel: Kernel, major: u32, minor: u32) -> Finding {
        let present = kernel >= Kernel(major, minor);
        let state = if present {
            State::Likely
        } else {
            State::Missing
        };
        self.found(state, format!("since Linux {major}.{minor}"))
    }
}

/// A kernel's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kernel(u32, u32);

impl Kernel {
    /// Reads a release like `6.18.44-fc`.
    fn parse(release: &str) -> Option<Self> {
        let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
        Some(Self(
            numbers.next()?.parse().ok()?,
            numbers.next()?.parse().ok()?,
        ))
    }
}

/// Looks for everything.
pub(crate) fn examine() -> Vec<Finding> {
    let release = nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    // A release that cannot be read has no abilities that only the version tells.
    let kernel = Kernel::parse(&release).unwrap_or(Kernel(0, 0));
    let linux = Ability {
        id: "kernel",
        used_for: "everything",
        without: "kernels before 5.15 have not been tried",
    };
    let state = if kernel >= Kernel(5, 15) {
        State::Present
    } else {
        State::Missing
    };
    let mut findings = vec![linux.found(state, format!("Linux {release}"))];
    findings.extend(fuse::examine(kernel));
    findings.extend(memory::examine());
    findings.extend(process::examine());
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(Kernel::parse("6.18.44-fc-v657"), Some(Kernel(6, 18)));
        assert_eq!(Kernel::parse("5.4"), Some(Kernel(5, 4)));
        assert_eq!(Kernel::parse("odd"), None);
        assert!(Kernel(6, 9) < Kernel(6, 16));
    }

    #[test]
    fn every_ability_has_its_own_name_and_a_way_out() {
        let findings = examine();
        let mut ids: Vec<&str> = findings.iter().map(|finding| finding.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), findings.len());
        assert!(findings.iter().all(|finding| !finding.without.is_empty()));
    }
}
