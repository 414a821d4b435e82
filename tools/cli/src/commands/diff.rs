//! `diff`, in the forms of names, counts and patches.

use crate::cli::Diff;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{Output, json_line, plural, size, write_out};
use crate::protocol::Request;
use crate::protocol::path::printable;
use crate::protocol::reply::{Change, DiffEnd};

/// The widest bar of `--stat`.
const BAR_MAX: u64 = 40;

pub(super) fn run(context: &Context, args: Diff) -> Result<Exit> {
    let request = Request::Diff {
        a: args.a,
        b: context.place(args.b),
        patch: args.patch,
        stat: args.stat,
    };
    let (mut files, mut insertions, mut deletions) = (0, 0, 0);
    let mut client = context.client()?;
    let _end: DiffEnd = client.call_each(&request, None, |change: Change| {
        files += 1;
        insertions += change.insertions.unwrap_or(0);
        deletions += change.deletions.unwrap_or(0);
        write_out(&match context.output {
            Output::Json => json_line(&change)?,
            Output::Human if args.patch => change.patch.unwrap_or_default(),
            Output::Human if args.stat => stat(&change),
            Output::Human => name(&change),
        })
    })?;
    if args.stat && context.output == Output::Human {
        write_out(&format!(
            "{} changed, {}, {}\n",
            plural(files, "path", "paths"),
            plural(insertions, "insertion", "insertions"),
            plural(deletions, "deletion", "deletions")
        ))?;
    }
    Ok(Exit::Done)
}

fn letter(kind: &str) -> char {
    match kind {
        "added" => 'A',
        "removed" => 'D',
        "modified" => 'M',
        "metadata" => 'm',
        "renamed" => 'R',
        "type_changed" => 'T',
        _ => '?',
    }
}

fn path(change: &Change) -> String {
    printable(&change.path, change.path_base64.as_deref())
}

fn old_path(change: &Change) -> Option<String> {
    let from = change.renamed_from.as_deref()?;
    Some(printable(from, change.renamed_from_base64.as_deref()))
}

fn name(change: &Change) -> String {
    match old_path(change) {
        Some(from) => format!("{} {from} -> {}\n", letter(&change.kind), path(change)),
        None => format!("{} {}\n", letter(&change.kind), path(change)),
    }
}

fn stat(change: &Change) -> String {
    let counts = match (change.insertions, change.deletions) {
        (Some(plus), Some(minus)) => {
            let scale = (plus + minus).div_ceil(BAR_MAX).max(1);
            let bar = |count: u64, letter: &str| {
                letter.repeat(usize::try_from(count.div_ceil(scale)).unwrap_or(0))
            };
            format!("{:>6} {}{}", plus + minus, bar(plus, "+"), bar(minus, "-"))
        }
        _ if change.binary => {
            let bytes = |bytes: Option<u64>| size(bytes.unwrap_or(0));
            format!(
                "   bin {} -> {}",
                bytes(change.old_bytes),
                bytes(change.new_bytes)
            )
        }
        _ => String::new(),
    };
    let line = format!("{} {:<50} |{counts}", letter(&change.kind), path(change));
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change() -> Change {
        serde_json::from_value(serde_json::json!({
            "kind": "modified", "path": "a\nb", "old_mode": "100644", "new_mode": "100755",
            "insertions": 1, "deletions": 100,
        }))
        .unwrap()
    }

    #[test]
    fn a_name_is_one_line() {
        assert_eq!(name(&change()), "M a\\nb\n");
        let renamed = Change {
            kind: "renamed".to_owned(),
            renamed_from: Some("old".to_owned()),
            ..change()
        };
        assert_eq!(name(&renamed), "R old -> a\\nb\n");
    }

    #[test]
    fn a_bar_has_a_largest_width() {
        let line = stat(&change());
        assert!(line.matches(['+', '-']).count() <= 42, "{line}");
        assert!(line.contains("   101 +-"), "{line}");
    }
}
