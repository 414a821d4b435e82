//! `mount`, `unmount` and `switch`.

use std::path::Path;

use crate::cli::{Mount, Switch, Unmount};
use crate::context::{Context, absolute};
use crate::exit::Exit;
use crate::failure::{Failure, FailureKind, Result};
use crate::mountinfo;
use crate::output::duration;
use crate::protocol::path::{WirePath, printable, printable_path};
use crate::protocol::reply::{Mounted, Unmounted};
use crate::protocol::{Request, Target};

pub(super) fn mount(context: &Context, args: Mount) -> Result<Exit> {
    let request = Request::Mount {
        revision: args.revision,
        dir: WirePath(absolute(&args.dir)?),
        read_only: args.read_only,
        namespace: mountinfo::namespace().map(WirePath),
        over: args.over,
        options: args.fuse.into_iter().collect(),
    };
    let mounted: Mounted = context.client()?.call(&request)?;
    context.output.print(&mounted, |mounted| {
        format!("mounted {}{}\n", describe(mounted), took(mounted))
    })?;
    Ok(Exit::Done)
}

pub(super) fn unmount(context: &Context, args: &Unmount) -> Result<Exit> {
    let path = args.target.as_deref().map(absolute).transpose()?;
    let before = path.as_deref().is_some_and(|path| is_mount(context, path));
    let target = match (&args.target, &path) {
        _ if args.all => Target::All,
        // A word without a slash is a branch, unless something is mounted at that name here.
        (Some(target), Some(path)) => match target.to_str() {
            Some(name) if !before && !name.contains('/') => Target::Branch(name.to_owned()),
            _ => Target::Dir(WirePath(path.clone())),
        },
        _ => Target::Only,
    };
    let request = Request::Unmount {
        target,
        force: args.force,
    };
    context.leave_mount()?;
    let unmounted = match context.client()?.call::<Unmounted>(&request) {
        // The daemon had died, and the one that has just started cleared its mount away.
        Err(failure)
            if failure.kind == FailureKind::NotFound
                && before
                && !path.as_deref().is_some_and(|path| is_mount(context, path)) =>
        {
            Unmounted { mounts: Vec::new() }
        }
        Err(failure) if failure.kind == FailureKind::NotFound => {
            let Some(path) = path.filter(|path| path.is_dir()) else {
                return Err(failure);
            };
            let path = printable_path(&path);
            let message = format!("nothing of this store is mounted at '{path}'");
            return Err(Failure::new(FailureKind::NotFound, message)
                .hint("`branchpoint stats` shows what is mounted where"));
        }
        result => result?,
    };
    print_unmounted(context, &unmounted)
}

fn print_unmounted(context: &Context, unmounted: &Unmounted) -> Result<Exit> {
    context.output.print(unmounted, |unmounted| {
        if unmounted.mounts.is_empty() {
            return "nothing is mounted\n".to_owned();
        }
        unmounted
            .mounts
            .iter()
            .map(|mount| format!("unmounted {}\n", describe(mount)))
            .collect()
    })?;
    Ok(Exit::Done)
}

/// Says whether the store is mounted at `path`.
fn is_mount(context: &Context, path: &Path) -> bool {
    let store = context
        .store
        .canonicalize()
        .unwrap_or_else(|_| context.store.clone());
    mountinfo::read().is_ok_and(|all| {
        all.iter()
            .any(|entry| entry.dir == path && entry.is_of(&store))
    })
}

pub(super) fn switch(context: &Context, args: Switch) -> Result<Exit> {
    let target = match (&args.at, &context.view) {
        (Some(dir), _) => Target::Dir(WirePath(absolute(dir)?)),
        (None, Some(view)) => Target::Dir(WirePath::from(view.as_path())),
        (None, None) => Target::Only,
    };
    let request = Request::Switch {
        branch: args.branch,
        target,
    };
    let mounted: Mounted = context
        .client()?
        .call(&request)
        .map_err(|failure: Failure| {
            if failure.kind == FailureKind::Usage {
                failure.hint("name the mount with --at DIR; `branchpoint stats` shows them")
            } else {
                failure
            }
        })?;
    context.output.print(&mounted, |mounted| {
        let dir = printable(&mounted.dir, mounted.dir_base64.as_deref());
        let branch = mounted.branch.as_deref().unwrap_or_default();
        format!("'{dir}' now shows branch {branch}{}\n", took(mounted))
    })?;
    Ok(Exit::Done)
}

/// Returns what is mounted where.
pub(super) fn describe(mount: &Mounted) -> String {
    let shown = mount.shown_dir();
    let dir = printable(&shown.text, shown.base64.as_deref());
    match (&mount.branch, &mount.checkpoint) {
        (Some(branch), _) => format!("branch {branch} at '{dir}'"),
        (None, Some(id)) => format!("checkpoint {} read-only at '{dir}'", super::tree::short(id)),
        (None, None) => format!("'{dir}'"),
    }
}

fn took(mounted: &Mounted) -> String {
    mounted
        .elapsed_us
        .map(|us| format!(" in {}", duration(us)))
        .unwrap_or_default()
}
