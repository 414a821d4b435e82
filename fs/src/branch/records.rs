//! Reading the records of branches and checkpoints. They are small and read from the engine each
//! time: there is no second copy that could disagree.

use std::collections::HashSet;

use crate::branch::{BranchInfo, CheckpointInfo};
use crate::error::{Error, Result};
use crate::id::{CheckpointId, LayerId};
use crate::kv::{Step, Table};
use crate::layout::key;
use crate::layout::record::{BranchRecord, CheckpointRecord};
use crate::store::Store;

impl Store {
    pub(super) fn find_branch(&self, name: &str) -> Result<Option<BranchRecord>> {
        let value = self.kv().get(Table::Branches, name.as_bytes())?;
        value.as_deref().map(BranchRecord::decode).transpose()
    }

    pub(super) fn branch_record(&self, name: &str) -> Result<BranchRecord> {
        self.find_branch(name)?.ok_or_else(|| Error::NoSuchBranch {
            name: name.to_owned(),
        })
    }

    pub(super) fn require_free_name(&self, name: &str) -> Result<()> {
        match self.find_branch(name)? {
            None => Ok(()),
            Some(_) => Err(Error::BranchExists {
                name: name.to_owned(),
            }),
        }
    }

    pub(super) fn find_checkpoint(&self, id: CheckpointId) -> Result<Option<CheckpointRecord>> {
        let value = self.kv().get(Table::Checkpoints, &key::checkpoint(id))?;
        value.as_deref().map(CheckpointRecord::decode).transpose()
    }

    pub(super) fn checkpoint_record(&self, id: CheckpointId) -> Result<CheckpointRecord> {
        self.find_checkpoint(id)?
            .ok_or_else(|| Error::NoSuchRevision {
                name: id.to_string(),
            })
    }

    /// Returns all branches by name.
    pub(super) fn branch_records(&self) -> Result<Vec<(String, BranchRecord)>> {
        let mut records = Vec::new();
        self.kv().scan(Table::Branches, &[], &mut |name, value| {
            let name = std::str::from_utf8(name).map_err(|_| Error::BadEntry {
                table: Table::Branches.name(),
                what: "a name is not UTF-8".to_owned(),
            })?;
            records.push((name.to_owned(), BranchRecord::decode(value)?));
            Ok(Step::Next)
        })?;
        Ok(records)
    }

    /// Visits the checkpoints whose ids are at least `from`, by id, until `visit` returns false.
    pub(super) fn each_checkpoint(
        &self,
        from: CheckpointId,
        visit: &mut dyn FnMut(CheckpointId, CheckpointRecord) -> bool,
    ) -> Result<()> {
        self.kv().scan(
            Table::Checkpoints,
            &key::checkpoint(from),
            &mut |found, value| {
                let id = CheckpointId(key::parse_id(Table::Checkpoints, found)?);
                let go_on = visit(id, CheckpointRecord::decode(value)?);
                Ok(if go_on { Step::Next } else { Step::Stop })
            },
        )
    }

    /// Returns all checkpoints by id.
    pub(super) fn checkpoint_records(&self) -> Result<Vec<(CheckpointId, CheckpointRecord)>> {
        let mut records = Vec::new();
        self.each_checkpoint(CheckpointId(0), &mut |id, record| {
            records.push((id, record));
            true
        })?;
        Ok(records)
    }

    /// Visits `first` and the checkpoints before it, youngest first, until `visit` returns false.
    pub(super) fn each_behind(
        &self,
        first: Option<CheckpointId>,
        visit: &mut dyn FnMut(CheckpointId, CheckpointRecord) -> bool,
    ) -> Result<()> {
        let damaged = |what: &str, id: CheckpointId| Error::BadEntry {
            table: Table::Checkpoints.name(),
            what: format!("checkpoint {id} {what}"),
        };
        let mut seen = HashSet::new();
        let mut next = first;
        while let Some(id) = next {
            if !seen.insert(id) {
                return Err(damaged("comes before itself", id));
            }
            let record = self
                .find_checkpoint(id)?
                .ok_or_else(|| damaged("is missing from a line", id))?;
            next = record.parent;
            if !visit(id, record) {
                break;
            }
        }
        Ok(())
    }

    /// Returns all branches, by name.
    ///
    /// # Errors
    /// Those of the engine, and [`Error::BadEntry`] for a damaged record.
    pub fn branches(&self) -> Result<Vec<BranchInfo>> {
        let records = self.branch_records()?;
        Ok(records
            .into_iter()
            .map(|(name, record)| BranchInfo::new(name, &record))
            .collect())
    }

    /// Returns one branch.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], and those of the engine.
    pub fn branch(&self, name: &str) -> Result<BranchInfo> {
        Ok(BranchInfo::new(name, &self.branch_record(name)?))
    }

    /// Returns all checkpoints, oldest first.
    ///
    /// # Errors
    /// As [`Store::branches`].
    pub fn checkpoints(&self) -> Result<Vec<CheckpointInfo>> {
        let records = self.checkpoint_records()?;
        let mut infos: Vec<CheckpointInfo> = records
            .into_iter()
            .map(|(id, record)| CheckpointInfo::new(id, record))
            .collect();
        // By layer first: layers only grow, while clocks are set back.
        infos.sort_by_key(|info| (info.layer, info.created_us, info.id));
        Ok(infos)
    }

    /// Returns one checkpoint.
    ///
    /// # Errors
    /// [`Error::NoSuchRevision`], and those of the engine.
    pub fn checkpoint_info(&self, id: CheckpointId) -> Result<CheckpointInfo> {
        Ok(CheckpointInfo::new(id, self.checkpoint_record(id)?))
    }

    /// Returns the checkpoints behind a branch's head, youngest first: what `BRANCH~0`, `BRANCH~1`
    /// and so on stand for.
    ///
    /// # Errors
    /// [`Error::NoSuchBranch`], and as [`Store::branches`].
    pub fn line(&self, branch: &str) -> Result<Vec<CheckpointInfo>> {
        let record = self.branch_record(branch)?;
        let mut line = Vec::new();
        self.each_behind(record.checkpoint, &mut |id, record| {
            line.push(CheckpointInfo::new(id, record));
            true
        })?;
        Ok(line)
    }

    /// Returns the layers that a branch or a checkpoint names.
    pub(super) fn named_layers(
        branches: &[(String, BranchRecord)],
        checkpoints: &[(CheckpointId, CheckpointRecord)],
    ) -> HashSet<LayerId> {
        let heads = branches.iter().map(|(_, record)| record.head);
        heads
            .chain(checkpoints.iter().map(|(_, record)| record.layer))
            .collect()
    }
}
