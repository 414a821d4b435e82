//! Versioned lookups: what is the newest version of a thing that a head can see?
//!
//! The cost does not depend on depth, and other branches' versions of the same thing cost at most
//! one jump each time the search lands on one: never a walk along the ancestry, never a step over
//! foreign versions.
//!
//! The table of layers is locked for each question alone, never while the engine reads or a visitor
//! runs: a visitor may look something up itself, and a new layer must not wait for a disk.

use parking_lot::RwLock;

use crate::error::Result;
use crate::id::LayerId;
use crate::kv::{Key, Kv, Step, Table};
use crate::layer::LayerTable;
use crate::layout::key::{self, LAYER_BYTES};

/// A version of a thing: the layer that wrote it, and the value (empty for a tombstone).
pub type Version = (LayerId, Vec<u8>);

/// What a [`scan`] calls with each thing, the layer that wrote its visible version, and the value;
/// it returns whether to go on.
pub type Visitor<'a> = dyn FnMut(&[u8], LayerId, &[u8]) -> Result<bool> + 'a;

/// Returns the newest version of `thing` that `head` can see, tombstones included.
///
/// # Errors
/// Those of the engine, and [`Error::BadEntry`](crate::Error::BadEntry) for a malformed key.
pub fn newest(
    kv: &dyn Kv,
    layers: &RwLock<LayerTable>,
    table: Table,
    thing: &[u8],
    head: LayerId,
) -> Result<Option<Version>> {
    let mut bound = head;
    loop {
        let from = key::versioned(thing, bound);
        let Some((found, value)) = kv.seek(table, &from, thing.len())? else {
            return Ok(None);
        };
        if found.len() != thing.len() + LAYER_BYTES {
            // Another thing that begins with the same bytes.
            return Ok(None);
        }
        let layer = key::layer_of(table, &found)?;
        let floor = layers.read().floor_ancestor(head, layer);
        match floor {
            Some(ancestor) if ancestor == layer => return Ok(Some((layer, value))),
            Some(ancestor) => bound = ancestor,
            None => return Ok(None),
        }
    }
}

/// Visits the newest visible version of each thing from `from` on, in key order, tombstones
/// included, until `visit` returns false or the things no longer start with `prefix`.
///
/// # Errors
/// As [`newest`], and whatever `visit` returns.
pub fn scan(
    kv: &dyn Kv,
    layers: &RwLock<LayerTable>,
    table: Table,
    from: &[u8],
    prefix: &[u8],
    head: LayerId,
    visit: &mut Visitor<'_>,
) -> Result<()> {
    // The thing whose visible version was just visited: its older versions are skipped, by stepping
    // over the first few, for most things have one version, and by a jump after that.
    let mut done: Option<Key> = None;
    let mut stepped = 0;
    kv.scan(table, from, &mut |found, value| {
        if !found.starts_with(prefix) || found.len() < LAYER_BYTES {
            return Ok(Step::Stop);
        }
        let (thing, _) = found.split_at(found.len() - LAYER_BYTES);
        if done.as_deref() == Some(thing) {
            stepped += 1;
            return Ok(match stepped {
                0..4 => Step::Next,
                _ => Step::Seek(past(thing)),
            });
        }
        let layer = key::layer_of(table, found)?;
        let floor = if layer > head {
            Some(head)
        } else {
            layers.read().floor_ancestor(head, layer)
        };
        match floor {
            Some(ancestor) if ancestor == layer => {
                let go_on = visit(thing, layer, value)?;
                done = Some(Key::from_slice(thing));
                stepped = 0;
                Ok(if go_on { Step::Next } else { Step::Stop })
            }
            Some(ancestor) => Ok(Step::Seek(key::versioned(thing, ancestor))),
            None => Ok(Step::Seek(past(thing))),
        }
    })
}

/// Returns a key behind all versions of `thing` and before the next thing. Layer 0 does not exist,
/// so its place behind the oldest version is free.
fn past(thing: &[u8]) -> Key {
    key::versioned(thing, LayerId(0))
}
