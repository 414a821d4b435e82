//! Processes in the store: their image and their memory, in the annex of a checkpoint's layer.
//!
//! One object holds the encoded image, and one each the pages of an address space or of a piece of shared
//! memory, at the offset that is their address. The newest ones are kept in this process's memory as well:
//! going back to them reads nothing.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use branchpoint_boxes::session::Kept;
use branchpoint_forker::memory::space::ObjectId;
use branchpoint_forker::memory::store::{InMemory, MemoryStore};
use branchpoint_forker::snapshot::Snapshot;
use branchpoint_fs::branch::Instant;
use branchpoint_fs::id::{CheckpointId, Ino, LayerId};
use branchpoint_fs::store::Store;
use branchpoint_fs::view::View;
use parking_lot::Mutex;

use crate::failure::{Failure, FailureKind, Result};

/// The object with the encoded image.
const IMAGE: &[u8] = b"image";
/// The size of a page in bytes.
const PAGE: u64 = 4096;
/// Bytes written in one operation of the view: what others wait for is one of these.
const PIECE: usize = 1 << 20;
/// The largest image that is read; memory is not in it.
const IMAGE_BYTES_MAX: u64 = 1 << 30;
/// The part of the memory available now that kept copies may take.
const WARM_PART: u64 = 4;

/// Sessions that belong to a tree, beside its image.
const SESSIONS: &[u8] = b"sessions";

/// What is known of a tree but for its memory.
#[derive(Debug)]
pub(super) struct Image {
    /// Its processes.
    pub(super) snapshot: Arc<Snapshot>,
    /// The sessions that it ran.
    pub(super) sessions: Vec<Kept>,
}

/// Writes image and memory of a tree into the layer that was frozen with it.
///
/// # Errors
/// Those of the store; there is no checkpoint then.
pub(super) fn save(instant: &Instant, image: &Image, memory: &InMemory) -> Result<()> {
    let view = instant.view();
    view.annex_clear()?;
    let internal = |what: String| Failure::new(FailureKind::Internal, what);
    let snapshot = image
        .snapshot
        .encode()
        .map_err(|error| internal(error.to_string()))?;
    let sessions =
        serde_json::to_vec(&image.sessions).map_err(|error| internal(error.to_string()))?;
    for (name, bytes) in [(IMAGE, &snapshot), (SESSIONS, &sessions)] {
        let ino = view.annex_create(name)?;
        write(view, ino, 0, bytes)?;
    }
    let mut objects: HashMap<ObjectId, Ino> = HashMap::new();
    memory.each(&mut |object, first_page, bytes| -> Result<()> {
        let ino = match objects.get(&object) {
            Some(ino) => *ino,
            None => {
                let made = view.annex_create(&name_of(object))?;
                objects.insert(object, made);
                made
            }
        };
        write(view, ino, first_page * PAGE, bytes)
    })
}

fn write(view: &View, ino: Ino, start: u64, bytes: &[u8]) -> Result<()> {
    for (offset, piece) in (start..).step_by(PIECE).zip(bytes.chunks(PIECE)) {
        view.write(ino, offset, piece, false)?;
    }
    Ok(())
}

/// Reads the image of a checkpoint; its memory is read when it is asked for.
///
/// # Errors
/// The checkpoint has no processes, or what it has is damaged.
pub(super) fn load(
    store: &Arc<Store>,
    layer: LayerId,
) -> Result<(Arc<Image>, Arc<dyn MemoryStore>)> {
    let view = store.view_at(layer)?;
    let damaged = |what: String| {
        let message = format!("the process image in layer {layer} cannot be used: {what}");
        Failure::new(FailureKind::Corrupt, message)
    };
    let bytes = read(&view, IMAGE)?.ok_or_else(|| {
        let message = format!("layer {layer} holds no processes");
        Failure::new(FailureKind::NotFound, message)
    })?;
    let snapshot = Snapshot::decode(&bytes).map_err(|error| damaged(error.to_string()))?;
    let bytes = read(&view, SESSIONS)?.ok_or_else(|| damaged("no sessions".to_owned()))?;
    let sessions = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    let image = Image {
        snapshot: Arc::new(snapshot),
        sessions,
    };
    let memory = Annex {
        objects: Mutex::new(HashMap::new()),
        view,
    };
    Ok((Arc::new(image), Arc::new(memory)))
}

/// Reads a whole object.
fn read(view: &View, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(found) = view.annex_find(name)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < found.size.min(IMAGE_BYTES_MAX) {
        let before = bytes.len();
        let piece = u32::try_from(PIECE).unwrap_or(u32::MAX);
        view.read(found.ino, before as u64, piece, &mut bytes)?;
        if bytes.len() == before {
            break;
        }
    }
    Ok(Some(bytes))
}

fn name_of(object: ObjectId) -> Vec<u8> {
    format!("memory-{}", object.0).into_bytes()
}

