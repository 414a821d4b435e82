//! `check`.

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{duration, harmless, plural};
use crate::protocol::Request;
use crate::protocol::reply::Checked;

use super::number_lines;

pub(super) fn run(context: &Context) -> Result<Exit> {
    let checked: Checked = context.client()?.call(&Request::Check {})?;
    context.output.print(&checked, describe)?;
    Ok(if checked.clean {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn describe(checked: &Checked) -> String {
    let mut text = String::new();
    for problem in &checked.problems {
        text.push_str(&format!("{}: {}\n", problem.what, problem.detail));
        if !problem.breaks.is_empty() {
            text.push_str(&format!("  breaks: {}\n", problem.breaks.join(", ")));
        }
    }
    for drift in &checked.drift {
        text.push_str(&format!(
            "the base changed: {}: {}\n",
            harmless(&drift.path),
            drift.what
        ));
    }
    let count = u64::try_from(checked.problems.len()).unwrap_or(u64::MAX);
    let count = count.saturating_add(checked.problems_left_off);
    let verdict = match count {
        0 => "everything is in order".to_owned(),
        _ => format!("{} found", plural(count, "problem", "problems")),
    };
    text.push_str(&format!(
        "{verdict}, checked in {}\n",
        duration(checked.elapsed_us)
    ));
    text.push_str(&number_lines(&checked.counts));
    text
}
