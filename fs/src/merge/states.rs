//! What becomes of content and attributes of what both sides have.

use std::collections::BTreeSet;

use crate::attr::FileKind;
use crate::entity::{LayerDelta, Tree};
use crate::error::Result;
use crate::id::Ino;
use crate::layout::record::InodeRecord;
use crate::merge::Plan;
use crate::merge::names::Moved;

/// What an entity of ours takes over from theirs.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) content: bool,
    pub(super) perm: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Taken {
    fn is_empty(&self) -> bool {
        !self.content
            && self.perm.is_none()
            && self.uid.is_none()
            && self.gid.is_none()
            && self.xattrs.is_empty()
    }
}

/// Decides about one value. `Err` is a conflict.
fn three_way<T: PartialEq + Clone>(old: &T, ours: &T, theirs: &T) -> Result<Option<T>, ()> {
    if theirs == old || theirs == ours {
        Ok(None)
    } else if ours == old {
        Ok(Some(theirs.clone()))
    } else {
        Err(())
    }
}

impl Plan<'_> {
    /// Decides about everything that either side changed.
    pub(super) fn merge_states(&mut self, moved: &Moved) -> Result<()> {
        let mut entities: BTreeSet<Ino> = BTreeSet::new();
        entities.extend(
            self.our_delta
                .inodes
                .iter()
                .map(|ino| self.ours.entity(*ino)),
        );
        entities.extend(
            self.their_delta
                .inodes
                .iter()
                .map(|ino| self.theirs.entity(*ino)),
        );
        entities.extend(self.ours.aliased());
        entities.extend(self.theirs.aliased());
        for entity in entities {
            let old = self.old.record(entity)?;
            let (ours, theirs) = (self.ours.record(entity)?, self.theirs.record(entity)?);
            let what = match (old, ours, theirs) {
                (Some(old), Some(ours), Some(theirs)) => {
                    self.merge_state(entity, &old, &ours, &theirs)?
                }
                (Some(old), Some(ours), None) => {
                    let changed = differ(self.old, &old, self.ours.tree, &ours, &self.our_delta)?;
                    if moved.our_got.contains_key(&entity) {
                        Some("renamed here, removed there")
                    } else {
                        changed.then_some("modified here, removed there")
                    }
                }
                (Some(old), None, Some(theirs)) => {
                    let delta = &self.their_delta;
                    let changed = differ(self.old, &old, self.theirs.tree, &theirs, delta)?;
                    if moved.their_got.contains_key(&entity) {
                        Some("removed here, renamed there")
                    } else {
                        changed.then_some("removed here, modified there")
                    }
                }
                (None, Some(ours), Some(theirs)) if ours.attr.kind != FileKind::Directory => {
                    let (a, b) = (self.ours.tree, self.theirs.tree);
                    differ(a, &ours, b, &theirs, &LayerDelta::default())?
                        .then_some("added on both sides with different content or attributes")
                }
                _ => None,
            };
            if let Some(what) = what {
                let path = self.entity_path(entity)?;
                self.conflict(&path, what);
            }
        }
        Ok(())
    }

    /// Returns the conflict, if there is one.
    fn merge_state(
        &mut self,
        entity: Ino,
        old: &InodeRecord,
        ours: &InodeRecord,
        theirs: &InodeRecord,
    ) -> Result<Option<&'static str>> {
        let mut taken = Taken::default();
        let (our_tree, their_tree) = (self.ours.tree, self.theirs.tree);
        let blocks = self.their_delta.changed_blocks(old, theirs);
        if !self
            .old
            .same_content(old, their_tree, theirs, blocks.as_ref())?
        {
            let blocks = self.our_delta.changed_blocks(old, ours);
            if self
                .old
                .same_content(old, our_tree, ours, blocks.as_ref())?
            {
                taken.content = true;
            } else if !our_tree.same_content(ours, their_tree, theirs, None)? {
                return Ok(Some("modified on both sides"));
            } else {
                self.already_there += 1;
            }
        }
        let (a, b, c) = (&old.attr, &ours.attr, &theirs.attr);
        let (Ok(perm), Ok(uid), Ok(gid)) = (
            three_way(&a.perm, &b.perm, &c.perm),
            three_way(&a.uid, &b.uid, &c.uid),
            three_way(&a.gid, &b.gid, &c.gid),
        ) else {
            return Ok(Some("mode or owner changed on both sides"));
        };
        (taken.perm, taken.uid, taken.gid) = (perm, uid, gid);
        let old_xattrs = self.old.xattrs(old.attr.ino)?;
        let our_xattrs = our_tree.xattrs(ours.attr.ino)?;
        let their_xattrs = their_tree.xattrs(theirs.attr.ino)?;
        for name in old_xattrs
            .keys()
            .chain(their_xattrs.keys())
            .collect::<BTreeSet<_>>()
        {
            let (old, ours) = (old_xattrs.get(name), our_xattrs.get(name));
            match three_way(&old, &ours, &their_xattrs.get(name)) {
                Ok(None) => {}
                Ok(Some(value)) => taken.xattrs.push((name.clone(), value.cloned())),
                Err(()) => return Ok(Some("an extended attribute changed on both sides")),
            }
        }
        if !taken.is_empty() {
            self.states.insert(entity, taken);
        }
        Ok(None)
    }
}

/// Returns whether an entity differs in anything but its names and times.
fn differ(
    old_tree: &Tree,
    old: &InodeRecord,
    new_tree: &Tree,
    new: &InodeRecord,
    delta: &LayerDelta,
) -> Result<bool> {
    let plain = |record: &InodeRecord| (record.attr.perm, record.attr.uid, record.attr.gid);
    let blocks = delta.changed_blocks(old, new);
    Ok(plain(old) != plain(new)
        || !old_tree.same_content(old, new_tree, new, blocks.as_ref())?
        || old_tree.xattrs(old.attr.ino)? != new_tree.xattrs(new.attr.ino)?)
}
