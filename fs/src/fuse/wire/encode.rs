//! Answers: what is said into the kernel's bytes.

use std::time::Duration;

use crate::attr::{Attr, DirEntry, FileKind, Statfs};
use crate::fuse::wire::abi::{DIRENT_BYTES, ENTRY_OUT_BYTES};
use crate::id::BLOCK_BYTES;

/// Appends numbers to an answer.
pub(super) trait Put {
    /// Appends 32 bits.
    fn put_u32(&mut self, value: u32);
    /// Appends 64 bits.
    fn put_u64(&mut self, value: u64);
}

impl Put for Vec<u8> {
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_ne_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_ne_bytes());
    }
}

/// A name as the kernel is told of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    /// What the kernel is to call the inode.
    pub(super) node: u64,
    /// How long it may keep the name.
    pub(super) name_kept: Duration,
    /// How long it may keep the attributes.
    pub(super) attr_kept: Duration,
    /// The attributes.
    pub(super) attr: &'a Attr,
}

/// Appends a name with its inode.
pub(super) fn entry(out: &mut Vec<u8>, named: &Named<'_>) {
    out.put_u64(named.node);
    // Inode numbers are never used again, so they need no generation.
    out.put_u64(0);
    out.put_u64(named.name_kept.as_secs());
    out.put_u64(named.attr_kept.as_secs());
    out.put_u32(named.name_kept.subsec_nanos());
    out.put_u32(named.attr_kept.subsec_nanos());
    attributes(out, named.attr);
}

/// Appends that a name does not exist, which the kernel may believe for so long.
pub(super) fn no_entry(out: &mut Vec<u8>, kept: Duration) {
    let start = out.len();
    out.put_u64(0);
    out.put_u64(0);
    out.put_u64(kept.as_secs());
    out.put_u64(0);
    out.put_u32(kept.subsec_nanos());
    out.resize(start + ENTRY_OUT_BYTES, 0);
}

/// Appends an answer about attributes alone.
pub(super) fn attr(out: &mut Vec<u8>, kept: Duration, attr: &Attr) {
    out.put_u64(kept.as_secs());
    out.put_u32(kept.subsec_nanos());
    out.put_u32(0);
    attributes(out, attr);
}

fn attributes(out: &mut Vec<u8>, attr: &Attr) {
    out.put_u64(attr.ino.0);
    out.put_u64(attr.size);
    out.put_u64(attr.blocks);
    let times = [attr.atime, attr.mtime, attr.ctime];
    for time in times {
        out.put_u64(time.secs.cast_unsigned());
    }
    for time in times {
        out.put_u32(time.nanos);
    }
    out.put_u32(attr.kind.mode_bits() | attr.perm & 0o7777);
    out.put_u32(attr.nlink);
    out.put_u32(attr.uid);
    out.put_u32(attr.gid);
    out.put_u32(attr.rdev);
    out.put_u32(u32::try_from(BLOCK_BYTES).unwrap_or(4096));
    out.put_u32(0);
}

/// Appends how a file was opened.
pub(super) fn opened(out: &mut Vec<u8>, flags: u32, backing: u32) {
    // No handles: an open file is its inode.
    out.put_u64(0);
    out.put_u32(flags);
    out.put_u32(backing);
}

/// Appends an entry of a listing unless the answer would get longer than `room`; returns whether it
/// did. With `named`, the kernel learns the inode as well.
pub(super) fn listed(
    out: &mut Vec<u8>,
    room: usize,
    entry: &DirEntry,
    named: Option<&Named<'_>>,
) -> bool {
    let head = if named.is_some() { ENTRY_OUT_BYTES } else { 0 };
    let bytes = (head + DIRENT_BYTES + entry.name.len()).next_multiple_of(8);
    let end = out.len() + bytes;
    let Ok(name_bytes) = u32::try_from(entry.name.len()) else {
        return true;
    };
    if end > room {
        return false;
    }
    if let Some(named) = named {
        self::entry(out, named);
    }
    out.put_u64(entry.ino.0);
    out.put_u64(entry.cookie);
    out.put_u32(name_bytes);
    out.put_u32(directory_type(entry.kind));
    out.extend_from_slice(&entry.name);
    out.resize(end, 0);
    true
}

/// Returns the number of a kind of file in a listing.
fn directory_type(kind: FileKind) -> u32 {
    u32::from(match kind {
        FileKind::Regular => libc::DT_REG,
        FileKind::Directory => libc::DT_DIR,
        FileKind::Symlink => libc::DT_LNK,
        FileKind::Fifo => libc::DT_FIFO,
        FileKind::Socket => libc::DT_SOCK,
        FileKind::CharDevice => libc::DT_CHR,
        FileKind::BlockDevice => libc::DT_BLK,
    })
}

