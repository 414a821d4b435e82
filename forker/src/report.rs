//! What a checkpoint kept exactly, what it degraded and how, and what it refused.

use serde::{Deserialize, Serialize};

/// What became of one piece of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Kept as it was.
    Exact,
    /// Kept, but not as it was.
    Degraded,
    /// Cannot be kept: there is no checkpoint.
    Refused,
}

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What became of it.
    pub verdict: Verdict,
    /// Process inside the box.
    pub pid: i32,
    /// What it is about, for example `descriptor 7: io_uring`.
    pub what: String,
    /// Why.
    pub reason: String,
    /// What the user can do.
    pub way_out: Option<String>,
}

/// A report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Its lines, in the order in which they were found.
    pub lines: Vec<Line>,
}

impl Report {
    /// Adds a line.
    pub fn add(&mut self, line: Line) {
        self.lines.push(line);
    }

    /// Adds all lines of another report.
    pub fn append(&mut self, other: Self) {
        self.lines.extend(other.lines);
    }

    /// Adds that something is refused.
    pub fn refuse(&mut self, pid: i32, what: impl Into<String>, reason: &str, way_out: &str) {
        self.add(Line {
            verdict: Verdict::Refused,
            pid,
            what: what.into(),
            reason: reason.to_owned(),
            way_out: Some(way_out.to_owned()),
        });
    }

    /// Adds that something is degraded.
    pub fn degrade(&mut self, pid: i32, what: impl Into<String>, reason: &str) {
        self.add(Line {
            verdict: Verdict::Degraded,
            pid,
            what: what.into(),
            reason: reason.to_owned(),
            way_out: None,
        });
    }

    /// The first refused line, if there is any.
    pub fn refusal(&self) -> Option<&Line> {
        self.lines
            .iter()
            .find(|line| line.verdict == Verdict::Refused)
    }
}
