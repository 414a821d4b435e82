//! Draws the tree of layers, the old ones on top.
//!
//! The longest line of descent from a node goes straight down below it, the other children branch
//! off to the right before. So a chain of ten thousand checkpoints stays in one column, and the
//! drawing is at most as wide as there are forks within forks.

use std::collections::HashMap;

use crate::output::{age, harmless, size};
use crate::protocol::path::printable;
use crate::protocol::reply::Node;

/// Digits of an id that are shown.
const SHORT_DIGITS: usize = 8;

/// Returns the beginning of an id; anything that is no id stays whole.
pub(super) fn short(id: &str) -> String {
    if id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        id.chars().take(SHORT_DIGITS).collect()
    } else {
        id.to_owned()
    }
}

/// Returns the drawing of `nodes`.
pub(super) fn draw(nodes: &[Node]) -> String {
    let forest = Forest::new(nodes);
    let mut text = String::new();
    // A stack rather than recursion: a tree may be deeper than a thread's stack.
    let mut todo: Vec<(usize, String, String)> = forest
        .roots
        .iter()
        .rev()
        .map(|root| (*root, String::new(), String::new()))
        .collect();
    while let Some((at, before, below)) = todo.pop() {
        let Some(node) = nodes.get(at) else { continue };
        text.push_str(&format!("{before}{}\n", describe(node)));
        let children = forest.children(at);
        if let Some((straight, others)) = children.split_last() {
            todo.push((*straight, below.clone(), below.clone()));
            for other in others.iter().rev() {
                todo.push((*other, format!("{below}├─"), format!("{below}│ ")));
            }
        }
    }
    text
}

fn describe(node: &Node) -> String {
    let mut words = Vec::new();
    let dot = if node.branches.is_empty() {
        "●"
    } else {
        "○"
    };
    words.push(dot.to_owned());
    for checkpoint in &node.checkpoints {
        words.push(short(&checkpoint.id));
        if let Some(label) = &checkpoint.label {
            words.push(format!("'{}'", harmless(label)));
        }
    }
    if node.checkpoints.is_empty() && node.branches.is_empty() {
        words.push(
            if node.parent_layer.is_none() {
                "start"
            } else {
                "fork"
            }
            .to_owned(),
        );
    }
    if !node.branches.is_empty() {
        words.push(node.branches.join(", "));
    }
    for mounted in &node.mounts {
        let dir = printable(&mounted.dir, mounted.dir_base64.as_deref());
        words.push(format!("at {dir}"));
    }
    let sizes = [
        (node.private_bytes, "private"),
        (node.shared_bytes, "shared"),
    ];
    let sizes: Vec<String> = sizes
        .iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, what)| format!("{} {what}", size(*bytes)))
        .collect();
    let mut line = words.join(" ");
    let mut notes = sizes;
    if let Some(checkpoint) = node.checkpoints.last() {
        notes.push(age(checkpoint.created_us));
    }
    if !notes.is_empty() {
        line.push_str(&format!("  ({})", notes.join(", ")));
    }
    line
}

/// Who descends from whom, by index.
struct Forest {
    roots: Vec<usize>,
    children: HashMap<usize, Vec<usize>>,
}

impl Forest {
    fn new(nodes: &[Node]) -> Self {
        let index: HashMap<u64, usize> = nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (node.layer, at))
            .collect();
        let mut roots = Vec::new();
        let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
        // A child's layer is younger than its parent's, so from the youngest to the oldest every
        // height is complete before it is needed.
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_unstable_by_key(|at| nodes.get(*at).map(|node| node.layer));
        let mut heights = vec![0u64; nodes.len()];
        for at in order.iter().rev() {
            let height = heights.get(*at).copied().unwrap_or(0) + 1;
            let parent = nodes
                .get(*at)
                .and_then(|node| node.parent_layer.filter(|parent| *parent < node.layer))
                .and_then(|parent| index.get(&parent));
            if let Some(slot) = parent.and_then(|parent| heights.get_mut(*parent)) {
                *slot = height.max(*slot);
            }
        }
        for at in order {
            let parent = nodes
                .get(at)
                .and_then(|node| node.parent_layer.filter(|parent| *parent < node.layer))
                .and_then(|parent| index.get(&parent));
            match parent {
                Some(parent) => children.entry(*parent).or_default().push(at),
                None => roots.push(at),
            }
        }
        for list in children.values_mut() {
            // The one with the longest line last; of equal ones the oldest, whose turn it was first.
            list.sort_by_key(|at| {
                (
                    heights.get(*at).copied(),
                    std::cmp::Reverse(nodes.get(*at).map(|n| n.layer)),
                )
            });
        }
        Self { roots, children }
    }

    fn children(&self, at: usize) -> &[usize] {
        self.children
            .get(&at)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::reply::Checkpoint;

    fn checkpoint(id: &str) -> Checkpoint {
        Checkpoint {
            id: id.to_owned(),
            label: None,
            branch: "main".to_owned(),
            parent: None,
            layer: 0,
            created_us: 0,
            unchanged: false,
            has_processes: false,
            report: None,
            took: None,
        }
    }

    fn node(layer: u64, parent: u64, id: Option<&str>, branches: &[&str]) -> Node {
        Node {
            layer,
            parent_layer: (parent > 0).then_some(parent),
            checkpoints: id.map(checkpoint).into_iter().collect(),
            branches: branches.iter().map(|name| (*name).to_owned()).collect(),
            mounts: Vec::new(),
            shared_bytes: 0,
            private_bytes: 0,
            created_us: 0,
        }
    }

    fn shape(nodes: &[Node]) -> String {
        draw(nodes)
            .lines()
            .map(|line| format!("{}\n", line.split("  (").next().unwrap()))
            .collect()
    }

    #[test]
    fn siblings_branch_off_and_the_longest_line_goes_on() {
        let nodes = [
            node(1, 0, None, &[]),
            node(2, 1, Some("aaaaaaaaaaaaaaaa"), &[]),
            node(3, 2, Some("bbbbbbbbbbbbbbbb"), &[]),
            node(4, 3, None, &["main"]),
            node(5, 2, Some("cccccccccccccccc"), &[]),
            node(6, 5, None, &["try-1"]),
            node(7, 2, None, &["try-2"]),
        ];
        assert_eq!(
            shape(&nodes),
            "● start\n● aaaaaaaa\n├─○ try-2\n├─● cccccccc\n│ ○ try-1\n● bbbbbbbb\n○ main\n"
        );
    }

    #[test]
    fn a_long_chain_stays_in_one_column() {
        let mut nodes: Vec<Node> = (1..=20_000)
            .map(|layer| node(layer, layer - 1, Some("00000000000000aa"), &[]))
            .collect();
        nodes.push(node(20_001, 20_000, None, &["main"]));
        let drawing = draw(&nodes);
        assert_eq!(drawing.lines().count(), 20_001);
        assert!(
            drawing
                .lines()
                .all(|line| line.starts_with('●') || line.starts_with('○'))
        );
    }

    #[test]
    fn a_parent_that_makes_no_sense_makes_a_root() {
        let nodes = [
            node(3, 3, None, &["a"]),
            node(4, 9, None, &["b"]),
            node(5, 2, None, &["c"]),
        ];
        assert_eq!(shape(&nodes), "○ a\n○ b\n○ c\n");
    }
}