/// Appends the numbers of the filesystem.
pub(super) fn statfs(out: &mut Vec<u8>, numbers: &Statfs) {
    let start = out.len();
    out.put_u64(numbers.blocks);
    out.put_u64(numbers.blocks_free);
    out.put_u64(numbers.blocks_available);
    out.put_u64(numbers.inodes);
    out.put_u64(numbers.inodes_free);
    out.put_u32(numbers.block_bytes);
    out.put_u32(numbers.name_bytes_max);
    out.put_u32(numbers.block_bytes);
    out.resize(start + 80, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Timestamp;
    use crate::id::Ino;

    const ATTR: Attr = Attr {
        ino: Ino(7),
        kind: FileKind::Regular,
        perm: 0o4755,
        nlink: 2,
        uid: 1000,
        gid: 100,
        rdev: 0,
        size: 5,
        blocks: 8,
        atime: Timestamp {
            secs: -1,
            nanos: 999_999_999,
        },
        mtime: Timestamp {
            secs: i64::MIN,
            nanos: 1,
        },
        ctime: Timestamp {
            secs: i64::MAX,
            nanos: 0,
        },
        btime: Timestamp { secs: 0, nanos: 0 },
    };

    fn words(bytes: &[u8]) -> Vec<u64> {
        let word = |chunk: &[u8]| u64::from_ne_bytes(chunk.try_into().unwrap());
        bytes.chunks(8).map(word).collect()
    }

    fn pair(low: u32, high: u32) -> u64 {
        let mut bytes = low.to_ne_bytes().to_vec();
        bytes.extend(high.to_ne_bytes());
        u64::from_ne_bytes(bytes.try_into().unwrap())
    }

    fn attr_words() -> Vec<u64> {
        vec![
            7,
            5,
            8,
            u64::MAX,
            1 << 63,
            i64::MAX.cast_unsigned(),
            pair(999_999_999, 1),
            pair(0, 0o104_755),
            pair(2, 1000),
            pair(100, 0),
            pair(4096, 0),
        ]
    }

    #[test]
    fn an_entry_names_node_and_inode_apart() {
        let mut out = Vec::new();
        let named = Named {
            node: 3 << 40 | 7,
            name_kept: Duration::from_millis(1500),
            attr_kept: Duration::from_secs(9),
            attr: &ATTR,
        };
        entry(&mut out, &named);
        assert_eq!(out.len(), ENTRY_OUT_BYTES);
        let mut expected = vec![3 << 40 | 7, 0, 1, 9, pair(500_000_000, 0)];
        expected.extend(attr_words());
        assert_eq!(words(&out), expected);
    }

    #[test]
    fn a_missing_name_is_node_zero() {
        let mut out = Vec::new();
        no_entry(&mut out, Duration::from_secs(60));
        let mut expected = vec![0; 16];
        expected[2] = 60;
        assert_eq!(words(&out), expected);
    }

    #[test]
    fn attributes_alone() {
        let mut out = Vec::new();
        attr(&mut out, Duration::from_secs(2), &ATTR);
        let mut expected = vec![2, 0];
        expected.extend(attr_words());
        assert_eq!(words(&out), expected);
    }

    #[test]
    fn a_listing_is_padded_and_stops_in_time() {
        let entry = |name: &[u8]| DirEntry {
            name: name.to_vec(),
            ino: Ino(9),
            kind: FileKind::Directory,
            cookie: 77,
        };
        let mut out = Vec::new();
        assert!(listed(&mut out, 64, &entry(b"abc"), None));
        assert_eq!(out.len(), 32);
        let mut name = b"abc".to_vec();
        name.resize(8, 0);
        assert_eq!(words(&out)[..3], [9, 77, pair(3, 4)]);
        assert_eq!(out[24..], name);
        assert!(listed(&mut out, 64, &entry(b"12345678"), None));
        assert_eq!(out.len(), 64);
        assert!(!listed(&mut out, 64, &entry(b"x"), None));
        assert_eq!(out.len(), 64);
    }

    #[test]
    fn the_numbers_of_the_filesystem() {
        let mut out = Vec::new();
        let numbers = Statfs {
            block_bytes: 4096,
            blocks: 6,
            blocks_free: 5,
            blocks_available: 4,
            inodes: 3,
            inodes_free: 2,
            name_bytes_max: 255,
        };
        statfs(&mut out, &numbers);
        let expected = [6, 5, 4, 3, 2, pair(4096, 255), pair(4096, 0), 0, 0, 0];
        assert_eq!(words(&out), expected);
    }
}
