//! What an address space consists of, as it is kept in an image.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Bytes in a page. Blocks of an address space are numbered by address / 4096.
pub const PAGE: u64 = 4096;

/// An object of the layer that holds memory: one address space, or one piece of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId(pub u64);

impl ObjectId {
    /// The object of the address space whose first process has this pid inside the box.
    pub fn of_process(pid: i32) -> Self {
        Self(u64::from(pid.unsigned_abs()))
    }

    /// The object of the `index`-th piece of shared memory; pids never reach this range.
    pub fn of_shared(index: usize) -> Self {
        Self((1 << 32) | index as u64)
    }
}

/// Which piece of shared memory a mapping shows: equal keys are the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SharedKey {
    /// Shared anonymous memory or a memfd, by inode on the kernel's own shmem mount.
    Inode(u64),
    /// A System V segment, by identifier. Its inode number equals its identifier, which another
    /// object's inode number may equal too.
    SysV(i32),
}

/// A file that a mapping shows, or the executable of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileRef {
    /// The path in the box, as the kernel told it, without the mark of a deleted file.
    pub path: Vec<u8>,
    /// The inode number, by which the file is found when the path leads elsewhere.
    pub ino: u64,
    /// The kernel said that no path leads to the file any more.
    pub deleted: bool,
}

/// What stands behind a mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// Private memory that starts as zeros: heap, stack, what `malloc` asks for.
    Anonymous,
    /// A piece of shared memory, seen from `offset` bytes on.
    Shared {
        /// Which piece.
        key: SharedKey,
        /// Where in it the mapping starts, in bytes.
        offset: u64,
    },
    /// A file; its content belongs to the view.
    File {
        /// Which file.
        file: FileRef,
        /// Where in it the mapping starts, in bytes.
        offset: u64,
    },
    /// Pages that the kernel itself put there (`[vdso]`, `[vvar]`, …), by name.
    Special(String),
}

/// Properties of a mapping beyond its protection, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flags(u32);

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $mnemonic:literal;)*) => {
        impl Flags {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*

            /// The flag behind a two-letter word of the line `VmFlags` in `smaps`.
            pub(crate) fn from_mnemonic(word: [u8; 2]) -> Option<Self> {
                $(if word == *$mnemonic { return Some(Self::$name); })*
                None
            }
        }
    };
}

flags! {
    /// Readable.
    READ = 0, b"rd";
    /// Writable.
    WRITE = 1, b"wr";
    /// Executable.
    EXEC = 2, b"ex";
    /// Writes reach whatever stands behind the mapping.
    SHARED = 3, b"sh";
    /// May be made writable.
    MAY_WRITE = 4, b"mw";
    /// Grows downwards when the page below is touched.
    GROWS_DOWN = 5, b"gd";
    /// Locked into memory.
    LOCKED = 6, b"lo";
    /// Locked into memory as pages are touched.
    LOCKED_ON_FAULT = 7, b"lf";
    /// Not inherited by a child.
    DONT_FORK = 8, b"dc";
    /// Empty in a child.
    WIPE_ON_FORK = 9, b"wf";
    /// Left out of core dumps.
    DONT_DUMP = 10, b"dd";
    /// Huge pages wanted.
    HUGE_PAGE = 11, b"hg";
    /// Huge pages not wanted.
    NO_HUGE_PAGE = 12, b"nh";
    /// Equal pages may be merged with others.
    MERGEABLE = 13, b"mg";
    /// Read from front to back.
    SEQUENTIAL = 14, b"sr";
    /// Read in no order.
    RANDOM = 15, b"rr";
    /// No memory is set aside for it.
    NO_RESERVE = 16, b"nr";
    /// The kernel may empty it at any time.
    DROPPABLE = 17, b"dp";
    /// May not be changed or unmapped any more.
    SEALED = 18, b"sl";
    /// Pages of a hugetlb file system.
    HUGETLB = 19, b"ht";
    /// Memory of a device.
    IO = 20, b"io";
    /// Physical pages without a description in the kernel.
    PFN = 21, b"pf";
    /// Watched by a userfaultfd for missing pages.
    UFFD_MISSING = 22, b"um";
    /// Watched by a userfaultfd for writes.
    UFFD_WRITE = 23, b"uw";
    /// Watched by a userfaultfd for minor faults.
    UFFD_MINOR = 24, b"ui";
    /// A shadow stack.
    SHADOW_STACK = 25, b"ss";
    /// Memory was set aside for it: it is or once was private and writable.
    ACCOUNTED = 26, b"ac";
}

impl Flags {
    /// No flag at all.
    pub const NONE: Self = Self(0);

    /// Whether each flag of `other` is set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    pub fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These flags and those of `other`.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Protection and properties.
    pub flags: Flags,
    /// What stands behind it.
    pub backing: Backing,
    /// The name that the program gave it with `PR_SET_VMA_ANON_NAME`.
    pub name: Option<Vec<u8>>,
    /// Pages made inaccessible one by one with `MADV_GUARD_INSTALL`, as address ranges.
    pub guards: Vec<Range<u64>>,
}

impl Mapping {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it covers no address.
    pub fn is_empty(&self) -> bool {
        self.end <= self.start
    }

    /// The protection as `mmap` and `mprotect` take it.
    pub fn protection(&self) -> i32 {
        [
            (Flags::READ, libc::PROT_READ),
            (Flags::WRITE, libc::PROT_WRITE),
            (Flags::EXEC, libc::PROT_EXEC),
        ]
        .into_iter()
        .filter(|(flag, _)| self.flags.has(*flag))
        .fold(libc::PROT_NONE, |bits, (_, bit)| bits | bit)
    }

    /// Whether it can hold pages of its own: memory that nothing else keeps.
    pub fn has_private_pages(&self) -> bool {
        !self.flags.has_any(Flags::SHARED.with(Flags::DROPPABLE))
            && !matches!(self.backing, Backing::Special(_))
    }
}

/// The fields of the kernel's description of an address space (`struct prctl_mm_map`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MmFields {
    /// Program text.
    pub code: Range<u64>,
    /// Initialised data.
    pub data: Range<u64>,
    /// The heap that `brk` moves: its start, and its end to the byte.
    pub brk: Range<u64>,
    /// Where the stack began.
    pub start_stack: u64,
    /// The arguments.
    pub args: Range<u64>,
    /// The environment.
    pub env: Range<u64>,
    /// The auxiliary vector, as it is in `/proc/PID/auxv`.
    pub auxv: Vec<u8>,
}

/// What `mlockall(MCL_FUTURE)` asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockFuture {
    /// New mappings are locked and populated.
    Now,
    /// New mappings are locked as their pages are touched.
    OnFault,
}

/// An address space, without the content of its pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressSpace {
    /// The mappings, by address.
    pub mappings: Vec<Mapping>,
    /// The kernel's bookkeeping of where what is.
    pub mm: MmFields,
    /// The executable.
    pub exe: FileRef,
    /// The executable is a memfd: this one.
    pub exe_shared: Option<SharedKey>,
    /// What applies to mappings made later.
    pub lock_future: Option<LockFuture>,
    /// CRC-32C of the kernel's vdso, which only the same kernel has again.
    pub vdso_crc: Option<u32>,
}

/// A run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    /// The number of the first page.
    pub first: u64,
    /// How many pages.
    pub count: u64,
}

impl Run {
    /// The first address, or the offset in an object.
    pub fn start(self) -> u64 {
        self.first * PAGE
    }

    /// Length in bytes.
    pub fn bytes(self) -> u64 {
        self.count * PAGE
    }
}
