//! The record of boxes in the store's directory: what is known of them while no daemon runs.
//!
//! It is written beside its place and renamed, so there is always a whole one. A box is only a name for a branch and some
//! settings: if the record is lost, no data is.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use branchpoint_boxes::cgroup::Limits;
use branchpoint_boxes::session::Sessions;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{Boxed, State};
use crate::failure::{Failure, FailureKind, Result};
use crate::protocol::boxes::BoxPort;

/// The version of the file.
const VERSION: u32 = 1;

const FILE: &str = "boxes.json";

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    boxes: Vec<Known>,
}

/// What is known of a box.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) name: String,
    branch: String,
    created_us: u64,
    /// The box that it was forked of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) origin: Option<String>,
    limits: Limits,
    ports: Vec<BoxPort>,
}

impl From<&Boxed> for Known {
    fn from(one: &Boxed) -> Self {
        let state = one.state.lock();
        Self {
            name: one.name.clone(),
            branch: state.branch.clone(),
            created_us: one.created_us,
            origin: one.origin.clone(),
            limits: state.limits,
            ports: state.ports.clone(),
        }
    }
}

impl From<Known> for Arc<Boxed> {
    fn from(known: Known) -> Self {
        Arc::new(Boxed {
            name: known.name,
            created_us: known.created_us,
            origin: known.origin,
            work: Mutex::new(()),
            state: Mutex::new(State {
                branch: known.branch,
                limits: known.limits,
                ports: known.ports,
                running: None,
            }),
            sessions: Arc::new(Sessions::default()),
        })
    }
}

impl Known {
    /// Returns what is known of a box that begins now.
    pub(super) fn new(name: &str, branch: &str, limits: Limits) -> Self {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
            .as_micros();
        Self {
            name: name.to_owned(),
            branch: branch.to_owned(),
            created_us: u64::try_from(now).unwrap_or(u64::MAX),
            origin: None,
            limits,
            ports: Vec::new(),
        }
    }
}

/// Reads the record in `dir`; none is an empty one.
pub(super) fn read(dir: &Path) -> Result<Vec<Known>> {
    let path = dir.join(FILE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(reason) => return Err(Failure::io(format!("read '{}'", path.display()), &reason)),
    };
    let damaged = |reason: String| {
        Failure::new(
            FailureKind::Corrupt,
            format!("the record of boxes '{}' cannot be read", path.display()),
        )
        .cause(reason)
        .hint("remove it: boxes are then unknown, and their branches are all there")
    };
    let record: Record =
        serde_json::from_slice(&bytes).map_err(|reason| damaged(reason.to_string()))?;
    if record.version != VERSION {
        return Err(damaged(format!("it has version {}", record.version)));
    }
    Ok(record.boxes)
}

/// Writes the record in `dir`.
pub(super) fn write(dir: &Path, boxes: &[Known]) -> io::Result<()> {
    let record = Record {
        version: VERSION,
        boxes: boxes.to_vec(),
    };
    fs::create_dir_all(dir)?;
    let beside = dir.join("boxes.json.new");
    let mut file = File::create(&beside)?;
    file.write_all(&serde_json::to_vec(&record)?)?;
    file.sync_data()?;
    fs::rename(&beside, dir.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_a_damaged_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), []);
        let known = vec![Known::new("web", "main", Limits::default())];
        write(dir.path(), &known).unwrap();
        assert_eq!(read(dir.path()).unwrap(), known);
        for damage in ["", "{", "[]", r#"{"version":9,"boxes":[]}"#] {
            fs::write(dir.path().join(FILE), damage).unwrap();
            let failure = read(dir.path()).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Corrupt, "{damage}");
            assert!(failure.hint.is_some());
        }
    }
}
