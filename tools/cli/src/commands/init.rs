//! `init`: works without a daemon, for there is no store yet.

use branchpoint_fs::store::{Store, StoreOptions};
use serde::Serialize;

use crate::cli::Init;
use crate::context::{Context, absolute};
use crate::exit::Exit;
use crate::failure::{Failure, Result};

#[derive(Serialize)]
struct Made {
    id: String,
    store: String,
    branch: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<String>,
}

pub(super) fn run(context: &Context, args: &Init) -> Result<Exit> {
    let dir = match &args.directory {
        Some(dir) => absolute(dir)?,
        None => {
            // The default store lies in directories that a fresh home may not have yet.
            if let Some(above) = context.store.parent() {
                std::fs::create_dir_all(above).map_err(|reason| {
                    Failure::io(format!("make '{}'", above.display()), &reason)
                })?;
            }
            context.store.clone()
        }
    };
    let base = args.base.as_deref().map(absolute).transpose()?;
    Store::create(&dir, &StoreOptions { base: base.clone() })?;
    let made = Made {
        id: dir.display().to_string(),
        store: dir.display().to_string(),
        branch: "main",
        base: base.map(|base| base.display().to_string()),
    };
    context.output.print(&made, |made| {
        let on = made
            .base
            .as_deref()
            .map(|base| format!(" on base '{base}'"))
            .unwrap_or_default();
        format!("made store '{}'{on} with branch main\n", made.store)
    })?;
    Ok(Exit::Done)
}
