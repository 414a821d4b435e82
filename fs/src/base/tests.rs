use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::*;
use crate::error::ErrorKind;

struct Fixture {
    base: Base,
    dir: TempDir,
    store: TempDir,
}

fn fixture(fill: impl FnOnce(&Path)) -> Fixture {
    let (dir, store) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fill(dir.path());
    let base = Base::open(dir.path(), store.path()).unwrap();
    Fixture { base, dir, store }
}

fn stat(base: &Base, path: &[u8]) -> BaseStat {
    base.stat(path).unwrap().unwrap()
}

fn names(base: &Base, path: &[u8]) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = base
        .read_dir(path)
        .unwrap()
        .into_iter()
        .map(|(name, ..)| name)
        .collect();
    names.sort();
    names
}

fn read_all(base: &Base, path: &[u8]) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    let file = base.open_file(path).unwrap();
    let length = base.read_at(&file, 0, &mut buffer).unwrap();
    buffer.truncate(length);
    buffer
}

#[test]
fn attributes_are_the_hosts() {
    let Fixture {
        base,
        dir,
        store: _store,
    } = fixture(|dir| {
        fs::write(dir.join("f"), [7; 5000]).unwrap();
        fs::set_permissions(dir.join("f"), fs::Permissions::from_mode(0o4751)).unwrap();
        fs::hard_link(dir.join("f"), dir.join("g")).unwrap();
        let old = SystemTime::UNIX_EPOCH - Duration::from_nanos(1_500_000_001);
        fs::File::open(dir.join("f"))
            .unwrap()
            .set_modified(old)
            .unwrap();
    });
    let host = fs::metadata(dir.path().join("f")).unwrap();
    let stat_f = stat(&base, b"f");
    assert_eq!((stat_f.dev, stat_f.ino), (host.dev(), host.ino()));
    assert_eq!((stat_f.mode, stat_f.size), (host.mode(), 5000));
    assert_eq!(
        (stat_f.uid, stat_f.gid, stat_f.nlink),
        (host.uid(), host.gid(), 2)
    );
    assert_eq!(stat_f.blocks, host.blocks());
    assert_eq!(
        stat_f.mtime,
        Timestamp {
            secs: -2,
            nanos: 499_999_999
        }
    );
    assert_eq!(stat_f.ctime.secs, host.ctime());
    assert!(stat_f.btime.secs > 0 || stat_f.btime == stat_f.mtime);
    assert!(!stat_f.hidden);
    assert_eq!(stat(&base, b"g"), stat_f, "two names, one inode");
    assert_eq!(
        base.stat_file(base.open_file(b"g").unwrap()).unwrap().ino,
        stat_f.ino
    );
    assert_eq!(
        FileKind::from_mode(stat(&base, b"").mode),
        Some(FileKind::Directory)
    );
    assert_eq!(base.stat(b"none").unwrap(), None);
    assert_eq!(base.stat(b"f/below").unwrap(), None);
    assert_eq!(base.stat(&[b'n'; 300]).unwrap(), None);
}

