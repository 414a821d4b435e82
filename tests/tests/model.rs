//! Random operations on a view over a store, judged by the model.
//!
//! `CASES=n` runs that many cases, `SEED=n` repeats a run.

use std::sync::Arc;

use branchpoint_fs::attr::Timestamp;
use branchpoint_fs::store::{Store, StoreOptions};
use branchpoint_tests::guard::Watchdog;
use branchpoint_tests::model::Tree;
use branchpoint_tests::op::{Profile, ops};
use branchpoint_tests::seed;
use branchpoint_tests::subject::Subject;

#[test]
fn view_over_rocksdb_behaves_like_the_model() {
    run("view_over_rocksdb_behaves_like_the_model", || {
        Subject::on_disk(false)
    });
}

#[test]
fn view_with_base_behaves_like_the_model() {
    run("view_with_base_behaves_like_the_model", || {
        Subject::on_disk(true)
    });
}

#[test]
fn view_over_memory_behaves_like_the_model() {
    run("view_over_memory_behaves_like_the_model", || {
        let kv = Arc::new(branchpoint_fs::kv::memory::MemoryKv::new());
        Store::create_in(&*kv, &StoreOptions::default()).unwrap();
        let scratch = branchpoint_tests::rig::Scratch::new();
        let open = move || Store::open_in(scratch.path(), Box::new(Arc::clone(&kv)));
        Subject::on(
            open().unwrap(),
            Tree::new(Timestamp::default()),
            Box::new(open),
        )
    });
}

fn run(name: &str, subject: impl Fn() -> Subject) {
    let _watchdog = Watchdog::new(seed::limit_seconds());
    seed::run(name, |runner| {
        seed::judge(runner, &ops(Profile::View, 120), |ops| subject().run(ops));
    });
}
