//! A mount works whatever is switched off.

use std::fs::{self, File, OpenOptions};
use std::io::Write;

use branchpoint_fs::fuse::MountOptions;

use crate::fixture::{Fixture, on_mount};
use crate::sys::Mapping;

/// A little of everything.
fn work(f: &Fixture) {
    fs::create_dir(f.path("d")).unwrap();
    assert!(!f.path("d/a").exists());
    fs::write(f.path("d/a"), vec![1; 300_000]).unwrap();
    assert_eq!(fs::read(f.path("d/a")).unwrap(), vec![1; 300_000]);
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(f.path("d/log"))
        .unwrap();
    log.write_all(b"one").unwrap();
    log.write_all(b"two").unwrap();
    drop(log);
    assert_eq!(fs::read_to_string(f.path("d/log")).unwrap(), "onetwo");
    std::os::unix::fs::symlink("log", f.path("d/link")).unwrap();
    assert_eq!(
        fs::read_link(f.path("d/link")).unwrap().to_str(),
        Some("log")
    );
    fs::rename(f.path("d/a"), f.path("b")).unwrap();
    assert_eq!(fs::read_dir(f.path("d")).unwrap().count(), 2);
    let checkpoint = f.checkpoint();
    File::create(f.path("extra")).unwrap();
    fs::write(f.path("b"), "changed").unwrap();
    f.rollback(&checkpoint);
    assert!(!f.path("extra").exists());
    assert_eq!(fs::metadata(f.path("b")).unwrap().len(), 300_000);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(f.path("b"))
        .unwrap();
    let mapping = Mapping::new(&file, 4096);
    drop(file);
    mapping.set(0, 9);
    f.mount.flush().unwrap();
    assert_eq!(f.stored("b")[0], 9);
    drop(mapping);
    fs::remove_dir_all(f.path("d")).unwrap();
    f.mount.unmount(false).unwrap();
    assert!(!f.path("b").exists());
}

macro_rules! without {
    ($($name:ident: $($field:ident = $value:expr),+;)+) => {$(
        #[test]
        fn $name() {
            on_mount(MountOptions { $($field: $value,)+ ..MountOptions::default() }, work);
        }
    )+};
}

without! {
    everything_on: lifetime_s = 10 * 3600;
    no_zero_message_opens: zero_message_opens = false;
    no_zero_message_creates: zero_message_creates = false;
    no_kill_privileges: kill_privileges = false;
    no_writeback_cache: writeback_cache = false;
    no_lifetime: lifetime_s = 0;
    no_negative_entries: negative_entries = false;
    no_readdirplus: readdirplus = false;
    no_parallel_directories: parallel_directories = false;
    no_cached_symlinks: cache_symlinks = false;
    small_requests: request_bytes_max = 4096, readahead_bytes = 4096;
    little_background: background_max = 1;
    one_thread: threads = 1;
    five_threads_on_one_descriptor: threads = 5, clone_device = false;
    spinning: spin_us = 30;
    no_access_control_lists: access_control_lists = false;
    no_epochs: epochs = false;
    no_passthrough: passthrough = false;
    everything_off: zero_message_opens = false, zero_message_creates = false,
        kill_privileges = false, writeback_cache = false, lifetime_s = 0,
        negative_entries = false, readdirplus = false, parallel_directories = false,
        cache_symlinks = false, threads = 1, clone_device = false,
        access_control_lists = false, epochs = false, passthrough = false;
}
