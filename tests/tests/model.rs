//! Random operations on a view over a store, judged by the model.
//!
//! `CASES=n` runs that many cases, `SEED=n` repeats a run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::Arc;

use branchpoint_fs::attr::Timestamp;
use branchpoint_fs::collect::collect;
use branchpoint_fs::store::Store;
use branchpoint_fs::view::View;
use branchpoint_tests::act::difference;
use branchpoint_tests::exec::view::{Inodes, apply, errno};
use branchpoint_tests::guard::Watchdog;
use branchpoint_tests::model::{Line, Tree, World};
use branchpoint_tests::op::{Op, Profile, ops};
use branchpoint_tests::rig::{Scratch, assert_clean, make_base, new_store};
use branchpoint_tests::{seed, walk};
use nix::errno::Errno;
use proptest::test_runner::TestCaseError;

#[test]
fn view_without_base_behaves_like_the_model() {
    run("view_without_base_behaves_like_the_model", false);
}

#[test]
fn view_with_base_behaves_like_the_model() {
    run("view_with_base_behaves_like_the_model", true);
}

fn run(name: &str, base: bool) {
    let _watchdog = Watchdog::new(seed::limit_seconds());
    seed::run(name, |runner| {
        let result = runner.run(&ops(Profile::View, 120), |ops| {
            Subject::new(base).run(&ops).map_err(TestCaseError::fail)
        });
        if let Err(error) = result {
            panic!("{error}");
        }
    });
}

/// A store, the branch in use, and the model of both.
struct Subject {
    store: Option<Arc<Store>>,
    view: Option<Arc<View>>,
    inodes: Inodes,
    world: World,
    names: u32,
    dir: PathBuf,
    _scratch: Scratch,
}

impl Subject {
    fn new(base: bool) -> Self {
        let scratch = Scratch::new();
        let dir = scratch.path().join("store");
        let (store, tree);
        if base {
            let base = scratch.dir("base");
            make_base(&base);
            tree = Tree::load(&base);
            store = new_store(&dir, Some(&base));
        } else {
            tree = Tree::new(Timestamp::default());
            store = new_store(&dir, None);
        }
        let view = store.view("main").unwrap();
        Self {
            store: Some(store),
            view: Some(view),
            inodes: Inodes::default(),
            world: World::new(tree),
            names: 0,
            dir,
            _scratch: scratch,
        }
    }

    fn store(&self) -> &Arc<Store> {
        self.store.as_ref().expect("open")
    }

    fn view(&self) -> &Arc<View> {
        self.view.as_ref().expect("open")
    }

    fn run(mut self, ops: &[Op]) -> Result<(), String> {
        for (step, op) in ops.iter().enumerate() {
            self.step(op).map_err(|what| format!("step {step}, {op:?}: {what}"))?;
        }
        self.compare_all().map_err(|what| format!("at the end: {what}"))?;
        self.reopen();
        self.compare_all().map_err(|what| format!("at the end, opened again: {what}"))
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        let Some(act) = op.resolve(self.world.tree()) else { return self.branch_step(op) };
        let new = self.world.fresh();
        let before = self.world.tree().clone();
        let now = Timestamp::now();
        let expected = self.world.tree_mut().apply(&act, new, now);
        let view = Arc::clone(self.view());
        let actual = apply(&view, &mut self.inodes, &before, &act, new).map_err(errno);
        match difference(&expected, &actual, &Errno::ENXIO) {
            None => Ok(()),
            Some(what) => Err(format!("{act:?}: {what}")),
        }
    }

