//! Who uses a mount: the answer to "busy".

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The most holders that a message names.
const SHOWN_MAX: usize = 5;

/// Returns the processes that have something open below `dir`, as clauses for a message.
///
/// Only links in `/proc` are read, never the files themselves: asking a mount about its own files
/// while it is being taken down would wait for itself.
pub(crate) fn of(dir: &Path) -> Vec<String> {
    let own = std::process::id().to_string();
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut holders = Vec::new();
    for process in processes.flatten() {
        let name = process.file_name();
        let is_pid = name.as_bytes().iter().all(u8::is_ascii_digit);
        if !is_pid || name.as_bytes() == own.as_bytes() {
            continue;
        }
        let path = process.path();
        if let Some(how) = use_of(&path, dir) {
            let command = fs::read_to_string(path.join("comm")).unwrap_or_default();
            holders.push(format!("{} (pid {}) {how}", command.trim(), name.display()));
        }
    }
    holders
}

/// Returns `holders` in one line.
pub(crate) fn list(holders: &[String]) -> String {
    let mut text = holders
        .iter()
        .take(SHOWN_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    if holders.len() > SHOWN_MAX {
        text.push_str(&format!("; and {} more", holders.len() - SHOWN_MAX));
    }
    text
}

fn use_of(process: &Path, dir: &Path) -> Option<&'static str> {
    let inside = |link: PathBuf| fs::read_link(link).is_ok_and(|to| to.starts_with(dir));
    for (link, how) in [
        ("cwd", "has its working directory there"),
        ("root", "has its root there"),
        ("exe", "runs a program from there"),
    ] {
        if inside(process.join(link)) {
            return Some(how);
        }
    }
    for folder in ["fd", "map_files"] {
        let Ok(links) = fs::read_dir(process.join(folder)) else {
            continue;
        };
        if links.flatten().any(|link| inside(link.path())) {
            return Some(if folder == "fd" {
                "has a file open there"
            } else {
                "maps a file there"
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_with_its_working_directory_there_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("30")
            .current_dir(&dir)
            .spawn()
            .unwrap();
        let holders = of(&dir);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            holders
                .iter()
                .any(|holder| holder.contains("working directory")),
            "{holders:?}"
        );
        assert!(of(&dir).is_empty());
    }

    #[test]
    fn a_long_list_is_cut() {
        let holders: Vec<String> = (0..7).map(|number| format!("p{number}")).collect();
        assert_eq!(list(&holders), "p0; p1; p2; p3; p4; and 2 more");
    }
}
