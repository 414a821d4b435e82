//! The first request: what kernel and daemon agree on.

use nix::errno::Errno;

use crate::fuse::options::MountOptions;
use crate::fuse::wire::abi::{MAJOR, MINOR, MINOR_MIN, init};
use crate::fuse::wire::encode::Put;
use crate::fuse::wire::request::Init;

/// Requests are never larger, whatever is asked for: the kernel's own limit.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// The kernel's page size, in which it counts the size of requests.
const PAGE_BYTES: u32 = 4096;

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct Agreed {
    /// Flags that both sides know and want.
    flags: u64,
    readahead_bytes: u32,
    /// Largest WRITE, in bytes.
    pub(in crate::fuse) write_bytes_max: u32,
    background_max: u16,
}

impl Agreed {
    /// Agrees with a kernel that says `hello`; `passthrough` says whether files may be opened on the
    /// base. `Err` holds what the kernel is to be told.
    pub(super) fn on(
        hello: &Init,
        options: &MountOptions,
        passthrough: bool,
    ) -> Result<Self, Errno> {
        if hello.major != MAJOR || hello.minor < MINOR_MIN {
            return Err(Errno::EPROTO);
        }
        let mut flags = wanted(options, passthrough) & hello.flags;
        let missing = wanted(options, passthrough) & !hello.flags;
        if missing != 0 {
            log::info!("this kernel lacks features {missing:#x}; the mount does without");
        }
        if passthrough && flags & init::PASSTHROUGH == 0 {
            // Then opens need no answer that names a file.
            flags |= wanted(options, false) & hello.flags;
        }
        Ok(Self {
            flags,
            readahead_bytes: hello
                .readahead_bytes_max
                .min(options.readahead_bytes.max(PAGE_BYTES)),
            write_bytes_max: options
                .request_bytes_max
                .clamp(PAGE_BYTES, REQUEST_BYTES_MAX),
            background_max: options.background_max.max(1),
        })
    }

    /// Returns whether files may be opened on the base.
    pub(super) fn passthrough(&self) -> bool {
        self.flags & init::PASSTHROUGH != 0
    }

    /// Appends the answer.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let low = |flags: u64| u32::try_from(flags & u64::from(u32::MAX)).unwrap_or(0);
        let pages = self
            .write_bytes_max
            .max(self.readahead_bytes)
            .div_ceil(PAGE_BYTES);
        let pages = u16::try_from(pages).unwrap_or(u16::MAX);
        // Above this many, the kernel lets background work wait.
        let congested = u16::try_from(u32::from(self.background_max) * 3 / 4).unwrap_or(0);
        out.put_u32(MAJOR);
        out.put_u32(MINOR);
        out.put_u32(self.readahead_bytes);
        out.put_u32(low(self.flags));
        out.extend_from_slice(&self.background_max.to_ne_bytes());
        out.extend_from_slice(&congested.to_ne_bytes());
        out.put_u32(self.write_bytes_max);
        // Time stamps are exact to the nanosecond.
        out.put_u32(1);
        out.extend_from_slice(&pages.to_ne_bytes());
        out.extend_from_slice(&0u16.to_ne_bytes());
        out.put_u32(low(self.flags >> 32));
        // Deep enough for a base on overlayfs, which is itself one level.
        out.put_u32(if self.passthrough() { 2 } else { 0 });
        out.extend_from_slice(&[0; 24]);
    }
}

/// Appends the answer to a kernel that is ahead of us by a whole version: it asks again.
pub(super) fn encode_version(out: &mut Vec<u8>) {
    out.put_u32(MAJOR);
    out.put_u32(MINOR);
    out.extend_from_slice(&[0; 56]);
}

fn wanted(options: &MountOptions, passthrough: bool) -> u64 {
    let on = |flag: u64, wanted: bool| if wanted { flag } else { 0 };
    // Pages change only by the kernel's own writes and where we say so.
    init::EXPLICIT_INVAL_DATA
        | init::ASYNC_READ
        | init::BIG_WRITES
        | init::MAX_PAGES
        | init::INIT_EXT
        | init::ASYNC_DIO
        // The mask of the caller counts only where no default access control list does.
        | init::DONT_MASK
        // With passthrough, the answer to an open names the backing file.
        | on(init::NO_OPEN_SUPPORT, options.zero_message_opens && !passthrough)
        | on(init::NO_OPENDIR_SUPPORT, options.zero_message_opens)
        | on(init::HANDLE_KILLPRIV_V2, options.kill_privileges)
        // The kernel does not combine the two.
        | on(init::WRITEBACK_CACHE, options.writeback_cache && !passthrough)
        | on(init::PASSTHROUGH, passthrough)
        | on(init::DO_READDIRPLUS | init::READDIRPLUS_AUTO, options.readdirplus)
        | on(init::PARALLEL_DIROPS, options.parallel_directories)
        | on(init::CACHE_SYMLINKS, options.cache_symlinks)
        | on(init::POSIX_ACL, options.access_control_lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Init = Init {
        major: 7,
        minor: 45,
        readahead_bytes_max: 128 << 10,
        flags: u64::MAX,
    };

    #[test]
    fn a_new_kernel_gets_everything_that_is_asked_for() {
        let agreed = Agreed::on(&NEW, &MountOptions::default(), false).unwrap();
        assert_eq!(agreed.flags, wanted(&MountOptions::default(), false));
        assert_eq!(agreed.readahead_bytes, 128 << 10);
        assert!(!agreed.passthrough());
        let mut out = Vec::new();
        agreed.encode(&mut out);
        let word = |at: usize| u32::from_ne_bytes(out[at..at + 4].try_into().unwrap());
        assert_eq!(out.len(), 64);
        assert_eq!((word(0), word(4), word(8)), (7, MINOR, 128 << 10));
        assert_eq!(
            out[16..20],
            [64u16.to_ne_bytes(), 48u16.to_ne_bytes()].concat()
        );
        assert_eq!((word(20), word(24)), (1 << 20, 1));
        assert_eq!(out[28..30], 256u16.to_ne_bytes());
    }

    #[test]
    fn passthrough_excludes_the_writeback_cache_and_opens_without_messages() {
        let agreed = Agreed::on(&NEW, &MountOptions::default(), true).unwrap();
        assert!(agreed.passthrough());
        assert_eq!(
            agreed.flags & (init::WRITEBACK_CACHE | init::NO_OPEN_SUPPORT),
            0
        );
    }

    #[test]
    fn an_old_kernel_gets_what_it_has() {
        let old = Init {
            minor: 31,
            flags: init::ASYNC_READ | init::WRITEBACK_CACHE,
            ..NEW
        };
        let agreed = Agreed::on(&old, &MountOptions::default(), true).unwrap();
        assert_eq!(agreed.flags, old.flags);
    }

    #[test]
    fn other_protocols_are_refused() {
        for (major, minor) in [(6, 99), (7, 6), (8, 0)] {
            let other = Init {
                major,
                minor,
                ..NEW
            };
            assert_eq!(
                Agreed::on(&other, &MountOptions::default(), false),
                Err(Errno::EPROTO)
            );
        }
    }
}
