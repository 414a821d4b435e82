//! `/proc/PID/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::{Malformed, Parsed, decimal, device, lines, unescape, words};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Id, as `mnt_id` in `fdinfo` names it.
    pub id: u64,
    /// Id of the mount that it lies on.
    pub parent: u64,
    /// Device number of its files.
    pub device: u64,
    /// Which directory of the filesystem is mounted.
    pub root: PathBuf,
    /// Where, seen from the process's root.
    pub point: PathBuf,
    /// Options of the mount.
    pub options: Vec<u8>,
    /// Type of the filesystem.
    pub kind: Vec<u8>,
    /// What is mounted.
    pub source: Vec<u8>,
    /// Options of the filesystem.
    pub super_options: Vec<u8>,
}

/// Parses the whole file.
///
/// # Errors
/// If a line has too few fields or a malformed one.
pub fn parse(text: &[u8]) -> Parsed<Vec<Mount>> {
    lines(text).map(line).collect()
}

fn line(line: &[u8]) -> Parsed<Mount> {
    let bad = || Malformed::new("mountinfo", line);
    // Blanks in names are escaped, and an empty source or option leaves two blanks: so by single
    // blanks, not by words.
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields
        .iter()
        .skip(6)
        .position(|&field| field == b"-")
        .map(|at| at + 6)
        .ok_or_else(bad)?;
    let field = |at: usize| fields.get(at).copied().ok_or_else(bad);
    let path = |at: usize| Ok(PathBuf::from(OsString::from_vec(unescape(field(at)?))));
    Ok(Mount {
        id: decimal("mountinfo", field(0)?)?,
        parent: decimal("mountinfo", field(1)?)?,
        device: device("mountinfo", field(2)?, 10)?,
        root: path(3)?,
        point: path(4)?,
        options: field(5)?.to_vec(),
        kind: field(dash + 1)?.to_vec(),
        source: unescape(field(dash + 2)?),
        super_options: words(field(dash + 3)?).next().unwrap_or_default().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_optional_fields() {
        let text = b"36 35 98:0 /a\\040b /mnt\\0112\\134 rw,noatime shared:1 master:2 - fuse.x my\\040src rw\n\
            37 36 0:5 / /proc rw - proc  rw\n";
        let mounts = parse(text).unwrap();
        assert_eq!(mounts[0].root, PathBuf::from("/a b"));
        assert_eq!(mounts[0].point, PathBuf::from("/mnt\t2\\"));
        assert_eq!(mounts[0].source, b"my src");
        assert_eq!((mounts[1].source.len(), mounts[1].id), (0, 37));
        assert!(parse(b"36 35 98:0 / / rw - ext4\n").is_err());
    }

    #[test]
    fn own_mounts() {
        let text = std::fs::read("/proc/self/mountinfo").unwrap();
        assert!(
            parse(&text)
                .unwrap()
                .iter()
                .any(|mount| mount.kind == b"proc")
        );
    }
}
