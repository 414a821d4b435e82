//! What only a real kernel shows: caching, descriptors, direct I/O, mappings.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::{Arc, Barrier};

use branchpoint_fs::fuse::MountOptions;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};

use crate::fixture::on_mount;
use crate::sys::{Aligned, Mapping};

fn rw() -> OpenOptions {
    OpenOptions::new().read(true).write(true).to_owned()
}

#[test]
fn exclusive_creation_has_one_winner() {
    on_mount(MountOptions::default(), |f| {
        for round in 0..50 {
            let path = f.path(&format!("x{round}"));
            let barrier = Arc::new(Barrier::new(4));
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let (path, barrier) = (path.clone(), barrier.clone());
                    std::thread::spawn(move || {
                        barrier.wait();
                        OpenOptions::new().write(true).create_new(true).open(path)
                    })
                })
                .collect();
            let results: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
            for error in results.into_iter().filter_map(Result::err) {
                assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            }
        }
    });
}

#[test]
fn racing_creators_without_excl_all_succeed() {
    on_mount(MountOptions::default(), |f| {
        for round in 0..50 {
            let path = f.path(&format!("x{round}"));
            let barrier = Arc::new(Barrier::new(4));
            let threads: Vec<_> = (0..4u8)
                .map(|i| {
                    let (path, barrier) = (path.clone(), barrier.clone());
                    std::thread::spawn(move || {
                        barrier.wait();
                        let open = OpenOptions::new().append(true).create(true).open(path);
                        open.and_then(|mut file| file.write_all(&[i]))
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap().unwrap();
            }
            assert_eq!(fs::metadata(&path).unwrap().len(), 4);
        }
    });
}

#[test]
fn a_created_file_is_open_for_what_was_asked_whatever_its_mode() {
    on_mount(MountOptions::default(), |f| {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(f.path("a"))
            .unwrap();
        file.write_all_at(b"hello", 0).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o444 & !umask());
        let truncated = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .to_owned();
        truncated.open(f.path("a")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
    });
}

fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Umask:"))
        .unwrap();
    u32::from_str_radix(line.trim(), 8).unwrap()
}

#[test]
fn a_name_found_missing_is_there_once_it_is_made() {
    on_mount(MountOptions::default(), |f| {
        for _ in 0..3 {
            assert_eq!(
                File::open(f.path("a")).unwrap_err().kind(),
                ErrorKind::NotFound
            );
        }
        fs::write(f.path("a"), "now").unwrap();
        assert_eq!(fs::read_to_string(f.path("a")).unwrap(), "now");
        fs::remove_file(f.path("a")).unwrap();
        assert_eq!(
            File::open(f.path("a")).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    });
}

#[test]
fn an_unlinked_open_file_lives_until_it_is_closed() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "alive").unwrap();
        let file = rw().open(f.path("a")).unwrap();
        fs::remove_file(f.path("a")).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.write_all_at(b"A", 0).unwrap();
        file.set_len(10_000).unwrap();
        file.sync_all().unwrap();
        let mut buffer = [0; 5];
        file.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"Alive");
        assert_eq!(file.metadata().unwrap().len(), 10_000);
    });
}

#[test]
fn a_file_replaced_by_rename_lives_on_in_its_descriptor() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "first").unwrap();
        fs::write(f.path("b"), "second").unwrap();
        let first = File::open(f.path("a")).unwrap();
        fs::rename(f.path("b"), f.path("a")).unwrap();
        let mut buffer = [0; 5];
        first.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"first");
        assert_eq!(fs::read_to_string(f.path("a")).unwrap(), "second");
    });
}

#[test]
fn appends_of_several_descriptors_do_not_overwrite_each_other() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("log"), "").unwrap();
        let threads: Vec<_> = (0..4u8)
            .map(|i| {
                let mut file = OpenOptions::new().append(true).open(f.path("log")).unwrap();
                std::thread::spawn(move || {
                    for _ in 0..100 {
                        file.write_all(&[b'a' + i; 10]).unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let log = fs::read(f.path("log")).unwrap();
        assert_eq!(log.len(), 4000);
        for i in 0..4 {
            assert_eq!(log.iter().filter(|&&byte| byte == b'a' + i).count(), 1000);
        }
        assert!(
            log.chunks(10)
                .all(|chunk| chunk.iter().all(|byte| *byte == chunk[0]))
        );
    });
}

#[test]
fn direct_io_reads_an_odd_tail() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), vec![b'x'; 5000]).unwrap();
        let direct = rw()
            .custom_flags(OFlag::O_DIRECT.bits())
            .open(f.path("a"))
            .unwrap();
        let mut buffer = Aligned([0; 8192]);
        assert_eq!(direct.read_at(&mut buffer.0, 0).unwrap(), 5000);
        assert!(buffer.0[..5000].iter().all(|&byte| byte == b'x'));
        assert_eq!(direct.read_at(&mut buffer.0, 8192).unwrap(), 0);
        buffer.0.fill(b'y');
        assert_eq!(direct.write_at(&buffer.0[..4096], 4096).unwrap(), 4096);
        let content = fs::read(f.path("a")).unwrap();
        assert_eq!(content.len(), 8192);
        assert_eq!((content[4095], content[4096]), (b'x', b'y'));
    });
}

