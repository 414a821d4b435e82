//! `box list` and `box show`.

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::output::{Output, age, harmless, json_line, plural, size, table, write_out};
use crate::protocol::Request;
use crate::protocol::boxes::{BoxInfo, BoxLimits, BoxProcess, BoxRequest, BoxState};

pub(super) fn list(context: &Context) -> Result<Exit> {
    let mut rows = Vec::new();
    let request = Request::Boxes(BoxRequest::List {});
    let _end: serde_json::Value =
        context
            .client()?
            .call_each(&request, None, |info: BoxInfo| {
                if context.output == Output::Json {
                    return write_out(&json_line(&info)?);
                }
                let ports: Vec<String> = info
                    .ports
                    .iter()
                    .map(|port| format!("{}:{}", port.host.port(), port.inside))
                    .collect();
                rows.push(vec![
                    info.name.clone(),
                    state(info.state).to_owned(),
                    info.branch.clone(),
                    info.process_count.to_string(),
                    ports.join(" "),
                    age(info.created_us),
                ]);
                Ok(())
            })?;
    if context.output == Output::Human {
        let head = ["BOX", "STATE", "BRANCH", "PROCESSES", "PORTS", "MADE"];
        write_out(&table(&head, &rows))?;
    }
    Ok(Exit::Done)
}

pub(super) fn one(context: &Context, name: String) -> Result<Exit> {
    let request = Request::Boxes(BoxRequest::Show { name });
    let info: BoxInfo = context.client()?.call(&request)?;
    context.output.print(&info, describe)?;
    Ok(Exit::Done)
}

fn state(state: BoxState) -> &'static str {
    match state {
        BoxState::Running => "running",
        BoxState::Stopped => "stopped",
    }
}

fn describe(info: &BoxInfo) -> String {
    let mut text = format!("box:       {} ({})\n", info.name, state(info.state));
    text.push_str(&format!("branch:    {}\n", info.branch));
    text.push_str(&format!("made:      {}\n", age(info.created_us)));
    text.push_str(&format!("limits:    {}\n", limits(&info.limits)));
    for port in &info.ports {
        text.push_str(&format!(
            "port:      {} leads to {}\n",
            port.host, port.inside
        ));
    }
    for session in &info.sessions {
        let how = match (session.status, session.attached) {
            (Some(status), _) => format!("ended with {status}"),
            (None, true) => "running, somebody is attached".to_owned(),
            (None, false) => "running".to_owned(),
        };
        let command = harmless(&session.command);
        text.push_str(&format!("session:   {} {how}: {command}\n", session.id));
    }
    let processes = info.processes.as_deref().unwrap_or_default();
    text.push_str(&format!(
        "processes: {}\n",
        plural(info.process_count, "process", "processes")
    ));
    let mut shown = vec![false; processes.len()];
    for at in 0..processes.len() {
        // Those whose parent is init, or one that is gone.
        let parent = processes.get(at).map(|one| one.parent_pid);
        if !processes.iter().any(|one| Some(one.pid) == parent) {
            branch(processes, at, 1, &mut shown, &mut text);
        }
    }
    text
}

/// Adds a process and those below it. Each is shown once, whatever the parents are said to be.
fn branch(
    processes: &[BoxProcess],
    at: usize,
    depth: usize,
    shown: &mut [bool],
    text: &mut String,
) {
    let (Some(one), Some(done)) = (processes.get(at), shown.get_mut(at)) else {
        return;
    };
    if std::mem::replace(done, true) {
        return;
    }
    text.push_str(&format!(
        "{}{} {} {}, {}\n",
        "  ".repeat(depth),
        one.pid,
        harmless(&one.command),
        one.state,
        size(one.resident_bytes)
    ));
    for (below, child) in processes.iter().enumerate() {
        if child.parent_pid == one.pid {
            branch(processes, below, depth + 1, shown, text);
        }
    }
}

fn limits(limits: &BoxLimits) -> String {
    let mut parts = Vec::new();
    if let Some(bytes) = limits.memory_bytes {
        parts.push(format!("memory {}", size(bytes)));
    }
    if let Some(count) = limits.pids {
        parts.push(plural(count, "process", "processes"));
    }
    if let Some(millis) = limits.cpu_millis {
        parts.push(format!("{}.{:03} processors", millis / 1000, millis % 1000));
    }
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent_pid: i32) -> BoxProcess {
        BoxProcess {
            pid,
            parent_pid,
            host_pid: pid,
            uid: 0,
            state: 'S',
            resident_bytes: 0,
            threads: 1,
            command: "x\u{1b}".to_owned(),
        }
    }

    #[test]
    fn a_tree_is_drawn_whatever_it_looks_like() {
        let processes = [process(2, 1), process(3, 2), process(4, 9), process(5, 5)];
        let mut shown = vec![false; 4];
        let mut text = String::new();
        for at in 0..4 {
            branch(&processes, at, 1, &mut shown, &mut text);
        }
        assert_eq!(text.lines().count(), 4);
        assert!(text.contains("    3 x\\u{1b} S"), "{text}");
    }
}
