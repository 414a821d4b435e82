//! Seeds: every random run can be repeated.

use std::time::{Duration, Instant};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// How long a random test runs when `CASES` does not say how many cases it wants.
const DEFAULT_DURATION: Duration = Duration::from_secs(55);

/// Runs `batch` with runners of successive seeds until the time is over, or `CASES` cases ran.
///
/// `SEED=n` starts with that seed; a failure prints the one to repeat.
pub fn run(name: &str, mut batch: impl FnMut(&mut TestRunner)) {
    let cases = number("CASES");
    let first = number("SEED").unwrap_or_else(random);
    let started = Instant::now();
    let mut done = 0;
    let mut seed = first;
    loop {
        println!("{name}: SEED={seed}");
        batch(&mut runner(seed));
        done += u64::from(BATCH);
        seed = seed.wrapping_add(1);
        let over = match cases {
            Some(cases) => done >= cases,
            None => started.elapsed() >= DEFAULT_DURATION,
        };
        if over {
            println!(
                "{name}: {done} cases from SEED={first} in {:?}",
                started.elapsed()
            );
            return;
        }
    }
}

/// Cases of one seed.
const BATCH: u32 = 4;

/// Returns `SEED`, or `default`.
pub fn first(default: u64) -> u64 {
    number("SEED").unwrap_or(default)
}

/// Returns `CASES`, or `default`.
pub fn cases(default: u64) -> u64 {
    number("CASES").unwrap_or(default)
}

fn number(key: &str) -> Option<u64> {
    std::env::var(key).ok().and_then(|text| text.parse().ok())
}

/// Returns a runner that does the same for the same seed.
pub fn runner(seed: u64) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: BATCH,
        failure_persistence: None,
        max_shrink_time: 60_000,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn random() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| {
        since.as_secs() ^ u64::from(since.subsec_nanos()) << 20
    })
}

/// Returns after how many seconds a random run counts as hanging.
pub fn limit_seconds() -> u64 {
    // A long run is asked for by `CASES`, and a failure needs time for shrinking.
    if std::env::var_os("CASES").is_some() {
        24 * 3600
    } else {
        600
    }
}

/// Runs the cases of one seed; a failure ends the test with the shortest sequence found.
pub fn judge<S: Strategy>(
    runner: &mut TestRunner,
    strategy: &S,
    case: impl Fn(&S::Value) -> Result<(), String>,
) where
    S::Value: IntoIterator + Clone,
    <S::Value as IntoIterator>::Item: std::fmt::Debug,
{
    match runner.run(strategy, |value| case(&value).map_err(TestCaseError::fail)) {
        Ok(()) => {}
        Err(TestError::Fail(reason, shortest)) => {
            let steps: Vec<String> = shortest
                .into_iter()
                .enumerate()
                .map(|(n, op)| format!("{n}: {op:?}"))
                .collect();
            panic!(
                "{reason}\nthe shortest sequence found:\n{}",
                steps.join("\n")
            );
        }
        Err(TestError::Abort(reason)) => panic!("given up: {reason}"),
    }
}