#[test]
fn a_mapping_and_a_descriptor_see_each_other() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), vec![b'.'; 4096]).unwrap();
        let file = rw().open(f.path("a")).unwrap();
        let mapping = Mapping::new(&file, 4096);
        file.write_all_at(b"F", 0).unwrap();
        assert_eq!(mapping.get(0), b'F');
        mapping.set(1, b'M');
        let mut buffer = [0; 2];
        file.read_exact_at(&mut buffer, 0).unwrap();
        assert_eq!(&buffer, b"FM");
    });
}

#[test]
fn hard_links_are_one_file() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "one").unwrap();
        fs::hard_link(f.path("a"), f.path("b")).unwrap();
        let (a, b) = (
            fs::metadata(f.path("a")).unwrap(),
            fs::metadata(f.path("b")).unwrap(),
        );
        assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
        fs::write(f.path("b"), "both").unwrap();
        assert_eq!(fs::read_to_string(f.path("a")).unwrap(), "both");
        fs::remove_file(f.path("a")).unwrap();
        assert_eq!(fs::metadata(f.path("b")).unwrap().nlink(), 1);
    });
}

#[test]
fn times_before_1970_and_nanoseconds_survive() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "").unwrap();
        for (secs, nanos) in [
            (0, 1),
            (-1, 999_999_999),
            (-2_000_000, 1),
            (1_700_000_000, 123),
        ] {
            let time = nix::sys::time::TimeSpec::new(secs, nanos);
            let path = f.path("a");
            let follow = nix::sys::stat::UtimensatFlags::FollowSymlink;
            nix::sys::stat::utimensat(nix::fcntl::AT_FDCWD, &path, &time, &time, follow).unwrap();
            let seen = fs::metadata(&path).unwrap();
            assert_eq!((seen.mtime(), seen.mtime_nsec()), (secs, nanos));
            assert_eq!((seen.atime(), seen.atime_nsec()), (secs, nanos));
        }
    });
}

#[test]
fn no_time_stamp_ends_the_session() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "").unwrap();
        for secs in [i64::MIN, i64::MIN + 1, i64::MAX, i64::MIN, i64::MIN] {
            let time = nix::sys::time::TimeSpec::new(secs, 999_999_999);
            let follow = nix::sys::stat::UtimensatFlags::FollowSymlink;
            let path = f.path("a");
            let set = nix::sys::stat::utimensat(nix::fcntl::AT_FDCWD, &path, &time, &time, follow);
            assert!(set.is_ok() || fs::metadata(&path).is_ok(), "{secs}");
        }
        fs::write(f.path("b"), "still here").unwrap();
        assert_eq!(f.stored("b"), b"still here");
    });
}

#[test]
fn set_user_id_ends_with_a_write_and_a_chown() {
    on_mount(MountOptions::default(), |f| {
        fs::write(f.path("a"), "x").unwrap();
        let suid = || {
            fs::set_permissions(f.path("a"), fs::Permissions::from_mode(0o4755)).unwrap();
        };
        suid();
        std::os::unix::fs::chown(f.path("a"), Some(1000), None).unwrap();
        assert_eq!(fs::metadata(f.path("a")).unwrap().mode() & 0o7777, 0o755);
        suid();
        fs::set_permissions(f.path("."), fs::Permissions::from_mode(0o777)).unwrap();
        // The superuser's writes keep the bit; another user's do not.
        let script = "printf y >> a";
        let done = std::process::Command::new("setpriv")
            .args(["--reuid=1000", "--clear-groups", "sh", "-c", script])
            .current_dir(f.mount.dir())
            .status();
        if done.is_ok_and(|status| status.success()) {
            assert_eq!(fs::metadata(f.path("a")).unwrap().mode() & 0o7777, 0o755);
        }
    });
}

#[test]
fn operations_that_no_view_has_are_refused_cleanly() {
    on_mount(MountOptions::default(), |f| {
        let file = File::create(f.path("a")).unwrap();
        let collapse = FallocateFlags::FALLOC_FL_COLLAPSE_RANGE;
        assert_eq!(fallocate(&file, collapse, 0, 4096), Err(Errno::EOPNOTSUPP));
    });
}

#[test]
fn a_directory_of_thousands_is_listed_completely() {
    on_mount(MountOptions::default(), |f| {
        fs::create_dir(f.path("d")).unwrap();
        for i in 0..3000 {
            File::create(f.path(&format!("d/{i:0>40}"))).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(fs::read_dir(f.path("d")).unwrap().count(), 3000);
        }
        for (i, entry) in fs::read_dir(f.path("d")).unwrap().enumerate() {
            let path = entry.unwrap().path();
            if i % 2 == 0 {
                fs::remove_file(path).unwrap();
            }
        }
        assert_eq!(fs::read_dir(f.path("d")).unwrap().count(), 1500);
    });
}
