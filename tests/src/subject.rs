//! A store under test: carries random operations out on a view of it and on the model.

use std::sync::Arc;

use branchpoint_fs::attr::Timestamp;
use branchpoint_fs::check::check;
use branchpoint_fs::collect::collect;
use branchpoint_fs::error::Error;
use branchpoint_fs::store::Store;
use branchpoint_fs::view::View;
use nix::errno::Errno;

use crate::act::difference;
use crate::exec::view::{Inodes, apply};
use crate::model::{Line, Tree, World};
use crate::op::Op;
use crate::rig::{Scratch, make_base, new_store};
use crate::walk;

/// Why a run ended early.
#[derive(Debug)]
pub enum Stop {
    /// The view and the model differ.
    Difference(String),
    /// The store failed, which a test may have planned.
    Failure(Error),
}

impl From<String> for Stop {
    fn from(what: String) -> Self {
        Self::Difference(what)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failure(error)
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Difference(what) => f.write_str(what),
            Self::Failure(error) => write!(f, "{error:?}"),
        }
    }
}

/// Opens the store again.
type Opener = Box<dyn Fn() -> Result<Arc<Store>, Error>>;

/// A store, the branch in use, and the model of both.
pub struct Subject {
    store: Option<Arc<Store>>,
    view: Option<Arc<View>>,
    inodes: Inodes,
    world: World,
    names: u32,
    opener: Opener,
    _scratch: Option<Scratch>,
}

impl Subject {
    /// Makes a store with RocksDB on the disk.
    pub fn on_disk(base: bool) -> Self {
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
        let mut subject = Self::on(store, tree, Box::new(move || Store::open(&dir)));
        subject._scratch = Some(scratch);
        subject
    }

    /// Takes a store that looks like `tree`.
    pub fn on(store: Arc<Store>, tree: Tree, opener: Opener) -> Self {
        Self {
            view: Some(store.view("main").unwrap()),
            store: Some(store),
            inodes: Inodes::default(),
            world: World::new(tree),
            names: 0,
            opener,
            _scratch: None,
        }
    }

    /// Returns the model.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Goes on after an operation that failed and had no effect: the model goes back to `world`.
    pub fn undo(&mut self, world: World) -> Result<(), Stop> {
        self.world = world;
        if self.view.is_none() {
            // The operation had closed the branch before it failed.
            *self.world.tree_mut() = self.world.tree().without_unnamed();
            self.view = Some(self.store().view(&self.world.current)?);
        }
        Ok(())
    }

    fn store(&self) -> &Arc<Store> {
        self.store.as_ref().expect("open")
    }

    fn view(&self) -> &Arc<View> {
        self.view.as_ref().expect("open")
    }

    /// Carries all of `ops` out and compares everything, then opens the store again and compares.
    pub fn run(mut self, ops: &[Op]) -> Result<(), String> {
        for (step, op) in ops.iter().enumerate() {
            self.step(op)
                .map_err(|what| format!("step {step}, {op:?}: {what}"))?;
        }
        self.compare_all()
            .map_err(|what| format!("at the end: {what}"))?;
        self.reopen()
            .map_err(|what| format!("at the end: {what}"))?;
        self.compare_all()
            .map_err(|what| format!("at the end, opened again: {what}"))
    }

    /// Carries one operation out.
    pub fn step(&mut self, op: &Op) -> Result<(), Stop> {
        let Some(act) = op.resolve(self.world.tree()) else {
            return self.branch_step(op);
        };
        let new = self.world.fresh();
        let before = self.world.tree().clone();
        let now = Timestamp::now();
        let expected = self.world.tree_mut().apply(&act, new, now);
        let view = Arc::clone(self.view());
        let actual = match apply(&view, &mut self.inodes, &before, &act, new) {
            Ok(outcome) => Ok(outcome),
            Err(Error::Posix(errno)) => Err(errno),
            Err(error) => return Err(Stop::Failure(error)),
        };
        if let (Err(_), Err(errno)) = (&expected, &actual)
            && before.rename_faults(&act).contains(errno)
        {
            return Ok(());
        }
        match difference(&expected, &actual, &Errno::ENXIO) {
            None => Ok(()),
            Some(what) => Err(format!("{act:?}: {what}").into()),
        }
    }

    fn branch_step(&mut self, op: &Op) -> Result<(), Stop> {
        match *op {
            Op::Compare => self.compare(),
            Op::Checkpoint { label, durable } => self.checkpoint(label, durable),
            Op::Branch { from } => self.branch(usize::from(from)),
            Op::Use { branch } => self.use_branch(usize::from(branch)),
            Op::Rollback { to, keep } => self.rollback(usize::from(to), keep),
            Op::DeleteBranch { branch } => self.delete_branch(usize::from(branch)),
            Op::DeleteCheckpoint { checkpoint } => self.delete_checkpoint(usize::from(checkpoint)),
            Op::Reopen => {
                self.reopen()?;
                self.compare()
            }
            Op::Collect => {
                collect(self.store(), false, &mut |_| Ok(()))?;
                self.compare()
            }
            _ => Ok(()),
        }
    }

    fn compare(&mut self) -> Result<(), Stop> {
        let view = Arc::clone(self.view());
        walk::compare(&view, &mut self.inodes, self.world.tree())?;
        self.world.tree_mut().forget_access_times();
        Ok(())
    }

