//! Operations on the bytes of regular files.

use branchpoint_fs::attr::{AllocateMode, SeekTo, Timestamp};
use nix::errno::Errno;

use super::node::Time;
use super::{Node, Tree};
use crate::act::{Act, Outcome, pattern};

impl Tree {
    pub(super) fn apply_content(&mut self, act: &Act, now: Timestamp) -> Result<Outcome, Errno> {
        match act {
            Act::Read { node, offset, len } => {
                self.node_mut(*node).atime = Time::Unknown;
                let bytes = self.node(*node).bytes();
                let from = at(*offset).min(bytes.len());
                let to = at(offset + len).min(bytes.len());
                Ok(Outcome::Bytes(bytes[from..to].to_vec()))
            }
            Act::Write {
                node,
                offset,
                len,
                seed,
                kill,
            } => {
                let file = self.node_mut(*node);
                put(file, *offset, &pattern(*seed, at(*len)));
                file.kill_privileges(*kill);
                file.mtime = Time::Since(now);
                Ok(Outcome::Done)
            }
            Act::Append { node, len, seed } => {
                let file = self.node_mut(*node);
                let end = u64::try_from(file.bytes().len()).unwrap();
                put(file, end, &pattern(*seed, at(*len)));
                file.kill_privileges(false);
                file.mtime = Time::Since(now);
                Ok(Outcome::Done)
            }
            Act::Truncate { caller, node, size } => {
                let file = self.node_mut(*node);
                file.bytes_mut().resize(at(*size), 0);
                file.kill_privileges(caller.uid != 0);
                file.mtime = Time::Since(now);
                Ok(Outcome::Done)
            }
            Act::Allocate {
                node,
                mode,
                offset,
                len,
            } => {
                let file = self.node_mut(*node);
                allocate(file.bytes_mut(), *mode, at(*offset), at(offset + len));
                // Whether capabilities go, and which times change, differs between filesystems.
                file.mtime = Time::Unknown;
                Ok(Outcome::Done)
            }
            Act::Copy {
                from,
                from_offset,
                to,
                to_offset,
                len,
            } => {
                self.node_mut(*from).atime = Time::Unknown;
                let source = self.node(*from).bytes();
                let start = at(*from_offset).min(source.len());
                let end = at(from_offset + len).min(source.len());
                let bytes = source[start..end].to_vec();
                if !bytes.is_empty() {
                    let file = self.node_mut(*to);
                    put(file, *to_offset, &bytes);
                    file.kill_privileges(false);
                    file.mtime = Time::Since(now);
                }
                Ok(Outcome::Count(u64::try_from(bytes.len()).unwrap()))
            }
            Act::Seek { node, offset, to } => seek(self.node(*node).bytes(), at(*offset), *to),
            _ => unreachable!("not an operation on content: {act:?}"),
        }
    }
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("offsets of the model fit in memory")
}

fn put(file: &mut Node, offset: u64, data: &[u8]) {
    let bytes = file.bytes_mut();
    let end = at(offset) + data.len();
    if !data.is_empty() && bytes.len() < end {
        bytes.resize(end, 0);
    }
    if !data.is_empty() {
        bytes[at(offset)..end].copy_from_slice(data);
    }
}

fn allocate(bytes: &mut Vec<u8>, mode: AllocateMode, from: usize, to: usize) {
    let (zero, grow) = match mode {
        AllocateMode::Reserve { keep_size } => (false, !keep_size),
        AllocateMode::PunchHole => (true, false),
        AllocateMode::ZeroRange { keep_size } => (true, !keep_size),
    };
    if grow && bytes.len() < to {
        bytes.resize(to, 0);
    }
    if zero {
        let end = to.min(bytes.len());
        if from < end {
            bytes[from..end].fill(0);
        }
    }
}

/// What may be said about holes without saying how a filesystem allocates.
fn seek(bytes: &[u8], offset: usize, to: SeekTo) -> Result<Outcome, Errno> {
    if offset >= bytes.len() {
        return Err(Errno::ENXIO);
    }
    Ok(match to {
        SeekTo::Data => {
            let first = bytes[offset..]
                .iter()
                .position(|b| *b != 0)
                .map(|i| offset + i);
            Outcome::DataBefore {
                from: offset,
                first_nonzero: first,
                size: bytes.len(),
            }
        }
        SeekTo::Hole => Outcome::HoleWithin {
            bytes: bytes[offset..].iter().take_while(|b| **b != 0).count() + offset,
            size: bytes.len(),
        },
    })
}
