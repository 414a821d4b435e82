//! Many views in one session: slots.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use branchpoint_fs::branch::Revision;
use branchpoint_fs::fuse::{AttachedSlot, MountOptions, SlotMount};
use branchpoint_fs::id::Ino;
use branchpoint_fs::store::{Store, StoreOptions};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

use crate::fixture::limited;
use crate::sys::Mapping;

/// A store with branches `main` and `other`, which are equal, and a session with slots.
struct Slots {
    // Dropped in this order.
    mount: Arc<SlotMount>,
    store: Arc<Store>,
    temp: TempDir,
}

impl Slots {
    fn attach(&self, branch: &str) -> AttachedSlot {
        self.mount.attach(self.store.view(branch).unwrap()).unwrap()
    }
}

/// Runs `test` with a session that has no slots yet, with a time limit.
fn on_slots(test: impl FnOnce(&Slots) + Send + 'static) {
    limited(move || {
        if !nix::unistd::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("not run: needs root and /dev/fuse");
            return;
        }
        let temp = tempfile::Builder::new()
            .prefix("branchpoint-slots-")
            .tempdir()
            .unwrap();
        // Others may come as far as the mount.
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (store_dir, dir) = (temp.path().join("store"), temp.path().join("boxes"));
        fs::create_dir(&dir).unwrap();
        Store::create(&store_dir, &StoreOptions { base: None }).unwrap();
        let store = Store::open(&store_dir).unwrap();
        let view = store.view("main").unwrap();
        let root = branchpoint_fs::attr::Caller::ROOT;
        let kind = branchpoint_fs::attr::FileKind::Regular;
        let made = view
            .mknod(root, Ino::ROOT, b"f", kind, 0o644, 0, 0)
            .unwrap();
        view.write(made.ino, 0, b"before", false).unwrap();
        drop(view);
        let from = branch(&store);
        store.branch_create("other", &from).unwrap();
        let mount = SlotMount::new(&store, &dir, &MountOptions::default()).unwrap();
        test(&Slots { mount, store, temp });
    });
}

fn branch(store: &Arc<Store>) -> Revision {
    store.resolve("main").unwrap()
}

/// A bind mount, gone when this is dropped.
struct Bound(PathBuf);