#[test]
fn odd_names_and_all_kinds_are_listed() {
    let Fixture {
        base,
        dir,
        store: _store,
    } = fixture(|dir| {
        fs::write(dir.join("file"), "").unwrap();
        fs::create_dir(dir.join("dir")).unwrap();
        symlink("nowhere", dir.join("link")).unwrap();
        mkfifo(&dir.join("fifo"), Mode::S_IRWXU).unwrap();
        drop(UnixListener::bind(dir.join("socket")).unwrap());
        for name in [&b"\xff\xfe"[..], b"new\nline", b" ", &[b'x'; 255]] {
            fs::write(dir.join(std::ffi::OsStr::from_bytes(name)), name).unwrap();
        }
    });
    let mut entries = base.read_dir(b"").unwrap();
    entries.sort();
    assert_eq!(entries.len(), 9);
    let kind = |name: &[u8]| entries.iter().find(|(n, ..)| n == name).unwrap().1;
    assert_eq!(kind(b"file"), FileKind::Regular);
    assert_eq!(kind(b"dir"), FileKind::Directory);
    assert_eq!(kind(b"link"), FileKind::Symlink);
    assert_eq!(kind(b"fifo"), FileKind::Fifo);
    assert_eq!(kind(b"socket"), FileKind::Socket);
    for (name, kind, ino) in &entries {
        let stat = stat(&base, name);
        assert_eq!(
            (FileKind::from_mode(stat.mode), stat.ino),
            (Some(*kind), *ino)
        );
    }
    assert_eq!(read_all(&base, b"\xff\xfe"), b"\xff\xfe");
    assert_eq!(read_all(&base, &[b'x'; 255]), [b'x'; 255]);
    assert!(base.read_dir(b"dir").unwrap().is_empty());
    let not_a_dir = base.read_dir(b"file").unwrap_err();
    let name = dir.path().join("file").display().to_string();
    assert!(not_a_dir.to_string().contains(&name), "{not_a_dir}");
    assert_eq!(
        base.read_dir(b"none").unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn no_path_leads_out() {
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("secret"), "s").unwrap();
    let Fixture {
        base,
        dir: _dir,
        store: _store,
    } = fixture(|dir| {
        symlink(outside.path(), dir.join("absolute")).unwrap();
        symlink("..", dir.join("parent")).unwrap();
        symlink("sub", dir.join("inside")).unwrap();
        symlink(outside.path().join("secret"), dir.join("file")).unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        fs::write(dir.join("sub/f"), "f").unwrap();
    });
    for path in [&b"absolute/secret"[..], b"parent/tmp", b"inside/f"] {
        assert_eq!(base.stat(path).unwrap(), None, "{path:?}");
        assert!(base.open_file(path).is_err());
    }
    for path in [&b"absolute"[..], b"parent", b"inside"] {
        assert_eq!(
            FileKind::from_mode(stat(&base, path).mode),
            Some(FileKind::Symlink)
        );
        assert!(base.read_dir(path).is_err());
    }
    assert!(
        base.open_file(b"file").is_err(),
        "a link is not followed to be opened"
    );
    for path in [&b".."[..], b"sub/../..", b"/etc", b"sub/", b"a\0b"] {
        assert!(matches!(base.stat(path), Err(Error::Io { .. })), "{path:?}");
    }
    assert_eq!(base.read_link(b"parent").unwrap(), b"..");
    assert_eq!(
        base.read_link(b"file").unwrap(),
        outside.path().join("secret").as_os_str().as_bytes()
    );
    assert!(base.read_link(b"sub").is_err());
    assert!(base.read_link(b"none").is_err());
}

#[test]
fn devices_and_pipes_are_never_opened() {
    let Fixture {
        base,
        dir: _dir,
        store: _store,
    } = fixture(|dir| {
        mkfifo(&dir.join("fifo"), Mode::S_IRWXU).unwrap();
        drop(UnixListener::bind(dir.join("socket")).unwrap());
    });
    // A blocking open of the pipe would hang here.
    assert!(base.open_file(b"fifo").is_err());
    assert!(base.open_file(b"socket").is_err());
    assert!(base.open_file(b"").is_err());
}

#[test]
fn reads_are_full_up_to_the_end_and_holes_are_found() {
    let Fixture {
        base,
        dir: _dir,
        store: _store,
    } = fixture(|dir| {
        let file = fs::File::create(dir.join("sparse")).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 512 << 10).unwrap();
        file.sync_all().unwrap();
        fs::write(dir.join("short"), b"abc").unwrap();
    });
    let file = base.open_file(b"sparse").unwrap();
    let mut buffer = [9; 8192];
    assert_eq!(
        base.read_at(&file, (512 << 10) - 4096, &mut buffer)
            .unwrap(),
        8192
    );
    assert_eq!((buffer[4095], buffer[4096]), (0, 1));
    assert_eq!(
        base.read_at(&file, (1 << 20) - 100, &mut buffer).unwrap(),
        100
    );
    assert_eq!(base.read_at(&file, 1 << 20, &mut buffer).unwrap(), 0);
    assert_eq!(base.read_at(&file, u64::MAX, &mut buffer).unwrap(), 0);
    assert_eq!(base.seek_hole(&file, 0).unwrap(), Some(0));
    assert_eq!(base.seek_data(&file, 0).unwrap(), Some(512 << 10));
    assert_eq!(
        base.seek_hole(&file, 512 << 10).unwrap(),
        Some((512 << 10) + 4096)
    );
    assert_eq!(base.seek_data(&file, 600 << 10).unwrap(), None);
    assert_eq!(base.seek_hole(&file, 2 << 20).unwrap(), None);
    assert_eq!(base.seek_data(&file, u64::MAX).unwrap(), None);
    assert_eq!(read_all(&base, b"short"), b"abc");
}

#[test]
fn the_cache_keeps_the_file_that_was_opened() {
    let Fixture {
        base,
        dir,
        store: _store,
    } = fixture(|dir| fs::write(dir.join("f"), "old").unwrap());
    let first = base.file(b"f").unwrap();
    assert!(Arc::ptr_eq(&first, &base.file(b"f").unwrap()));
    fs::write(dir.path().join("new"), "newer").unwrap();
    fs::rename(dir.path().join("new"), dir.path().join("f")).unwrap();
    let cached = base.file(b"f").unwrap();
    assert_eq!(base.stat_file(&cached).unwrap().size, 3);
    assert_ne!(base.stat_file(&cached).unwrap().ino, stat(&base, b"f").ino);
    base.forget_file(b"f");
    assert_eq!(base.stat_file(base.file(b"f").unwrap()).unwrap().size, 5);
    assert!(base.file(b"none").is_err());
}

