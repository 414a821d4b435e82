//! Whether cost grows with depth or width: `depth STORE [MOST]` makes a store in the directory STORE and
//! prints, as one JSON object a line, how long a branch, a checkpoint, a rollback and a random read take at
//! depths and widths 1, 10, 100, … MOST. The library is called directly: no kernel, no socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use branchpoint_fs::attr::{Caller, FileKind};
use branchpoint_fs::id::{BLOCK_BYTES, Ino};
use branchpoint_fs::store::{Store, StoreOptions};

/// Measured operations at each depth or width.
const SAMPLES: u32 = 50;
/// Blocks of the file that is read, 64 MiB: more than a processor's cache holds.
const FILE_BLOCKS: u64 = 16 * 1024;
/// Random reads at each depth or width.
const READS: u64 = 4000;

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let dir = PathBuf::from(args.next().context("usage: depth STORE [MOST]")?);
    let most: u32 = match args.next() {
        Some(text) => text
            .to_str()
            .context("MOST is not text")?
            .parse()
            .context("MOST")?,
        None => 10_000,
    };
    for shape in ["depth", "width"] {
        let store = dir.join(shape);
        std::fs::create_dir_all(&store)?;
        Store::create(&store, &StoreOptions { base: None })?;
        let bench = Bench::new(Store::open(&store)?)?;
        let mut reached = 0;
        let mut target = 1;
        while target <= most {
            bench.grow(shape, reached, target)?;
            reached = target;
            bench.report(shape, target)?;
            target *= 10;
        }
    }
    Ok(())
}

struct Bench {
    store: Arc<Store>,
    file: Ino,
}

impl Bench {
    fn new(store: Arc<Store>) -> Result<Self> {
        let view = store.view("main")?;
        let file = view
            .mknod(
                Caller::ROOT,
                Ino::ROOT,
                b"file",
                FileKind::Regular,
                0o644,
                0,
                0,
            )?
            .ino;
        let block = vec![7_u8; 1 << 20];
        for mebibyte in 0..FILE_BLOCKS / 256 {
            view.write(file, mebibyte << 20, &block, false)?;
        }
        drop(view);
        store.checkpoint("main", Some("start"), false)?;
        Ok(Self { store, file })
    }

    /// Writes one block of the file in `branch`, a different one for each `n`.
    fn touch(&self, branch: &str, n: u32) -> Result<()> {
        let block = [n.to_le_bytes()[0]; 4096];
        let index = (u64::from(n) * 7919) % FILE_BLOCKS;
        Ok(self
            .store
            .view(branch)?
            .write(self.file, index * BLOCK_BYTES, &block, false)?)
    }

    /// Adds checkpoints one on the other, or branches side by side, each with a change of its own.
    fn grow(&self, shape: &str, from: u32, to: u32) -> Result<()> {
        for n in from..to {
            if shape == "depth" {
                self.touch("main", n)?;
                self.store.checkpoint("main", None, false)?;
            } else {
                let name = format!("sibling-{n}");
                let start = self.store.resolve("start")?;
                self.store.branch_create(&name, &start)?;
                self.touch(&name, n)?;
            }
        }
        Ok(())
    }

    fn report(&self, shape: &str, at: u32) -> Result<()> {
        let (mut branch, mut checkpoint, mut rollback) = (Vec::new(), Vec::new(), Vec::new());
        for n in 0..SAMPLES {
            self.touch("main", n)?;
            let started = Instant::now();
            let made = self.store.checkpoint("main", None, false)?;
            checkpoint.push(started.elapsed());

            let name = format!("measured-{shape}-{at}-{n}");
            let started = Instant::now();
            let from = self.store.resolve("main")?;
            self.store.branch_create(&name, &from)?;
            branch.push(started.elapsed());
            self.store.branch_delete(&name)?;

            self.touch("main", n + 1)?;
            let started = Instant::now();
            let to = self.store.resolve(&made.id.to_string())?;
            self.store.rollback("main", &to, None)?;
            rollback.push(started.elapsed());
        }
        let read = self.random_reads()?;
        let line = serde_json::json!({
            "shape": shape, "at": at,
            "branch_us": median(branch), "checkpoint_us": median(checkpoint),
            "rollback_us": median(rollback), "read_4k_us": read,
        });
        println!("{line}");
        Ok(())
    }

    /// Reads blocks in an order that no read-ahead foresees; microseconds for one.
    fn random_reads(&self) -> Result<f64> {
        let view = self.store.view("main")?;
        let mut buffer = Vec::with_capacity(4096);
        let mut state = 88_172_645_463_325_252_u64;
        let mut pass = |count: u64| -> Result<f64> {
            let started = Instant::now();
            for _ in 0..count {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                buffer.clear();
                view.read(
                    self.file,
                    (state % FILE_BLOCKS) * BLOCK_BYTES,
                    4096,
                    &mut buffer,
                )?;
            }
            let micros = started.elapsed().as_secs_f64() * 1e6;
            Ok(micros / f64::from(u32::try_from(count)?))
        };
        pass(READS)?;
        Ok((pass(READS)? * 100.0).round() / 100.0)
    }
}

fn median(mut samples: Vec<std::time::Duration>) -> f64 {
    samples.sort();
    let middle = samples.get(samples.len() / 2).copied().unwrap_or_default();
    (middle.as_secs_f64() * 1e7).round() / 10.0
}