impl Bound {
    fn new(slots: &Slots, slot: &AttachedSlot, name: &str) -> Self {
        let at = slots.temp.path().join(name);
        fs::create_dir(&at).unwrap();
        let none = None::<&str>;
        mount(Some(&slot.path()), &at, none, MsFlags::MS_BIND, none).unwrap();
        Self(at)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn two_slots_show_two_branches_under_the_same_numbers() {
    on_slots(|slots| {
        let (one, two) = (slots.attach("main"), slots.attach("other"));
        assert_ne!(one.id(), two.id());
        let (one_f, two_f) = (one.path().join("f"), two.path().join("f"));
        fs::write(&two_f, "in the other branch").unwrap();
        assert_eq!(fs::read(&one_f).unwrap(), b"before");
        assert_eq!(fs::read(&two_f).unwrap(), b"in the other branch");
        let (first, second) = (fs::metadata(&one_f).unwrap(), fs::metadata(&two_f).unwrap());
        assert_eq!((first.dev(), first.ino()), (second.dev(), second.ino()));
        assert_ne!(first.len(), second.len());
        let (first, second) = (
            fs::metadata(one.path()).unwrap(),
            fs::metadata(two.path()).unwrap(),
        );
        assert_eq!((first.dev(), first.ino()), (second.dev(), second.ino()));
        // A listing has the inode number alone, too.
        let listed = fs::read_dir(two.path()).unwrap().next().unwrap().unwrap();
        assert_eq!(
            std::os::unix::fs::DirEntryExt::ino(&listed),
            fs::metadata(&one_f).unwrap().ino()
        );
        // Names that are made in one are not in the other.
        assert!(!one.path().join("new").exists());
        fs::create_dir(two.path().join("new")).unwrap();
        assert!(!one.path().join("new").exists());
    });
}

#[test]
fn locks_and_pages_are_each_slots_own() {
    on_slots(|slots| {
        let (one, two) = (slots.attach("main"), slots.attach("other"));
        let open = |slot: &AttachedSlot| {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .open(slot.path().join("f"))
                .unwrap()
        };
        let locked = Flock::lock(open(&one), FlockArg::LockExclusiveNonblock).unwrap();
        let other = Flock::lock(open(&two), FlockArg::LockExclusiveNonblock).unwrap();
        let again = Flock::lock(open(&one), FlockArg::LockExclusiveNonblock);
        assert_eq!(
            again.err().map(|(_, errno)| errno),
            Some(Errno::EWOULDBLOCK)
        );
        let (mine, theirs) = (Mapping::new(&locked, 6), Mapping::new(&other, 6));
        mine.set(0, b'B');
        assert_eq!((mine.get(0), theirs.get(0)), (b'B', b'b'));
    });
}

#[test]
fn a_bind_mount_of_a_slot_is_a_root_of_its_own() {
    on_slots(|slots| {
        let (one, two) = (slots.attach("main"), slots.attach("other"));
        let (a, b) = (Bound::new(slots, &one, "a"), Bound::new(slots, &two, "b"));
        assert_eq!(fs::read(a.path("f")).unwrap(), b"before");
        assert_eq!(
            errno(fs::rename(a.path("f"), b.path("g"))),
            Some(libc::EXDEV)
        );
        assert_eq!(
            errno(fs::hard_link(a.path("f"), b.path("g"))),
            Some(libc::EXDEV)
        );
        fs::rename(a.path("f"), a.path("g")).unwrap();
        assert!(b.path("f").exists());
        // The way up ends at the root of the bind mount's own place.
        let file = File::open(a.path("g")).unwrap();
        let path = fs::read_link(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&file)
        ));
        assert_eq!(path.unwrap(), a.path("g"));
    });
}

#[test]
fn the_closed_directory_shows_nothing_and_keeps_others_out() {
    on_slots(|slots| {
        let slot = slots.attach("main");
        let dir = slots.mount.dir();
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
        assert_eq!(errno(fs::metadata(dir.join("7"))), Some(libc::ENOENT));
        assert_eq!(errno(fs::metadata(dir.join("01"))), Some(libc::ENOENT));
        let guessed = format!("{}-{}", slot.id(), "0".repeat(32));
        assert_eq!(errno(fs::metadata(dir.join(guessed))), Some(libc::ENOENT));
        assert_eq!(errno(File::create(dir.join("x"))), Some(libc::EPERM));
        assert_eq!(errno(fs::create_dir(dir.join("x"))), Some(libc::EPERM));
        assert!(fs::rename(slot.path(), dir.join("x")).is_err());
        assert!(fs::remove_dir(slot.path()).is_err());
        let ino = fs::metadata(slot.path().join("f")).unwrap().ino();
        let bound = Bound::new(slots, &slot, "bound");
        let reachable = |path: &Path| {
            let mut other = Command::new("setpriv");
            other.args(["--reuid=1000", "--regid=1000", "--clear-groups", "cat"]);
            let done = other
                .arg(path)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            done.expect("setpriv").success()
        };
        // In the kernel's cache by now, so this is about who asks.
        assert!(slot.control().join(ino.to_string()).exists());
        assert!(reachable(&bound.path("f")));
        assert!(!reachable(&slot.path().join("f")));
        assert!(!reachable(&slot.control().join(ino.to_string())));
    });
}

