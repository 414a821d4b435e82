//! How likely each operation is, and with which numbers.

use branchpoint_fs::attr::{AllocateMode, RenameMode, SeekTo, SetTime, Timestamp, XattrMode};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::{Name, Op};

/// For whom the operations are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// For a view over a store: branches and checkpoints too, callers that are not root, large
    /// extended attributes.
    View,
    /// For two directories of the running system: only what both can do, as root.
    Directories,
}

/// Largest offset in a file.
const OFFSET_MAX: u64 = 600 * 1024;

/// Returns sequences of up to `count` operations.
pub fn ops(profile: Profile, count: usize) -> BoxedStrategy<Vec<Op>> {
    let last = match profile {
        Profile::View => branches().boxed(),
        Profile::Directories => Just(Op::Compare).boxed(),
    };
    let last_weight = if profile == Profile::View { 10 } else { 1 };
    let op = prop_oneof![
        30 => names(profile), 34 => contents(profile), 16 => attributes(profile),
        last_weight => last
    ];
    // A few files and directories first, so that what follows has something to work on.
    (vec(making(profile), 4..12), vec(op, 1..count))
        .prop_map(|(mut start, rest)| {
            start.extend(rest);
            start
        })
        .boxed()
}

fn pick() -> impl Strategy<Value = u16> + Clone {
    any::<u16>()
}

fn name() -> impl Strategy<Value = Name> {
    prop_oneof![
        any::<u8>().prop_map(Name::Any),
        pick().prop_map(Name::Taken)
    ]
}

fn perm() -> impl Strategy<Value = u32> {
    prop_oneof![4 => prop_oneof![Just(0o644u32), Just(0o755), Just(0o600)], 1 => 0u32..0o10000]
}

fn owner(profile: Profile) -> BoxedStrategy<u8> {
    match profile {
        Profile::View => any::<u8>().boxed(),
        Profile::Directories => Just(0).boxed(),
    }
}

fn making(profile: Profile) -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (pick(), name(), perm(), any::<bool>(), owner(profile)).prop_map(
            |(dir, name, perm, umask, owner)| Op::Create { dir, name, perm, umask, owner }),
        4 => (pick(), name(), perm(), any::<bool>(), owner(profile)).prop_map(
            |(dir, name, perm, umask, owner)| Op::Mkdir { dir, name, perm, umask, owner }),
        1 => (pick(), name(), any::<u8>())
            .prop_map(|(dir, name, what)| Op::Special { dir, name, what }),
        1 => (pick(), name(), prop_oneof![4 => 1u16..90, 1 => 1u16..4096])
            .prop_map(|(dir, name, len)| Op::Symlink { dir, name, len }),
    ]
}

fn names(profile: Profile) -> impl Strategy<Value = Op> {
    let mode = prop_oneof![
        4 => Just(RenameMode::Replace), 1 => Just(RenameMode::NoReplace),
        2 => Just(RenameMode::Exchange), 1 => Just(RenameMode::Whiteout)
    ];
    prop_oneof![
        12 => making(profile),
        3 => (pick(), name()).prop_map(|(dir, name)| Op::Lookup { dir, name }),
        4 => (pick(), pick(), name()).prop_map(|(node, dir, name)| Op::Link { node, dir, name }),
        1 => (pick(), pick()).prop_map(|(node, dir)| Op::LinkDirectory { node, dir }),
        5 => (pick(), name()).prop_map(|(dir, name)| Op::Unlink { dir, name }),
        3 => (pick(), name()).prop_map(|(dir, name)| Op::Rmdir { dir, name }),
        8 => (pick(), name(), pick(), name(), mode).prop_map(
            |(dir, name, to, to_name, mode)| Op::Rename { dir, name, to, to_name, mode }),
        2 => pick().prop_map(|dir| Op::List { dir }),
        1 => pick().prop_map(|node| Op::Readlink { node }),
    ]
}

/// Offsets near the borders of blocks and runs, where mistakes are.
fn offset() -> impl Strategy<Value = u64> {
    let near = |unit: u64, count: u64| {
        (0..count, 0u64..7).prop_map(move |(n, d)| (n * unit + d).saturating_sub(3))
    };
    prop_oneof![
        3 => near(4096, 12), 2 => near(65_536, 9), 2 => 0u64..20_000, 1 => 0..OFFSET_MAX,
        2 => Just(0u64)
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 1u64..200,
        3 => prop_oneof![Just(4096u64), Just(4095), Just(4097), Just(8192)],
        1 => Just(65_536u64),
        2 => 1u64..20_000,
        1 => 1u64..200_000
    ]
}

