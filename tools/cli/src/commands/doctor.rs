//! `doctor`.

use serde::Serialize;

use crate::doctor::{self, Finding, State};
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::Output;

#[derive(Serialize)]
struct Report {
    can_mount: bool,
    findings: Vec<Finding>,
}

pub(super) fn run(output: Output) -> Result<Exit> {
    let findings = doctor::examine();
    let can_mount = findings
        .iter()
        .all(|finding| !finding.essential || finding.state != State::Missing);
    output.print(
        &Report {
            can_mount,
            findings,
        },
        describe,
    )?;
    Ok(if can_mount { Exit::Done } else { Exit::Failed })
}

fn describe(report: &Report) -> String {
    let width = report
        .findings
        .iter()
        .map(|finding| finding.id.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for finding in &report.findings {
        let state = match finding.state {
            State::Present => "yes   ",
            State::Likely => "likely",
            State::Missing => "no    ",
        };
        text.push_str(&format!(
            "{state}  {:width$}  {}\n",
            finding.id, finding.detail
        ));
        if finding.state == State::Missing {
            let indent = " ".repeat(width + 10);
            text.push_str(&format!("{indent}for {}\n", finding.used_for));
            text.push_str(&format!("{indent}without: {}\n", finding.without));
        }
    }
    let verdict = if report.can_mount {
        "mounting works here"
    } else {
        "mounting is impossible here"
    };
    text.push_str(&format!("{verdict}\n"));
    text
}
