//! A store in a temporary directory with its branch `main` mounted, taken down whatever happens.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use branchpoint_fs::branch::{CheckpointInfo, Revision};
use branchpoint_fs::fuse::{Mount, MountOptions};
use branchpoint_fs::store::{Store, StoreOptions};
use tempfile::TempDir;

/// How long one test may take before it counts as hung.
const LIMIT: Duration = Duration::from_secs(60);

/// A mounted store.
#[derive(Debug)]
pub(crate) struct Fixture {
    // Dropped in this order: the mount, what it shows, the directories.
    pub(crate) mount: Mount,
    pub(crate) store: Arc<Store>,
    pub(crate) temp: TempDir,
}

impl Fixture {
    /// Returns a path on the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mount.dir().join(name)
    }

    /// Returns what the view holds under `name` in its root, without asking the kernel.
    pub(crate) fn stored(&self, name: &str) -> Vec<u8> {
        let view = self.mount.view();
        let attr = view
            .lookup(branchpoint_fs::id::Ino::ROOT, name.as_bytes())
            .expect(name);
        let mut content = Vec::new();
        let size = u32::try_from(attr.size).expect("test files are small");
        view.read(attr.ino, 0, size, &mut content)
            .expect("read from the view");
        content
    }

    /// Takes a checkpoint of everything that was written.
    pub(crate) fn checkpoint(&self) -> CheckpointInfo {
        self.mount.flush().expect("flush");
        self.store
            .checkpoint("main", None, false)
            .expect("checkpoint")
    }

    /// Rolls the mounted branch back in place.
    pub(crate) fn rollback(&self, to: &CheckpointInfo) {
        self.mount
            .switch(|| {
                let to = Revision::Checkpoint {
                    id: to.id,
                    layer: to.layer,
                };
                self.store.rollback("main", &to, None)?;
                self.store.view("main")
            })
            .expect("switch");
    }
}

/// Runs `test` on a mounted empty store, with a time limit.
pub(crate) fn on_mount(options: MountOptions, test: impl FnOnce(&Fixture) + Send + 'static) {
    limited(move || {
        let Some(fixture) = mounted(options, None) else {
            return;
        };
        test(&fixture);
    });
}

/// Makes a store in a temporary directory and mounts `main`; `base` fills the base.
pub(crate) fn mounted(options: MountOptions, base: Option<&dyn Fn(&Path)>) -> Option<Fixture> {
    if !nix::unistd::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("not run: needs root and /dev/fuse");
        return None;
    }
    let temp = tempfile::Builder::new()
        .prefix("branchpoint-mount-")
        .tempdir()
        .expect("tempdir");
    let (store_dir, dir) = (temp.path().join("store"), temp.path().join("mnt"));
    fs::create_dir(&dir).expect("mkdir");
    let base = base.map(|fill| {
        let dir = temp.path().join("base");
        fs::create_dir(&dir).expect("mkdir");
        fill(&dir);
        dir
    });
    Store::create(&store_dir, &StoreOptions { base }).expect("create the store");
    let store = Store::open(&store_dir).expect("open the store");
    let view = store.view("main").expect("view");
    let mount = Mount::new(view, &dir, &options).expect("mount");
    Some(Fixture { mount, store, temp })
}

/// Runs `test` in a thread of its own and fails if it takes too long.
pub(crate) fn limited(test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(LIMIT) {
        // The hung thread may hold the only way to unmount; ending the process ends the session.
        eprintln!("hung for {LIMIT:?}");
        std::process::abort();
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}