/// Memory that is read from a frozen layer.
struct Annex {
    view: Arc<View>,
    objects: Mutex<HashMap<ObjectId, Option<Ino>>>,
}

impl Annex {
    fn object(&self, object: ObjectId) -> branchpoint_fs::Result<Option<Ino>> {
        if let Some(known) = self.objects.lock().get(&object) {
            return Ok(*known);
        }
        let found = self.view.annex_find(&name_of(object))?.map(|attr| attr.ino);
        self.objects.lock().insert(object, found);
        Ok(found)
    }
}

impl MemoryStore for Annex {
    fn put(&self, _: ObjectId, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn get(&self, object: ObjectId, first_page: u64, into: &mut [u8]) -> io::Result<()> {
        into.fill(0);
        let Some(ino) = self.object(object).map_err(io::Error::other)? else {
            return Ok(());
        };
        let mut piece = Vec::with_capacity(PIECE.min(into.len()));
        for (offset, part) in (first_page * PAGE..)
            .step_by(PIECE)
            .zip(into.chunks_mut(PIECE))
        {
            piece.clear();
            let size = u32::try_from(part.len()).map_err(io::Error::other)?;
            self.view
                .read(ino, offset, size, &mut piece)
                .map_err(io::Error::other)?;
            let read = piece.len().min(part.len());
            part[..read].copy_from_slice(&piece[..read]);
        }
        Ok(())
    }
}

/// A checkpoint's processes, in memory.
struct Known {
    id: CheckpointId,
    image: Arc<Image>,
    memory: Arc<InMemory>,
}

/// What the newest checkpoints hold, in memory.
#[derive(Default)]
pub(super) struct Warm {
    kept: Mutex<VecDeque<Known>>,
}

impl std::fmt::Debug for Warm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Warm").finish_non_exhaustive()
    }
}

impl Warm {
    /// Keeps what belongs to a checkpoint, and drops the oldest for it.
    pub(super) fn keep(&self, id: CheckpointId, image: Arc<Image>, memory: Arc<InMemory>) {
        let mut kept = self.kept.lock();
        kept.push_back(Known { id, image, memory });
        let bound = available_bytes() / WARM_PART;
        let mut bytes: u64 = kept.iter().map(|one| one.memory.bytes()).sum();
        while bytes > bound {
            let Some(oldest) = kept.pop_front() else {
                return;
            };
            bytes -= oldest.memory.bytes();
        }
    }

    /// Returns image and memory of a checkpoint, from here or from the store.
    ///
    /// # Errors
    /// As [`load`].
    pub(super) fn find(
        &self,
        store: &Arc<Store>,
        id: CheckpointId,
        layer: LayerId,
    ) -> Result<(Arc<Image>, Arc<dyn MemoryStore>)> {
        let kept = self.kept.lock();
        if let Some(known) = kept.iter().find(|known| known.id == id) {
            let memory: Arc<dyn MemoryStore> = Arc::clone(&known.memory) as _;
            return Ok((Arc::clone(&known.image), memory));
        }
        drop(kept);
        load(store, layer)
    }
}

/// Bytes that programs could still get.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| {
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    });
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use branchpoint_fs::store::StoreOptions;

    #[test]
    fn image_and_memory_come_back_from_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        Store::create(&path, &StoreOptions { base: None }).unwrap();
        let store = Store::open(&path).unwrap();
        let memory = InMemory::new();
        let stack = 0x0007_ffff_fffe;
        memory.put(ObjectId(2), stack, &[7; 4096]).unwrap();
        memory.put(ObjectId(2), 1024, &vec![8; 3 << 20]).unwrap();
        let instant = store.begin_instant("main").unwrap();
        let image = Image {
            snapshot: Arc::new(Snapshot::default()),
            sessions: Vec::new(),
        };
        save(&instant, &image, &memory).unwrap();
        let info = store.finish_instant(&instant, None, false).unwrap();
        drop(instant);

        let (image, found) = load(&store, info.layer).unwrap();
        assert_eq!(*image.snapshot, Snapshot::default());
        let mut into = vec![1; 2 * 4096];
        found.get(ObjectId(2), stack, &mut into).unwrap();
        assert_eq!((into[0], into[4096]), (7, 0));
        let mut into = vec![1; 4 << 20];
        found.get(ObjectId(2), 1024, &mut into).unwrap();
        assert!(into[..3 << 20].iter().all(|byte| *byte == 8));
        assert!(into[3 << 20..].iter().all(|byte| *byte == 0));
        found.get(ObjectId(3), 1024, &mut into).unwrap();
        assert!(into.iter().all(|byte| *byte == 0));

        let main = store.checkpoint("main", Some("files"), false).unwrap();
        assert!(!main.has_processes);
        let root = store.view_at(LayerId::ROOT).map(|_| ());
        assert!(root.is_ok());
        let none = load(&store, LayerId::ROOT).map(|_| ()).unwrap_err();
        assert_eq!(none.kind, FailureKind::NotFound);
    }
}
