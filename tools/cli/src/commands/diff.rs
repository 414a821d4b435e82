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
            Output::Human if args.patch => patch(&change),
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

/// Returns a patch that `patch -p1` and `git apply` understand.
fn patch(change: &Change) -> String {
    let new = path(change);
    let old = old_path(change).unwrap_or_else(|| new.clone());
    let mut text = format!("diff --git a/{old} b/{new}\n");
    match (&change.old_mode, &change.new_mode) {
        (None, Some(mode)) => text.push_str(&format!("new file mode {mode}\n")),
        (Some(mode), None) => text.push_str(&format!("deleted file mode {mode}\n")),
        (Some(before), Some(after)) if before != after => {
            text.push_str(&format!("old mode {before}\nnew mode {after}\n"));
        }
        _ => {}
    }
    if old != new {
        text.push_str(&format!("rename from {old}\nrename to {new}\n"));
    }
    let side = |exists: bool, letter: char, path: &str| {
        if exists {
            format!("{letter}/{path}")
        } else {
            "/dev/null".to_owned()
        }
    };
    let from = side(change.old_mode.is_some(), 'a', &old);
    let to = side(change.new_mode.is_some(), 'b', &new);
    if change.binary {
        text.push_str(&format!("Binary files {from} and {to} differ\n"));
    } else if let Some(hunks) = change.patch.as_deref().filter(|hunks| !hunks.is_empty()) {
        text.push_str(&format!("--- {from}\n+++ {to}\n{hunks}"));
        if !hunks.ends_with('\n') {
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change() -> Change {
        serde_json::from_value(serde_json::json!({
            "kind": "modified", "path": "a\nb", "old_mode": "100644", "new_mode": "100755",
            "insertions": 1, "deletions": 100, "patch": "@@ -1 +1 @@\n-a\n+b\n",
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

    #[test]
    fn a_patch_has_the_headers_that_tools_need() {
        let text = patch(&Change {
            path: "f".to_owned(),
            ..change()
        });
        assert_eq!(
            text,
            "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n--- a/f\n+++ b/f\n\
             @@ -1 +1 @@\n-a\n+b\n"
        );
        let added = Change {
            path: "f".to_owned(),
            old_mode: None,
            ..change()
        };
        assert!(patch(&added).contains("--- /dev/null\n+++ b/f\n"));
    }
}