fn contents(profile: Profile) -> impl Strategy<Value = Op> {
    let kill = match profile {
        Profile::View => any::<bool>().boxed(),
        Profile::Directories => Just(false).boxed(),
    };
    let mode = prop_oneof![
        any::<bool>().prop_map(|keep_size| AllocateMode::Reserve { keep_size }),
        Just(AllocateMode::PunchHole),
        any::<bool>().prop_map(|keep_size| AllocateMode::ZeroRange { keep_size }),
    ];
    prop_oneof![
        12 => (pick(), offset(), length(), any::<u8>(), kill).prop_map(
            |(file, offset, len, seed, kill)| Op::Write { file, offset, len, seed, kill }),
        3 => (pick(), length(), any::<u8>())
            .prop_map(|(file, len, seed)| Op::Append { file, len, seed }),
        6 => (pick(), offset(), length())
            .prop_map(|(file, offset, len)| Op::Read { file, offset, len }),
        5 => (pick(), offset(), owner(profile))
            .prop_map(|(file, size, owner)| Op::Truncate { file, size, owner }),
        4 => (pick(), mode, offset(), length())
            .prop_map(|(file, mode, offset, len)| Op::Allocate { file, mode, offset, len }),
        4 => (pick(), offset(), pick(), offset(), length()).prop_map(
            |(from, from_offset, to, to_offset, len)| {
                Op::Copy { from, from_offset, to, to_offset, len }
            }),
        2 => (pick(), offset(), prop_oneof![Just(SeekTo::Data), Just(SeekTo::Hole)])
            .prop_map(|(file, offset, to)| Op::Seek { file, offset, to }),
        2 => pick().prop_map(|file| Op::Pin { file }),
        2 => pick().prop_map(|pin| Op::Unpin { pin }),
    ]
}

fn time() -> impl Strategy<Value = Option<SetTime>> {
    // Within what ext4 can store: 1901 to 2446.
    let stamp = (-2_000_000_000i64..15_000_000_000, 0u32..1_000_000_000)
        .prop_map(|(secs, nanos)| SetTime::At(Timestamp { secs, nanos }));
    option::of(prop_oneof![3 => stamp, 1 => Just(SetTime::Now)])
}

fn attributes(profile: Profile) -> impl Strategy<Value = Op> {
    let id = || option::of(prop_oneof![Just(0u32), Just(1000), Just(4_000_000_000)]);
    let len = match profile {
        Profile::View => prop_oneof![4 => 0u32..300, 1 => 0u32..65_537].boxed(),
        Profile::Directories => (0u32..200).boxed(),
    };
    let mode = prop_oneof![
        Just(XattrMode::Either),
        Just(XattrMode::Create),
        Just(XattrMode::Replace)
    ];
    prop_oneof![
        3 => (pick(), perm()).prop_map(|(node, perm)| Op::Chmod { node, perm }),
        2 => (pick(), id(), id()).prop_map(|(node, uid, gid)| Op::Chown { node, uid, gid }),
        3 => (pick(), time(), time())
            .prop_map(|(node, atime, mtime)| Op::SetTimes { node, atime, mtime }),
        4 => (pick(), any::<u8>(), len, any::<u8>(), mode).prop_map(
            |(node, name, len, seed, mode)| Op::SetXattr { node, name, len, seed, mode }),
        2 => (pick(), any::<u8>()).prop_map(|(node, name)| Op::GetXattr { node, name }),
        1 => pick().prop_map(|node| Op::ListXattrs { node }),
        2 => (pick(), any::<u8>()).prop_map(|(node, name)| Op::RemoveXattr { node, name }),
    ]
}

fn branches() -> impl Strategy<Value = Op> {
    let checkpoint = (
        any::<bool>(),
        prop_oneof![9 => Just(false), 1 => Just(true)],
    );
    prop_oneof![
        6 => checkpoint.prop_map(|(label, durable)| Op::Checkpoint { label, durable }),
        4 => pick().prop_map(|from| Op::Branch { from }),
        4 => pick().prop_map(|branch| Op::Use { branch }),
        4 => (pick(), any::<bool>()).prop_map(|(to, keep)| Op::Rollback { to, keep }),
        2 => pick().prop_map(|branch| Op::DeleteBranch { branch }),
        2 => pick().prop_map(|checkpoint| Op::DeleteCheckpoint { checkpoint }),
        2 => Just(Op::Reopen),
        2 => Just(Op::Collect),
        3 => Just(Op::Compare),
    ]
}