    /// Compares all branches and checkpoints, and checks the store.
    pub fn compare_all(&mut self) -> Result<(), Stop> {
        self.compare()?;
        let store = Arc::clone(self.store());
        for (name, line) in &mut self.world.branches {
            if *name != self.world.current {
                let view = store.view(name)?;
                walk::compare(&view, &mut self.inodes, &line.tree)
                    .map_err(|what| format!("branch {name}: {what}"))?;
                line.tree.forget_access_times();
            }
        }
        for (id, tree) in &self.world.checkpoints {
            let layer = store.checkpoint_info(*id)?.layer;
            let view = store.view_at(layer)?;
            walk::compare(&view, &mut self.inodes, tree)
                .map_err(|what| format!("checkpoint {id}: {what}"))?;
        }
        let names: Vec<String> = store.branches()?.into_iter().map(|b| b.name).collect();
        let mut sorted = names.clone();
        sorted.sort();
        if !sorted.iter().eq(self.world.branches.keys()) {
            return Err(format!("branches are {names:?}").into());
        }
        let report = check(&store, &mut |_| Ok(()))?;
        if !report.problems.is_empty() {
            return Err(format!("check found {:#?}", report.problems).into());
        }
        Ok(())
    }

    fn fresh_name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn checkpoint(&mut self, label: bool, durable: bool) -> Result<(), Stop> {
        let label = label.then(|| self.fresh_name("label"));
        let current = self.world.current.clone();
        let info = self
            .store()
            .checkpoint(&current, label.as_deref(), durable)?;
        if info.unchanged {
            if label.is_some() {
                return Err("a checkpoint with a label is a new one".to_owned().into());
            }
            let Some(tree) = self.world.checkpoint(info.id) else {
                // Its parent was deleted by us, or never was a checkpoint of ours.
                return Err(format!("'unchanged' names {}, which is not there", info.id).into());
            };
            let mut inodes = std::mem::take(&mut self.inodes);
            let result = walk::compare(self.view(), &mut inodes, tree);
            self.inodes = inodes;
            return result.map_err(|what| format!("not unchanged at all: {what}").into());
        }
        let tree = self.world.tree().without_unnamed();
        self.world.checkpoints.push((info.id, tree));
        Ok(())
    }

    fn branch(&mut self, from: usize) -> Result<(), Stop> {
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
        let revision = store.resolve(&revision)?;
        store.branch_create(&name, &revision)?;
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

    fn enter(&mut self, name: &str) -> Result<(), Stop> {
        name.clone_into(&mut self.world.current);
        self.view = Some(self.store().view(name)?);
        self.compare()
    }

    fn use_branch(&mut self, branch: usize) -> Result<(), Stop> {
        let index = branch % self.world.branches.len();
        let name = self
            .world
            .branches
            .keys()
            .nth(index)
            .expect("modulo")
            .clone();
        self.leave();
        self.enter(&name)
    }

    fn rollback(&mut self, to: usize, keep: bool) -> Result<(), Stop> {
        if self.world.checkpoints.is_empty() {
            return Ok(());
        }
        let (id, tree) = self.world.checkpoints[to % self.world.checkpoints.len()].clone();
        let keep = keep.then(|| self.fresh_name("kept"));
        self.leave();
        let current = self.world.current.clone();
        let store = self.store();
        let revision = store.resolve(&id.to_string())?;
        store.rollback(&current, &revision, keep.as_deref())?;
        let left = std::mem::replace(self.world.tree_mut(), tree);
        if let Some(keep) = keep {
            self.world.branches.insert(keep, Line { tree: left });
        }
        self.enter(&current)
    }

    fn delete_branch(&mut self, branch: usize) -> Result<(), Stop> {
        let others: Vec<String> = self
            .world
            .branches
            .keys()
            .filter(|name| **name != self.world.current)
            .cloned()
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        let name = &others[branch % others.len()];
        self.store().branch_delete(name)?;
        self.world.branches.remove(name);
        Ok(())
    }

    fn delete_checkpoint(&mut self, checkpoint: usize) -> Result<(), Stop> {
        if self.world.checkpoints.is_empty() {
            return Ok(());
        }
        let index = checkpoint % self.world.checkpoints.len();
        let (id, _) = self.world.checkpoints.remove(index);
        Ok(self.store().checkpoint_delete(id)?)
    }

    fn reopen(&mut self) -> Result<(), Stop> {
        self.leave();
        self.store = None;
        let store = (self.opener)()?;
        self.view = Some(store.view(&self.world.current)?);
        self.store = Some(store);
        Ok(())
    }

    /// Compares all branches and checkpoints of the model with a store that was opened elsewhere, in
    /// which there may be more of them.
    pub fn compare_with(&self, world: &World, store: &Arc<Store>) -> Result<(), Stop> {
        let mut inodes = self.inodes.clone();
        for (name, line) in &world.branches {
            let view = store.view(name)?;
            walk::compare(&view, &mut inodes, &line.tree.without_unnamed())
                .map_err(|what| format!("branch {name}: {what}"))?;
        }
        for (id, tree) in &world.checkpoints {
            let view = store.view_at(store.checkpoint_info(*id)?.layer)?;
            walk::compare(&view, &mut inodes, tree)
                .map_err(|what| format!("checkpoint {id}: {what}"))?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("current", &self.world.current)
            .finish_non_exhaustive()
    }
}
