//! A store in a scratch directory, and a mount of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use branchpoint_fs::check::check;
use branchpoint_fs::fuse::{Mount, MountOptions};
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_fs::view::View;

use crate::guard::{Guard, Leftover, Watchdog};

/// A directory that is removed at the end.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _guard: Guard,
}

impl Scratch {
    /// Makes one below the system's directory for temporary files.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("branchpoint-test-")
            .tempdir()
            .unwrap();
        let path = dir.keep();
        // Users that are not root have to get through.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, open).unwrap();
        Self {
            _guard: Guard::new(Leftover::Scratch(path.clone())),
            path,
        }
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory in it.
    pub fn dir(&self, name: &str) -> PathBuf {
        let dir = self.path.join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    }
}

/// Returns whether the kernel lets us mount, and says so loudly if not.
pub fn can_mount(what: &str) -> bool {
    let device = Path::new("/dev/fuse").exists();
    let can = device && nix::unistd::geteuid().is_root();
    if !can {
        let why = if device { "needs root" } else { "no /dev/fuse" };
        println!("SKIP {what}: {why}");
        eprintln!("SKIP {what}: {why}");
    }
    can
}

/// A mount of branch `main` of a new store, served by this process.
#[derive(Debug)]
pub struct Rig {
    mount: Option<Mount>,
    guard: Option<Guard>,
    /// The store.
    pub store: Arc<Store>,
    /// Where it is mounted.
    pub dir: PathBuf,
    /// The directory that holds everything.
    pub scratch: Scratch,
    _watchdog: Watchdog,
}

impl Rig {
    /// Mounts a store without base; `None` where nothing can be mounted. The test has two minutes.
    pub fn new() -> Option<Self> {
        Self::with(None, &MountOptions::default())
    }

    /// Mounts a store with this base.
    pub fn with_base(base: &Path) -> Option<Self> {
        Self::with(Some(base), &MountOptions::default())
    }

    /// Mounts a store with this base, or none.
    pub fn with_base_opt(base: Option<&Path>) -> Option<Self> {
        Self::with(base, &MountOptions::default())
    }

    /// Mounts a store whose base is the directory that holds the store and the mount point.
    pub fn inside(around: &Scratch) -> Option<Self> {
        let store = around.path().join("store");
        let options = MountOptions::default();
        Self::mounted(
            Scratch::new(),
            &store,
            &around.dir("mnt"),
            Some(around.path()),
            &options,
        )
    }

    /// Mounts a store.
    pub fn with(base: Option<&Path>, options: &MountOptions) -> Option<Self> {
        let scratch = Scratch::new();
        let (store, dir) = (scratch.path().join("store"), scratch.dir("mnt"));
        Self::mounted(scratch, &store, &dir, base, options)
    }

    fn mounted(
        scratch: Scratch,
        store: &Path,
        dir: &Path,
        base: Option<&Path>,
        options: &MountOptions,
    ) -> Option<Self> {
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        if !can_mount(&name) {
            return None;
        }
        let watchdog = Watchdog::new(120);
        let store = new_store(store, base);
        let view = store.view("main").unwrap();
        let mount = Mount::new(view, dir, options).unwrap();
        let dir = dir.to_path_buf();
        let guard = Guard::new(Leftover::Mount(dir.clone()));
        Some(Self {
            mount: Some(mount),
            guard: Some(guard),
            store,
            dir,
            scratch,
            _watchdog: watchdog,
        })
    }

    /// Returns a path in the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the mount.
    pub fn mount(&self) -> &Mount {
        self.mount.as_ref().expect("mounted until it is dropped")
    }

    /// Returns the view that is mounted.
    pub fn view(&self) -> Arc<View> {
        self.mount().view()
    }

    /// Makes the kernel forget pages and entries that it can read again.
    pub fn drop_caches(&self) {
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    }

    /// Freezes what the mount shows and returns the checkpoint's id.
    pub fn checkpoint(&self) -> String {
        self.mount().flush().unwrap();
        self.store
            .checkpoint("main", None, false)
            .unwrap()
            .id
            .to_string()
    }

    /// Rolls the mounted branch back, in place.
    pub fn rollback(&self, checkpoint: &str) {
        let to = self.store.resolve(checkpoint).unwrap();
        self.mount()
            .switch(|| {
                self.store.rollback("main", &to, None)?;
                self.store.view("main")
            })
            .unwrap();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            let result = mount.unmount(true);
            if result.is_ok()
                && let Some(guard) = self.guard.take()
            {
                guard.release();
            }
            if !std::thread::panicking() {
                result.unwrap();
                assert_clean(&self.store);
            }
        }
    }
}

/// Makes and opens a store.
pub fn new_store(dir: &Path, base: Option<&Path>) -> Arc<Store> {
    Store::create(
        dir,
        &StoreOptions {
            base: base.map(Path::to_path_buf),
        },
    )
    .unwrap();
    Store::open(dir).unwrap()
}

/// Checks that `check` finds nothing wrong with the store.
pub fn assert_clean(store: &Arc<Store>) {
    let report = check(store, &mut |_| Ok(())).unwrap();
    assert!(
        report.problems.is_empty(),
        "check found {:#?}",
        report.problems
    );
}

/// Makes a small base: files of one and several blocks, a hole, hard links, symbolic links, depth.
pub fn make_base(dir: &Path) {
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::create_dir_all(dir.join("c")).unwrap();
    fs::write(dir.join("a/a"), crate::act::pattern(1, 10_000)).unwrap();
    fs::write(dir.join("a/b/a"), crate::act::pattern(2, 200_000)).unwrap();
    fs::write(dir.join("b"), b"").unwrap();
    fs::write(dir.join("d"), b"small").unwrap();
    fs::hard_link(dir.join("d"), dir.join("a/d")).unwrap();
    fs::hard_link(dir.join("d"), dir.join("c/d")).unwrap();
    symlink("a/b", dir.join("e")).unwrap();
    let sparse = fs::File::create(dir.join("c/a")).unwrap();
    sparse.set_len(150_000).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"in the middle", 70_000).unwrap();
}