#[test]
fn the_control_directory_opens_what_has_no_name_any_more() {
    on_slots(|slots| {
        let slot = slots.attach("main");
        let path = slot.path().join("f");
        let mut open = OpenOptions::new();
        let first = open.read(true).write(true).open(&path).unwrap();
        let ino = first.metadata().unwrap().ino();
        fs::remove_file(&path).unwrap();
        let by_number = slot.control().join(ino.to_string());
        let mut second = open.open(&by_number).unwrap();
        first.write_all_at(b"B", 0).unwrap();
        let mut content = String::new();
        second.read_to_string(&mut content).unwrap();
        assert_eq!(content, "Before");
        let (seen, other) = (second.metadata().unwrap(), first.metadata().unwrap());
        assert_eq!((seen.ino(), seen.dev()), (other.ino(), other.dev()));
        assert_eq!(seen.nlink(), 0);
        // What does not exist, and directories, are not there.
        assert_eq!(fs::read_dir(slot.control()).unwrap().count(), 0);
        for name in ["1", "999999", "f", "-1"] {
            let found = File::open(slot.control().join(name));
            assert!(found.is_err(), "{name:?}");
        }
        // The inode lives as long as one of the two is open.
        drop(first);
        second.write_all_at(b"still", 0).unwrap();
        assert_eq!(second.metadata().unwrap().len(), 6);
    });
}

#[test]
fn detaching_frees_everything() {
    on_slots(|slots| {
        let slot = slots.attach("main");
        let view = slot.view();
        fs::create_dir(slot.path().join("d")).unwrap();
        fs::write(slot.path().join("d/x"), "x").unwrap();
        let unnamed = slot.path().join("unnamed");
        fs::write(&unnamed, "content").unwrap();
        let open = File::open(&unnamed).unwrap();
        let ino = Ino(open.metadata().unwrap().ino());
        fs::remove_file(&unnamed).unwrap();
        assert!(view.getattr(ino).is_ok());
        let path = slot.path();
        slot.detach().unwrap();
        assert_eq!(slots.mount.slots(), 0);
        assert!(!path.exists());
        assert!(!view.knows(ino) && !view.knows(Ino::ROOT));
        assert!(view.getattr(ino).is_err());
        let mut byte = [0];
        let read = open.read_at(&mut byte, 1 << 20).map(|_| ());
        // The pages that the kernel has are read from there; everything else is gone.
        assert!(read.is_ok() || errno(read) == Some(libc::ESTALE));
        assert!(errno(open.set_len(1)).is_some());
        drop(open);
        slot.detach().unwrap();
        drop(slot);
        drop(view);
        // The branch can be shown again, in a slot with another number.
        let again = slots.attach("main");
        assert_ne!(again.path(), path);
        assert_eq!(fs::read(again.path().join("d/x")).unwrap(), b"x");
    });
}

#[test]
fn a_flush_of_one_slot_brings_its_pages_into_its_view() {
    on_slots(|slots| {
        let (one, two) = (slots.attach("main"), slots.attach("other"));
        let map = |slot: &AttachedSlot| {
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .open(slot.path().join("f"))
                .unwrap();
            Mapping::new(&file, 6)
        };
        let (mine, theirs) = (map(&one), map(&two));
        for round in 0..20 {
            mine.set(0, round);
            theirs.set(0, round + 100);
            one.flush(&[std::process::id()]).unwrap();
            let view = one.view();
            let ino = view.lookup(Ino::ROOT, b"f").unwrap().ino;
            let mut content = Vec::new();
            view.read(ino, 0, 6, &mut content).unwrap();
            assert_eq!(content[0], round);
        }
    });
}

#[test]
fn many_slots_come_and_go() {
    on_slots(|slots| {
        let from = branch(&slots.store);
        for round in 0..3 {
            let attached: Vec<AttachedSlot> = (0..20)
                .map(|index| {
                    let name = format!("b{round}-{index}");
                    slots.store.branch_create(&name, &from).unwrap();
                    slots.attach(&name)
                })
                .collect();
            for (index, slot) in attached.iter().enumerate() {
                fs::write(slot.path().join("f"), index.to_string()).unwrap();
            }
            for (index, slot) in attached.iter().enumerate() {
                let content = fs::read_to_string(slot.path().join("f")).unwrap();
                assert_eq!(content, index.to_string());
            }
            drop(attached);
            assert_eq!(slots.mount.slots(), 0);
        }
        slots.mount.unmount(false).unwrap();
    });
}