    fn branch_step(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Compare => self.compare(),
            Op::Checkpoint { label, durable } => self.checkpoint(label, durable),
            Op::Branch { from } => self.branch(usize::from(from)),
            Op::Use { branch } => self.use_branch(usize::from(branch)),
            Op::Rollback { to, keep } => self.rollback(usize::from(to), keep),
            Op::DeleteBranch { branch } => self.delete_branch(usize::from(branch)),
            Op::DeleteCheckpoint { checkpoint } => self.delete_checkpoint(usize::from(checkpoint)),
            Op::Reopen => {
                self.reopen();
                self.compare()
            }
            Op::Collect => {
                collect(self.store(), false, &mut |_| {}).map_err(|e| format!("collect: {e:?}"))?;
                self.compare()
            }
            _ => Ok(()),
        }
    }

    fn compare(&mut self) -> Result<(), String> {
        let view = Arc::clone(self.view());
        walk::compare(&view, &mut self.inodes, self.world.tree())
    }

    /// Compares all branches and checkpoints, and checks the store.
    fn compare_all(&mut self) -> Result<(), String> {
        self.compare()?;
        let store = Arc::clone(self.store());
        for (name, line) in &self.world.branches {
            if *name != self.world.current {
                let view = store.view(name).map_err(|e| format!("{name}: {e:?}"))?;
                walk::compare(&view, &mut self.inodes, &line.tree)
                    .map_err(|what| format!("branch {name}: {what}"))?;
            }
        }
        for (id, tree) in &self.world.checkpoints {
            let layer = store.checkpoint_info(*id).map_err(|e| format!("{id}: {e:?}"))?.layer;
            let view = store.view_at(layer).map_err(|e| format!("{id}: {e:?}"))?;
            walk::compare(&view, &mut self.inodes, tree)
                .map_err(|what| format!("checkpoint {id}: {what}"))?;
        }
        let names: Vec<String> =
            store.branches().map_err(|e| e.to_string())?.into_iter().map(|b| b.name).collect();
        let mut sorted = names.clone();
        sorted.sort();
        if !sorted.iter().eq(self.world.branches.keys()) {
            return Err(format!("branches are {names:?}"));
        }
        assert_clean(&store);
        Ok(())
    }

    fn fresh_name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn checkpoint(&mut self, label: bool, durable: bool) -> Result<(), String> {
        let label = label.then(|| self.fresh_name("label"));
        let current = self.world.current.clone();
        let info = self
            .store()
            .checkpoint(&current, label.as_deref(), durable)
            .map_err(|e| format!("{e:?}"))?;
        if info.unchanged {
            if label.is_some() {
                return Err("a checkpoint with a label is a new one".to_owned());
            }
            let Some(tree) = self.world.checkpoint(info.id) else {
                // Its parent was deleted by us, or never was a checkpoint of ours.
                return Err(format!("'unchanged' names {}, which is not there", info.id));
            };
            let mut inodes = std::mem::take(&mut self.inodes);
            let result = walk::compare(self.view(), &mut inodes, tree);
            self.inodes = inodes;
            return result.map_err(|what| format!("not unchanged at all: {what}"));
        }
        let tree = self.world.tree().without_unnamed();
        self.world.checkpoints.push((info.id, tree));
        Ok(())
    }

    fn branch(&mut self, from: usize) -> Result<(), String> {
        let (revision, tree) = if from % 2 == 1 && !self.world.checkpoints.is_empty() {
            let (id, tree) = &self.world.checkpoints[from / 2 % self.world.checkpoints.len()];
            (id.to_string(), tree.clone())
        } else {
            let index = from / 2 % self.world.branches.len();
            let (name, line) = self.world.branches.iter().nth(index).expect("modulo");
            (name.clone(), line.tree.without_unnamed())
        };
        let name = self.fresh_name("branch");
        let store = self.store();
        let revision = store.resolve(&revision).map_err(|e| format!("{e:?}"))?;
        store.branch_create(&name, &revision).map_err(|e| format!("{e:?}"))?;
        self.world.branches.insert(name, Line { tree });
        Ok(())
    }

    /// Leaves the branch: what was open is closed.
    fn leave(&mut self) {
        let view = self.view.take().expect("open");
        let pins: Vec<_> = view.take_references();
        view.adopt_references(&pins);
        for (ino, count) in pins {
            view.forget(ino, count);
        }
        let tree = self.world.tree().without_unnamed();
        *self.world.tree_mut() = tree;
    }

    fn enter(&mut self, name: &str) -> Result<(), String> {
        name.clone_into(&mut self.world.current);
        self.view = Some(self.store().view(name).map_err(|e| format!("{e:?}"))?);
        self.compare()
    }

    fn use_branch(&mut self, branch: usize) -> Result<(), String> {
        let index = branch % self.world.branches.len();
        let name = self.world.branches.keys().nth(index).expect("modulo").clone();
        self.leave();
        self.enter(&name)
    }

    fn rollback(&mut self, to: usize, keep: bool) -> Result<(), String> {
        if self.world.checkpoints.is_empty() {
            return Ok(());
        }
        let (id, tree) = self.world.checkpoints[to % self.world.checkpoints.len()].clone();
        let keep = keep.then(|| self.fresh_name("kept"));
        self.leave();
        let current = self.world.current.clone();
        let store = self.store();
        let revision = store.resolve(&id.to_string()).map_err(|e| format!("{e:?}"))?;
        let done = store.rollback(&current, &revision, keep.as_deref());
        let done = done.map_err(|e| format!("{e:?}"))?;
        let left = std::mem::replace(self.world.tree_mut(), tree);
        if let Some(info) = done.checkpoint.filter(|info| !info.unchanged) {
            self.world.checkpoints.push((info.id, left.clone()));
        }
        if let Some(keep) = keep {
            self.world.branches.insert(keep, Line { tree: left });
        }
        self.enter(&current)
    }

    fn delete_branch(&mut self, branch: usize) -> Result<(), String> {
        let others: Vec<String> =
            self.world.branches.keys().filter(|name| **name != self.world.current).cloned().collect();
        if others.is_empty() {
            return Ok(());
        }
        let name = &others[branch % others.len()];
        self.store().branch_delete(name).map_err(|e| format!("{e:?}"))?;
        self.world.branches.remove(name);
        Ok(())
    }

    fn delete_checkpoint(&mut self, checkpoint: usize) -> Result<(), String> {
        if self.world.checkpoints.is_empty() {
            return Ok(());
        }
        let index = checkpoint % self.world.checkpoints.len();
        let (id, _) = self.world.checkpoints.remove(index);
        self.store().checkpoint_delete(id).map_err(|e| format!("{e:?}"))
    }

    fn reopen(&mut self) {
        self.leave();
        self.store = None;
        let store = Store::open(&self.dir).unwrap();
        self.view = Some(store.view(&self.world.current).unwrap());
        self.store = Some(store);
    }
}
