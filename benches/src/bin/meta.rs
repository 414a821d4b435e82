//! Rates of the small operations on files: `meta DIR [COUNT]` works in DIR, which must be empty, and prints
//! one JSON object with the microseconds that each operation took on average.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

const FILES_A_DIRECTORY: u32 = 500;

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let dir = PathBuf::from(args.next().context("usage: meta DIR [COUNT]")?);
    let count: u32 = match args.next() {
        Some(text) => text
            .to_str()
            .context("COUNT is not text")?
            .parse()
            .context("COUNT")?,
        None => 5000,
    };
    ensure!(count > 0, "COUNT must be positive");
    ensure!(
        fs::read_dir(&dir)?.next().is_none(),
        "{} is not empty",
        dir.display()
    );
    let results = measure(&dir, count)?;
    println!("{}", serde_json::to_string(&results)?);
    Ok(())
}

type Results = serde_json::Map<String, serde_json::Value>;

fn measure(root: &Path, count: u32) -> Result<Results> {
    let mut results = Results::new();
    let directories = count.div_ceil(FILES_A_DIRECTORY);
    let path = |n: u32| root.join(format!("d{}/f{n}", n / FILES_A_DIRECTORY));

    timed(&mut results, "mkdir_us", directories, |n| {
        Ok(fs::create_dir(root.join(format!("d{n}")))?)
    })?;
    timed(&mut results, "create_us", count, |n| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path(n))?;
        Ok(file.write_all(b"some content, so that there is something to read\n")?)
    })?;
    timed(&mut results, "stat_us", count, |n| {
        Ok(fs::metadata(path(n)).map(drop)?)
    })?;
    timed(&mut results, "stat_absent_us", count, |n| {
        ensure!(
            fs::metadata(path(n).with_extension("absent")).is_err(),
            "a file that is not there was found"
        );
        Ok(())
    })?;
    let mut buffer = [0_u8; 4096];
    timed(&mut results, "open_read_close_us", count, |n| {
        ensure!(File::open(path(n))?.read(&mut buffer)? > 0, "an empty file");
        Ok(())
    })?;
    timed(&mut results, "readdir_us", directories, |n| {
        for entry in fs::read_dir(root.join(format!("d{n}")))? {
            entry?;
        }
        Ok(())
    })?;
    timed(&mut results, "chmod_us", count, |n| {
        use std::os::unix::fs::PermissionsExt;
        Ok(fs::set_permissions(
            path(n),
            fs::Permissions::from_mode(0o600),
        )?)
    })?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(root.join("written"))?;
    timed(&mut results, "write_4k_us", count, |n| {
        use std::os::unix::fs::FileExt;
        Ok(file.write_all_at(&buffer, u64::from(n) * 4096)?)
    })?;
    timed(&mut results, "append_fsync_us", 50, |_| {
        let mut log = OpenOptions::new()
            .append(true)
            .create(true)
            .open(root.join("log"))?;
        log.write_all(b"a line\n")?;
        Ok(log.sync_all()?)
    })?;
    timed(&mut results, "rename_us", count, |n| {
        Ok(fs::rename(path(n), path(n).with_extension("renamed"))?)
    })?;
    timed(&mut results, "unlink_us", count, |n| {
        Ok(fs::remove_file(path(n).with_extension("renamed"))?)
    })?;
    timed(&mut results, "rmdir_us", directories, |n| {
        Ok(fs::remove_dir(root.join(format!("d{n}")))?)
    })?;
    Ok(results)
}

/// Does `operation` `count` times and notes down how long one took.
fn timed(
    results: &mut Results,
    name: &str,
    count: u32,
    mut operation: impl FnMut(u32) -> Result<()>,
) -> Result<()> {
    let started = Instant::now();
    for n in 0..count {
        operation(n).with_context(|| format!("{name}, number {n}"))?;
    }
    let each = started.elapsed().as_secs_f64() * 1e6 / f64::from(count);
    results.insert(
        name.to_owned(),
        serde_json::json!((each * 100.0).round() / 100.0),
    );
    Ok(())
}
