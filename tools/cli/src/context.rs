//! What a command works on, as far as it follows from flags, environment and working directory.

use std::env;
use std::path::{Path, PathBuf};

use crate::cli::Global;
use crate::client::Client;
use crate::failure::{Failure, FailureKind, Result};
use crate::mountinfo::{self, MountEntry};
use crate::output::Output;
use crate::protocol::Place;
use crate::protocol::path::{WirePath, printable_path};

/// What a command works on.
#[derive(Debug)]
pub(crate) struct Context {
    /// The store's directory, absolute.
    pub(crate) store: PathBuf,
    /// The mount of that store in which the command was called.
    pub(crate) view: Option<PathBuf>,
    /// How to print.
    pub(crate) output: Output,
}

impl Context {
    /// Finds out what `global` and the working directory say.
    pub(crate) fn new(global: &Global) -> Result<Self> {
        let output = Output::of(global);
        let here = view_here();
        let store_of_view = here.as_ref().and_then(MountEntry::store);
        let view = here.map(|entry| entry.dir);
        let named = global.store.as_deref().map(absolute).transpose()?;
        let store = match (&named, &store_of_view, &view) {
            (Some(named), ..) => named.clone(),
            (None, Some(store), _) => store.clone(),
            // Anything but the store of this mount would be a surprise.
            (None, None, Some(dir)) => {
                return Err(Failure::new(
                    FailureKind::NotFound,
                    format!(
                        "the store of the mount at '{}' is not where it was",
                        printable_path(dir)
                    ),
                )
                .hint("name the store with --store DIR or BRANCHPOINT_STORE"));
            }
            (None, None, None) => default_store()?,
        };
        // Inside of a mount of one store, a command for another store has no branch from there.
        let view = view.filter(|_| {
            store_of_view
                .as_deref()
                .is_some_and(|of_view| same_directory(of_view, &store))
        });
        Ok(Self {
            store,
            view,
            output,
        })
    }

    /// Connects to the store's daemon, starting it if necessary.
    pub(crate) fn client(&self) -> Result<Client> {
        Client::connect(&self.store)
    }

    /// Connects to the store's daemon if there is one.
    pub(crate) fn client_if_running(&self) -> Result<Option<Client>> {
        Client::connect_if_running(&self.store)
    }

    /// Goes where this command keeps no mount busy itself. For those that need no relative path any
    /// more.
    pub(crate) fn leave_mount(&self) -> Result<()> {
        env::set_current_dir("/").map_err(|reason| Failure::io("go to '/'", &reason))
    }

    /// Returns the branch or state meant by `named`, or by where the command was called.
    pub(crate) fn place(&self, named: Option<String>) -> Place {
        Place {
            named,
            view: self.view.as_deref().map(WirePath::from),
        }
    }
}

/// Makes `path` absolute without looking at the disk.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|reason| {
        if path.as_os_str().is_empty() {
            Failure::new(FailureKind::Usage, "a path is empty")
        } else {
            Failure::io("find the working directory", &reason)
        }
    })
}

/// Returns the mount of ours in which the working directory lies.
fn view_here() -> Option<MountEntry> {
    // The link is read rather than asked for by path, so that a mount whose daemon died answers.
    let here = std::fs::read_link("/proc/self/cwd").ok()?;
    let entries = mountinfo::read().ok()?;
    mountinfo::covering(&entries, &here)
        .filter(|entry| entry.is_ours())
        .cloned()
}

fn default_store() -> Result<PathBuf> {
    let absolute_dir = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let data = absolute_dir("XDG_DATA_HOME")
        .or_else(|| absolute_dir("HOME").map(|home| home.join(".local/share")))
        .ok_or_else(|| {
            Failure::new(
                FailureKind::Usage,
                "there is no default store without a home directory",
            )
            .hint("name the store with --store DIR or BRANCHPOINT_STORE")
        })?;
    Ok(data.join("branchpoint"))
}

fn same_directory(a: &Path, b: &Path) -> bool {
    a == b
        || match (a.canonicalize(), b.canonicalize()) {
            (Ok(a), Ok(b)) => a == b,
            _ => false,
        }
}
