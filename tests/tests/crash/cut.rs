//! Cut at the N-th operation of the engine, for each N until the workload ends before it: every state
//! that a kill or a power cut may leave must open, be clean, and be one that the model went through.

use std::sync::Arc;

use branchpoint_fs::attr::Timestamp;
use branchpoint_fs::check::check;
use branchpoint_fs::kv::faulty::{At, CrashKv, Fault, FaultyKv, Plan, Then};
use branchpoint_fs::kv::memory::MemoryKv;
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_tests::guard::Watchdog;
use branchpoint_tests::model::{Tree, World};
use branchpoint_tests::op::{Op, Profile, ops};
use branchpoint_tests::rig::Scratch;
use branchpoint_tests::seed;
use branchpoint_tests::subject::{Stop, Subject};
use nix::errno::Errno;
use proptest::strategy::{Strategy, ValueTree};

type Engine = FaultyKv<CrashKv>;

/// Operations that are the same in every run, without those that open the store again: that happens
/// after the cut.
fn workload(seed: u64) -> Vec<Op> {
    let mut runner = seed::runner(seed);
    let ops = ops(Profile::View, 60)
        .new_tree(&mut runner)
        .unwrap()
        .current();
    ops.into_iter()
        .filter(|op| !matches!(op, Op::Reopen))
        .collect()
}

fn subject(scratch: &Scratch, plan: Option<Plan>) -> (Arc<Engine>, Subject) {
    let image = MemoryKv::new();
    Store::create_in(&image, &StoreOptions::default()).unwrap();
    let engine = Arc::new(FaultyKv::new(CrashKv::on(image), None));
    let (dir, kv) = (scratch.path().to_path_buf(), Arc::clone(&engine));
    let open = move || Store::open_in(&dir, Box::new(Arc::clone(&kv)));
    let store = open().unwrap();
    engine.set_plan(plan.map(|plan| shifted(plan, &engine)));
    (
        engine,
        Subject::on(store, Tree::new(Timestamp::default()), Box::new(open)),
    )
}

/// Counts from now on, instead of from the opening of the store.
fn shifted(plan: Plan, engine: &Engine) -> Plan {
    let at = match plan.at {
        At::Write(n) => At::Write(n + engine.writes()),
        At::Sync(n) => At::Sync(n + engine.syncs()),
        At::Operation(n) => At::Operation(n + engine.writes() + engine.syncs()),
    };
    Plan { at, ..plan }
}

/// What the model went through, oldest first.
struct History {
    worlds: Vec<World>,
    /// From here on, a power cut may take states.
    durable: usize,
}

/// Carries out what can be before the cut. Says whether the cut came.
fn run(engine: &Engine, subject: &mut Subject, ops: &[Op]) -> Result<(History, bool), String> {
    let mut history = History {
        worlds: vec![subject.world().clone()],
        durable: 0,
    };
    for (step, op) in ops.iter().enumerate() {
        let syncs = engine.inner().synced();
        match subject.step(op) {
            Ok(()) => history.worlds.push(subject.world().clone()),
            Err(Stop::Failure(error)) if engine.fired() => {
                // What failed may be in the log or not; if the model knows how it would look, that
                // state is the last one possible.
                let _ = error;
                history.worlds.push(subject.world().clone());
                return Ok((history, true));
            }
            Err(stop) => return Err(format!("step {step}, {op:?}: {stop}")),
        }
        if engine.inner().synced() != syncs {
            // Everything before this operation is on the disk, and perhaps a part of it.
            history.durable = history.worlds.len() - 2;
        }
    }
    Ok((history, engine.fired()))
}

/// Opens a store on what is left; it must be clean, and look like one of `worlds`.
fn judge(
    scratch: &Scratch,
    subject: &Subject,
    image: MemoryKv,
    worlds: &[World],
) -> Result<(), String> {
    let store = Store::open_in(scratch.path(), Box::new(image)).map_err(|e| format!("{e:?}"))?;
    let report = check(&store, &mut |_| Ok(())).map_err(|e| format!("{e:?}"))?;
    if !report.problems.is_empty() {
        return Err(format!("check found {:#?}", report.problems));
    }
    let mut differences = Vec::new();
    for world in worlds.iter().rev() {
        match subject.compare_with(world, &store) {
            Ok(()) => return Ok(()),
            Err(difference) => differences.push(difference.to_string()),
        }
    }
    Err(format!(
        "looks like none of {} states; the last: {}",
        worlds.len(),
        differences[0]
    ))
}

fn cut_everywhere(seed: u64) -> u32 {
    let ops = workload(seed);
    let scratch = Scratch::new();
    let mut cuts = 0;
    for n in 1.. {
        let plan = Plan {
            at: At::Operation(n),
            fault: Fault::Io,
            then: Then::Cut,
        };
        let (engine, mut subject) = subject(&scratch, Some(plan));
        let place = |what: String| format!("SEED={seed}, cut at {n}: {what}");
        let (history, cut) = run(&engine, &mut subject, &ops).map_err(place).unwrap();
        if !cut {
            break;
        }
        cuts += 1;
        let crash = engine.inner();
        let last = &history.worlds[history.worlds.len() - 2..];
        judge(&scratch, &subject, crash.live_image(), last)
            .map_err(|what| place(format!("after a kill: {what}")))
            .unwrap();
        // The oldest, the newest and some in between.
        let unsynced = crash.unsynced();
        for kept in (0..unsynced).step_by(1 + unsynced / 6) {
            let image = crash.image(kept).unwrap();
            judge(
                &scratch,
                &subject,
                image,
                &history.worlds[history.durable..],
            )
            .map_err(|what| place(format!("power cut that keeps {kept} batches: {what}")))
            .unwrap();
        }
    }
    println!("SEED={seed}: {cuts} cuts");
    cuts
}

#[test]
fn every_cut_leaves_the_state_before_or_after_the_last_operation() {
    let _watchdog = Watchdog::new(seed::limit_seconds());
    let first = seed::first(1);
    let cuts: u32 = (first..first + seed::cases(6)).map(cut_everywhere).sum();
    assert!(cuts > 10, "only {cuts} cuts");
}

#[test]
fn every_write_on_a_full_disk_fails_alone() {
    let _watchdog = Watchdog::new(seed::limit_seconds());
    let seed = seed::first(7);
    let ops = workload(seed);
    let scratch = Scratch::new();
    for n in (1..).step_by(3) {
        let plan = Plan {
            at: At::Write(n),
            fault: Fault::NoSpace,
            then: Then::GoOn,
        };
        let (engine, mut subject) = subject(&scratch, Some(plan));
        let mut failed = false;
        for op in &ops {
            let before = subject.world().clone();
            match subject.step(op) {
                Ok(()) => {}
                Err(Stop::Failure(error)) if engine.fired() => {
                    assert!(
                        failed || error.errno() == Errno::ENOSPC,
                        "{op:?}: {error:?}"
                    );
                    failed = true;
                    subject
                        .undo(before)
                        .unwrap_or_else(|stop| panic!("full at {n}: {stop}"));
                }
                Err(stop) => panic!("SEED={seed}, full at {n}, {op:?}: {stop}"),
            }
        }
        if !engine.fired() {
            return;
        }
        judge(
            &scratch,
            &subject,
            engine.inner().live_image(),
            &[subject.world().clone()],
        )
        .map_err(|what| format!("SEED={seed}, full at {n}: {what}"))
        .unwrap();
    }
}