#[test]
fn attributes_of_links_are_their_own() {
    let Fixture {
        base,
        dir,
        store: _store,
    } = fixture(|dir| {
        fs::write(dir.join("f"), "").unwrap();
        symlink("f", dir.join("link")).unwrap();
        fs::create_dir(dir.join("d")).unwrap();
    });
    let set = |name: &str, value: &str, path: &str| {
        let status = Command::new("setfattr")
            .args(["-h", "-n", name, "-v", value])
            .arg(dir.path().join(path))
            .status();
        status.is_ok_and(|status| status.success())
    };
    assert!(base.list_xattrs(b"f").unwrap().is_empty());
    assert_eq!(base.get_xattr(b"f", b"user.a").unwrap(), None);
    assert!(base.list_xattrs(b"none").is_err());
    if !set("user.a", "1", "f") {
        eprintln!("SKIP the rest: no setfattr, or no user attributes on this file system");
        return;
    }
    assert!(set("user.long", &"x".repeat(3000), "f") && set("user.d", "2", "d"));
    assert_eq!(
        base.get_xattr(b"f", b"user.a").unwrap(),
        Some(b"1".to_vec())
    );
    assert_eq!(
        base.get_xattr(b"f", b"user.long").unwrap(),
        Some(vec![b'x'; 3000])
    );
    assert_eq!(
        base.get_xattr(b"d", b"user.d").unwrap(),
        Some(b"2".to_vec())
    );
    let mut list = base.list_xattrs(b"f").unwrap();
    list.sort();
    assert_eq!(list, [b"user.a".to_vec(), b"user.long".to_vec()]);
    assert!(
        base.list_xattrs(b"link").unwrap().is_empty(),
        "not those of the link's target"
    );
    if set("trusted.t", "3", "link") {
        assert_eq!(base.list_xattrs(b"link").unwrap(), [b"trusted.t".to_vec()]);
        assert_eq!(
            base.get_xattr(b"link", b"trusted.t").unwrap(),
            Some(b"3".to_vec())
        );
        assert_eq!(base.get_xattr(b"f", b"trusted.t").unwrap(), None);
    }
}

#[test]
fn very_deep_paths_are_found() {
    let Fixture {
        base,
        dir: _dir,
        store: _store,
    } = fixture(|dir| {
        let mut at = open(dir, OFlag::O_PATH, Mode::empty()).unwrap();
        for _ in 0..40 {
            let name = "d".repeat(200);
            nix::sys::stat::mkdirat(&at, name.as_str(), Mode::S_IRWXU).unwrap();
            at = nix::fcntl::openat(&at, name.as_str(), OFlag::O_PATH, Mode::empty()).unwrap();
        }
    });
    let path = [&[b'd'; 200][..]; 40].join(&b'/');
    assert!(path.len() > 8000);
    assert!(base.stat(&path).unwrap().is_some());
    assert!(base.read_dir(&path).unwrap().is_empty());
    assert_eq!(base.stat(&[&path[..], b"/x"].concat()).unwrap(), None);
}

#[test]
fn a_removed_base_is_unavailable() {
    let Fixture {
        base,
        dir,
        store: _store,
    } = fixture(|dir| {
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/f"), "f").unwrap();
    });
    let path = dir.path().to_owned();
    let file = base.file(b"d/f").unwrap();
    base.check().unwrap();
    dir.close().unwrap();
    // A new directory at the same path is another one.
    fs::create_dir(&path).unwrap();
    fs::write(path.join("f"), "f").unwrap();
    for result in [
        base.check().map(|()| None),
        base.stat(b"f"),
        base.read_dir(b"d").map(|_| None),
        base.open_file(b"f").map(|_| None),
    ] {
        assert!(
            matches!(result, Err(Error::BaseUnavailable { .. })),
            "{result:?}"
        );
    }
    assert_eq!(
        base.read_at(&file, 0, &mut [0; 9]).unwrap(),
        1,
        "what is open can be read"
    );
    fs::remove_dir_all(&path).unwrap();
}

#[test]
fn only_a_directory_outside_the_store_can_be_a_base() {
    let store = TempDir::new().unwrap();
    fs::create_dir(store.path().join("d")).unwrap();
    fs::write(store.path().join("f"), "").unwrap();
    let other = TempDir::new().unwrap();
    let missing = Base::open(&store.path().join("none"), other.path());
    assert!(
        matches!(missing, Err(Error::BaseUnavailable { .. })),
        "{missing:?}"
    );
    let file = Base::open(&store.path().join("f"), other.path());
    assert!(
        matches!(file, Err(Error::BaseUnavailable { .. })),
        "{file:?}"
    );
    for path in [store.path().to_owned(), store.path().join("d")] {
        let inside = Base::open(&path, store.path());
        assert!(matches!(inside, Err(Error::BadPath { .. })), "{inside:?}");
    }
}

