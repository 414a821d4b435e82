//! What a mount makes use of. Each switch can be turned off to measure what it is worth.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Switches of a mount. The default is what is fastest; every combination works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MountOptions {
    /// Files and directories are opened and closed without asking the daemon. Not together with
    /// `passthrough`, which needs a message for each open.
    pub zero_message_opens: bool,
    /// New files are made by MKNOD and a zero-message open instead of CREATE, which saves the
    /// RELEASE that every CREATE brings along.
    pub zero_message_creates: bool,
    /// The daemon clears set-user-ID bits and capabilities when a file is written, so that the
    /// kernel need not ask for them before each write.
    pub kill_privileges: bool,
    /// The kernel collects writes in its page cache. Off: each write is a message.
    pub writeback_cache: bool,
    /// How long the kernel may keep entries and attributes, in seconds; 0 makes it ask each time.
    pub lifetime_s: u64,
    /// The kernel remembers names that do not exist, too.
    pub negative_entries: bool,
    /// Listing a directory brings along the attributes of its entries.
    pub readdirplus: bool,
    /// Lookups and listings of one directory run in parallel.
    pub parallel_directories: bool,
    /// Targets of symbolic links are kept by the kernel.
    pub cache_symlinks: bool,
    /// Largest request in bytes; the kernel's own limit is 1 MiB.
    pub request_bytes_max: u32,
    /// How much the kernel reads ahead, in bytes.
    pub readahead_bytes: u32,
    /// Requests that the kernel may have waiting without a program waiting for each.
    pub background_max: u16,
    /// Threads that answer requests.
    pub threads: usize,
    /// Each thread has a descriptor of the device of its own, with a queue of its own.
    pub clone_device: bool,
    /// How long a thread that has answered looks for the next request before it sleeps, in
    /// microseconds. It does so only while that pays.
    pub spin_us: u32,
    /// The kernel enforces POSIX access control lists.
    pub access_control_lists: bool,
    /// A switch to another view makes the kernel ask again for all names at once. Off, or before
    /// Linux 6.16: the names that it may know are expired one by one.
    pub epochs: bool,
    /// A flush reads from the kernel's own lists what is unwritten. Off, or where that is not allowed:
    /// it looks through the open files of all processes.
    pub kernel_statistics: bool,
    /// On read-only mounts, files that lie wholly in the base are read straight from there.
    pub passthrough: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            zero_message_opens: true,
            zero_message_creates: true,
            kill_privileges: true,
            writeback_cache: true,
            lifetime_s: 10 * 3600,
            negative_entries: true,
            readdirplus: true,
            parallel_directories: true,
            cache_symlinks: true,
            request_bytes_max: 1 << 20,
            readahead_bytes: 1 << 20,
            background_max: 64,
            threads: 2,
            clone_device: true,
            spin_us: 0,
            access_control_lists: true,
            epochs: true,
            kernel_statistics: true,
            passthrough: true,
        }
    }
}

impl MountOptions {
    /// Returns how long the kernel may keep what it is told.
    pub(super) fn lifetime(&self) -> Duration {
        Duration::from_secs(self.lifetime_s)
    }
}

#[cfg(test)]
mod tests {
    use super::MountOptions;

    #[test]
    fn missing_fields_are_the_default() {
        let read: MountOptions = serde_json::from_str(r#"{"writeback_cache": false}"#).unwrap();
        assert_eq!(
            read,
            MountOptions {
                writeback_cache: false,
                ..MountOptions::default()
            }
        );
    }

    #[test]
    fn a_misspelt_switch_is_an_error() {
        assert!(serde_json::from_str::<MountOptions>(r#"{"writeback": false}"#).is_err());
    }

    #[test]
    fn survives_a_round_trip() {
        let options = MountOptions {
            threads: 7,
            lifetime_s: 0,
            ..MountOptions::default()
        };
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(
            serde_json::from_str::<MountOptions>(&text).unwrap(),
            options
        );
    }
}
