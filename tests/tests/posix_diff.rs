//! The same random operations on a mount and on a plain directory: nothing may differ.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use branchpoint_fs::attr::Timestamp;
use branchpoint_tests::act::{Outcome, difference};
use branchpoint_tests::dump;
use branchpoint_tests::exec::path::Directory;
use branchpoint_tests::guard::Watchdog;
use branchpoint_tests::model::{NodeId, ROOT, Time, Tree};
use branchpoint_tests::op::{Op, Profile, ops};
use branchpoint_tests::rig::{Rig, Scratch, can_mount, make_base};
use branchpoint_tests::seed;
use nix::errno::Errno;
use nix::sys::stat::{Mode, umask};

#[test]
fn mount_behaves_like_a_plain_directory() {
    run("mount_behaves_like_a_plain_directory", false);
}

#[test]
fn mount_with_base_behaves_like_a_plain_directory() {
    run("mount_with_base_behaves_like_a_plain_directory", true);
}

fn run(name: &str, base: bool) {
    if !can_mount(name) {
        return;
    }
    let _watchdog = Watchdog::new(seed::limit_seconds());
    umask(Mode::empty());
    seed::run(name, |runner| {
        seed::judge(runner, &ops(Profile::Directories, 120), |ops| {
            Pair::new(base).run(ops)
        });
    });
}

/// A mount and a plain directory with the same content, and the model that resolves picks.
struct Pair {
    plain: Directory,
    mounted: Directory,
    tree: Tree,
    next: u64,
    scratch: Scratch,
    rig: Rig,
}

impl Pair {
    fn new(base: bool) -> Self {
        let scratch = Scratch::new();
        let plain = scratch.dir("plain");
        let mut base_dir = None;
        if base {
            let dir = scratch.dir("base");
            make_base(&dir);
            let copied = std::process::Command::new("cp")
                .args(["-a", "--"])
                .arg(dir.join("."))
                .arg(&plain)
                .status();
            assert!(copied.unwrap().success());
            base_dir = Some(dir);
        }
        // As the root of a new store; with a base, both have the base's.
        if !base {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&plain, mode).unwrap();
        }
        let rig = Rig::with_base_opt(base_dir.as_deref()).expect("probed before");
        let mut tree = Tree::load(&plain);
        if !base {
            // The two roots were not made at the same moment.
            tree.forget_times(ROOT);
        }
        let next = tree.ids().last().unwrap_or(ROOT).0;
        Self {
            plain: Directory::new(&plain),
            mounted: Directory::new(&rig.dir),
            tree,
            next,
            scratch,
            rig,
        }
    }

    fn run(mut self, ops: &[Op]) -> Result<(), String> {
        for (step, op) in ops.iter().enumerate() {
            self.step(step, op)
                .map_err(|what| format!("step {step}, {op:?}: {what}"))?;
        }
        self.compare()
            .map_err(|what| format!("at the end: {what}"))?;
        self.rig.checkpoint();
        self.compare()
            .map_err(|what| format!("after a checkpoint: {what}"))
    }

    fn step(&mut self, step: usize, op: &Op) -> Result<(), String> {
        if step % 40 == 39 {
            self.rig.checkpoint();
        }
        let Some(act) = op.resolve(&self.tree) else {
            return self.compare();
        };
        self.next += 1;
        let new = NodeId(self.next);
        let before = self.tree.clone();
        let expected = self.tree.apply(&act, new, Timestamp::now());
        let plain = self.plain.apply(&before, &act, new);
        let mounted = self.mounted.apply(&before, &act, new);
        let holds = |what: &str, got: &Result<Outcome, Errno>| {
            difference(&expected, got, &Errno::ENXIO).map_or(Ok(()), |difference| {
                Err(format!("{act:?}: {what}: {difference}"))
            })
        };
        holds("the plain directory contradicts the model", &plain)?;
        holds("the mount", &mounted)
    }

    fn compare(&self) -> Result<(), String> {
        let plain = dump::read(&self.scratch.path().join("plain"));
        let mounted = dump::read(&self.rig.dir);
        let names = |dump: &std::collections::BTreeMap<Vec<u8>, dump::Entry>| {
            dump.keys()
                .map(|path| path.escape_ascii().to_string())
                .collect::<Vec<_>>()
        };
        if names(&plain) != names(&mounted) {
            return Err(format!(
                "names {:?} and {:?}",
                names(&plain),
                names(&mounted)
            ));
        }
        for (path, entry) in &plain {
            let other = &mounted[path];
            let mut what = entry.difference(other);
            if what.is_none() && self.time_is_known(path) && entry.mtime != other.mtime {
                what = Some(format!("mtimes {:?} and {:?}", entry.mtime, other.mtime));
            }
            if let Some(what) = what {
                return Err(format!("{} (plain, mounted): {what}", path.escape_ascii()));
            }
        }
        Ok(())
    }

    fn time_is_known(&self, path: &[u8]) -> bool {
        let mut node = ROOT;
        for name in path.split(|byte| *byte == b'/').skip(1) {
            match self.tree.entry(node, name) {
                Ok(Some(child)) => node = child,
                _ => return false,
            }
        }
        matches!(self.tree.node(node).mtime, Time::At(_))
    }
}

/// The comparison itself must be able to fail.
#[test]
fn a_difference_is_found() {
    let scratch = Scratch::new();
    let dirs = ["a", "b"].map(|name| scratch.dir(name));
    let write = |dir: &Path, text: &str| fs::write(dir.join("f"), text).unwrap();
    write(&dirs[0], "one");
    write(&dirs[1], "two");
    let [a, b] = dirs.map(|dir| dump::read(&dir));
    assert!(a[&b"/f"[..]].difference(&b[&b"/f"[..]]).is_some());
}