#[test]
fn the_store_in_its_own_base_looks_empty() {
    let dir = TempDir::new().unwrap();
    let store = dir.path().join("sub/store");
    fs::create_dir_all(store.join("db")).unwrap();
    fs::write(store.join("lock"), "1").unwrap();
    fs::create_dir(dir.path().join("sub/store2")).unwrap();
    let base = Base::open(dir.path(), &store).unwrap();
    assert_eq!(
        names(&base, b"sub"),
        [b"store".to_vec(), b"store2".to_vec()]
    );
    let shown = stat(&base, b"sub/store");
    assert!(shown.hidden && (shown.size, shown.nlink) == (0, 2));
    assert!(names(&base, b"sub/store").is_empty());
    assert_eq!(base.stat(b"sub/store/lock").unwrap(), None);
    assert!(base.open_file(b"sub/store/lock").is_err());
    assert!(!stat(&base, b"sub/store2").hidden);
    // Under another name it is found by its inode.
    fs::rename(&store, dir.path().join("sub/moved")).unwrap();
    assert!(stat(&base, b"sub/moved").hidden);
    assert!(names(&base, b"sub/moved").is_empty());
}

#[test]
fn pseudo_file_systems_of_the_host_look_empty() {
    let store = TempDir::new().unwrap();
    let base = Base::open(Path::new("/"), store.path()).unwrap();
    let proc = stat(&base, b"proc");
    assert!(proc.hidden && proc.nlink == 2);
    assert_eq!(FileKind::from_mode(proc.mode), Some(FileKind::Directory));
    assert!(names(&base, b"proc").is_empty());
    assert_eq!(base.stat(b"proc/self").unwrap(), None);
    assert_eq!(base.stat(b"proc/sys/kernel").unwrap(), None);
    assert!(base.open_file(b"proc/version").is_err());
    assert!(base.list_xattrs(b"proc").unwrap().is_empty());
    assert!(!stat(&base, b"").hidden);
    assert!(names(&base, b"").contains(&b"proc".to_vec()));
}

#[test]
fn ordinary_mounts_are_entered_and_hidden_ones_inside_are_not() {
    // The mounts live in a namespace of this thread and vanish with it.
    let tested = thread::spawn(|| {
        if unshare(CloneFlags::CLONE_NEWNS).is_err() {
            return false;
        }
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let (dir, store) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let at = |path: &str| dir.path().join(path);
        fs::create_dir(at("disk")).unwrap();
        fs::write(at("plain"), "plain").unwrap();
        mount(
            Some("t"),
            &at("disk"),
            Some("tmpfs"),
            MsFlags::empty(),
            none,
        )
        .unwrap();
        fs::create_dir_all(at("disk/d/proc")).unwrap();
        fs::create_dir_all(at("disk/shown")).unwrap();
        fs::write(at("disk/d/f"), "f").unwrap();
        fs::write(at("disk/version"), "").unwrap();
        mount(
            Some("p"),
            &at("disk/d/proc"),
            Some("proc"),
            MsFlags::empty(),
            none,
        )
        .unwrap();
        let bind = MsFlags::MS_BIND;
        mount(Some("/proc/version"), &at("disk/version"), none, bind, none).unwrap();
        mount(Some(store.path()), &at("disk/shown"), none, bind, none).unwrap();
        fs::write(store.path().join("lock"), "1").unwrap();

        let base = Base::open(dir.path(), store.path()).unwrap();
        for _twice_for_the_cache in 0..2 {
            assert!(!stat(&base, b"disk").hidden);
            assert_eq!(read_all(&base, b"disk/d/f"), b"f");
            assert_eq!(names(&base, b"disk/d"), [b"f".to_vec(), b"proc".to_vec()]);
            assert!(stat(&base, b"disk/d/proc").hidden);
            assert!(names(&base, b"disk/d/proc").is_empty());
            assert_eq!(base.stat(b"disk/d/proc/self").unwrap(), None);
            let file = stat(&base, b"disk/version");
            assert!(file.hidden);
            assert_eq!(FileKind::from_mode(file.mode), Some(FileKind::Regular));
            assert_eq!(read_all(&base, b"disk/version"), b"");
            assert!(
                stat(&base, b"disk/shown").hidden,
                "the store through a bind mount"
            );
            assert_eq!(base.stat(b"disk/shown/lock").unwrap(), None);
            assert_eq!(base.stat(b"disk/d/none").unwrap(), None);
            assert_eq!(read_all(&base, b"plain"), b"plain");
        }
        true
    });
    if !tested.join().unwrap() {
        eprintln!("SKIP: a mount namespace needs root");
    }
}
