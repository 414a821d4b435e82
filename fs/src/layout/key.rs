//! Keys of all tables.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::error::{Error, Result};
use crate::id::{BlockIndex, CheckpointId, Ino, LayerId};
use crate::kv::{Key, Table};

/// Bytes of an inverted layer id at the end of every versioned key.
pub const LAYER_BYTES: usize = 8;

/// Key in `meta` of the layer that is being folded (`u64`) and of the one that it is folded into.
pub const FOLDING: &[u8] = b"folding";

/// The key with which names are hashed. Secret to a store, so that nobody can make names collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey(pub u64, pub u64);

/// Position of a name in its directory: a keyed hash, which is also the directory cookie, so that
/// reading a directory can go on where it stopped without any state. From [`NameHash::FIRST`] up,
/// below 2⁶³ (programs read cookies as signed numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash(pub u64);

impl NameHash {
    /// The smallest hash; cookies below it stand for the start, `.` and `..`.
    pub const FIRST: NameHash = NameHash(16);

    /// Returns the hash of `name` under `key`.
    pub fn of(key: HashKey, name: &[u8]) -> Self {
        let mut hasher = SipHasher13::new_with_keys(key.0, key.1);
        hasher.write(name);
        NameHash((hasher.finish() >> 1).max(Self::FIRST.0))
    }
}

fn inverted(layer: LayerId) -> [u8; LAYER_BYTES] {
    (!layer.0).to_be_bytes()
}

fn concat(parts: &[&[u8]]) -> Key {
    let mut key = Key::new();
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

/// Returns the layer at the end of a versioned key.
///
/// # Errors
/// [`Error::BadEntry`] if the key is too short to have one.
pub fn layer_of(table: Table, key: &[u8]) -> Result<LayerId> {
    match key.last_chunk::<LAYER_BYTES>() {
        Some(last) => Ok(LayerId(!u64::from_be_bytes(*last))),
        None => Err(bad(table, "key too short")),
    }
}

/// Returns `thing` (a versioned key without its layer) as it is or would be in `layer`.
pub fn versioned(thing: &[u8], layer: LayerId) -> Key {
    concat(&[thing, &inverted(layer)])
}

fn bad(table: Table, what: &str) -> Error {
    Error::BadEntry {
        table: table.name(),
        what: what.to_owned(),
    }
}

fn number(table: Table, key: &[u8], at: usize) -> Result<u64> {
    key.get(at..)
        .and_then(|rest| rest.first_chunk::<8>())
        .map(|bytes| u64::from_be_bytes(*bytes))
        .ok_or_else(|| bad(table, "key too short"))
}

/// `ino`, the thing of table `inodes`.
pub fn inode(ino: Ino) -> Key {
    concat(&[&ino.0.to_be_bytes()])
}

/// `parent ‖ hash ‖ name ‖ 0`, the thing of table `dentries`.
pub fn dentry(parent: Ino, hash: NameHash, name: &[u8]) -> Key {
    concat(&[&parent.0.to_be_bytes(), &hash.0.to_be_bytes(), name, &[0]])
}

/// Start of all entries of directory `parent` from `hash` on.
pub fn dentries_from(parent: Ino, hash: NameHash) -> Key {
    concat(&[&parent.0.to_be_bytes(), &hash.0.to_be_bytes()])
}

/// Returns parent, hash and name of a thing of table `dentries`.
///
/// # Errors
/// [`Error::BadEntry`] if it is malformed.
pub fn parse_dentry(thing: &[u8]) -> Result<(Ino, NameHash, &[u8])> {
    let parent = number(Table::Dentries, thing, 0)?;
    let hash = number(Table::Dentries, thing, 8)?;
    match thing.get(16..).and_then(|rest| rest.split_last()) {
        Some((0, name)) => Ok((Ino(parent), NameHash(hash), name)),
        _ => Err(bad(Table::Dentries, "name without end")),
    }
}

/// `ino ‖ parent ‖ name ‖ 0`, the thing of table `links`.
pub fn link(ino: Ino, parent: Ino, name: &[u8]) -> Key {
    concat(&[&ino.0.to_be_bytes(), &parent.0.to_be_bytes(), name, &[0]])
}

/// Returns inode, parent and name of a thing of table `links`.
///
/// # Errors
/// [`Error::BadEntry`] if it is malformed.
pub fn parse_link(thing: &[u8]) -> Result<(Ino, Ino, &[u8])> {
    let ino = number(Table::Links, thing, 0)?;
    let parent = number(Table::Links, thing, 8)?;
    match thing.get(16..).and_then(|rest| rest.split_last()) {
        Some((0, name)) => Ok((Ino(ino), Ino(parent), name)),
        _ => Err(bad(Table::Links, "name without end")),
    }
}

/// `ino ‖ hash ‖ name ‖ 0`, the thing of table `xattrs`.
pub fn xattr(ino: Ino, hash: NameHash, name: &[u8]) -> Key {
    dentry(ino, hash, name)
}

/// Start of all extended attributes of `ino`.
pub fn xattrs_from(ino: Ino) -> Key {
    inode(ino)
}

/// Returns inode and name of a thing of table `xattrs`.
///
/// # Errors
/// [`Error::BadEntry`] if it is malformed.
pub fn parse_xattr(thing: &[u8]) -> Result<(Ino, &[u8])> {
    let (ino, _, name) = parse_dentry(thing).map_err(|_| bad(Table::Xattrs, "malformed key"))?;
    Ok((ino, name))
}

/// `object ‖ block`, the thing of table `map`.
pub fn block(object: Ino, block: BlockIndex) -> Key {
    concat(&[&object.0.to_be_bytes(), &block.0.to_be_bytes()])
}

/// Returns object and block of a thing (or of a whole key) of table `map`.
///
/// # Errors
/// [`Error::BadEntry`] if it is malformed.
pub fn parse_block(thing: &[u8]) -> Result<(Ino, BlockIndex)> {
    Ok((
        Ino(number(Table::Map, thing, 0)?),
        BlockIndex(number(Table::Map, thing, 8)?),
    ))
}

/// `layer ‖ object ‖ first block ‖ sequence`, the key of a run in table `data`. The sequence number
/// makes it unique: a run that was overwritten in part must not be replaced by its successor.
pub fn run(layer: LayerId, object: Ino, first: BlockIndex, sequence: u64) -> Key {
    concat(&[
        &layer.0.to_be_bytes(),
        &object.0.to_be_bytes(),
        &first.0.to_be_bytes(),
        &sequence.to_be_bytes(),
    ])
}

/// Start of all runs of `layer`; that of the next layer is their end.
pub fn runs_of_layer(layer: LayerId) -> Key {
    concat(&[&layer.0.to_be_bytes()])
}

/// Start of all runs of `object` in `layer`; that of the next object is their end.
pub fn runs_of_object(layer: LayerId, object: Ino) -> Key {
    concat(&[&layer.0.to_be_bytes(), &object.0.to_be_bytes()])
}

/// Returns layer, object, first block and sequence number of a key of table `data`.
///
/// # Errors
/// [`Error::BadEntry`] if it is malformed.
pub fn parse_run(key: &[u8]) -> Result<(LayerId, Ino, BlockIndex, u64)> {
    Ok((
        LayerId(number(Table::Data, key, 0)?),
        Ino(number(Table::Data, key, 8)?),
        BlockIndex(number(Table::Data, key, 16)?),
        number(Table::Data, key, 24)?,
    ))
}

/// What kind of thing a layer changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ChangeOf {
    /// An inode's attributes; the rest of the key is its thing in `inodes`.
    Inode = 1,
    /// A name; the rest is its thing in `dentries`.
    Dentry = 2,
    /// A further name of an inode; the rest is its thing in `links`.
    Link = 3,
    /// An extended attribute; the rest is its thing in `xattrs`.
    Xattr = 4,
    /// Blocks; the rest is `object ‖ segment`, the value a bitmap of the segment.
    Blocks = 5,
    /// An inode without names that somebody still uses; the rest is its thing in `inodes`.
    Orphan = 6,
}

impl ChangeOf {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Inode,
            2 => Self::Dentry,
            3 => Self::Link,
            4 => Self::Xattr,
            5 => Self::Blocks,
            6 => Self::Orphan,
            _ => return None,
        })
    }

    /// Returns the table whose things these changes name, if it is versioned by thing.
    pub const fn table(self) -> Option<Table> {
        match self {
            Self::Inode => Some(Table::Inodes),
            Self::Dentry => Some(Table::Dentries),
            Self::Link => Some(Table::Links),
            Self::Xattr => Some(Table::Xattrs),
            Self::Blocks | Self::Orphan => None,
        }
    }
}

/// `layer ‖ kind ‖ thing`, the key of table `changes`.
pub fn change(layer: LayerId, of: ChangeOf, thing: &[u8]) -> Key {
    concat(&[&layer.0.to_be_bytes(), &[of as u8], thing])
}

/// Start of all changes of `layer`; that of the next layer is their end.
pub fn changes_of_layer(layer: LayerId) -> Key {
    concat(&[&layer.0.to_be_bytes()])
}

/// `object ‖ segment`, what a [`ChangeOf::Blocks`] key ends with.
pub fn segment(object: Ino, segment: u64) -> Key {
    concat(&[&object.0.to_be_bytes(), &segment.to_be_bytes()])
}

/// Returns layer, kind and thing of a key of table `changes`.
///
/// # Errors
/// [`Error::BadEntry`] if it is malformed.
pub fn parse_change(key: &[u8]) -> Result<(LayerId, ChangeOf, &[u8])> {
    let layer = LayerId(number(Table::Changes, key, 0)?);
    match key.get(8).copied().and_then(ChangeOf::from_byte) {
        Some(of) => Ok((layer, of, &key[9..])),
        None => Err(bad(Table::Changes, "unknown kind of change")),
    }
}

/// Returns the inode that a thing starts with.
///
/// # Errors
/// [`Error::BadEntry`] if it is too short.
pub fn leading_ino(table: Table, thing: &[u8]) -> Result<Ino> {
    number(table, thing, 0).map(Ino)
}

/// Returns object and segment of a [`ChangeOf::Blocks`] thing.
///
/// # Errors
/// [`Error::BadEntry`] if it is malformed.
pub fn parse_segment(thing: &[u8]) -> Result<(Ino, u64)> {
    Ok((
        Ino(number(Table::Changes, thing, 0)?),
        number(Table::Changes, thing, 8)?,
    ))
}

/// Key of a layer's record.
pub fn layer(id: LayerId) -> Key {
    concat(&[&id.0.to_be_bytes()])
}

/// Key of a checkpoint's record.
pub fn checkpoint(id: CheckpointId) -> Key {
    concat(&[&id.0.to_be_bytes()])
}

/// Returns the number that a key of table `layers` or `checkpoints` is.
///
/// # Errors
/// [`Error::BadEntry`] if it is malformed.
pub fn parse_id(table: Table, key: &[u8]) -> Result<u64> {
    if key.len() == 8 {
        number(table, key, 0)
    } else {
        Err(bad(table, "key of wrong length"))
    }
}

/// `1 ‖ ino`: key of what is known about an inode of the base.
pub fn base_inode(ino: Ino) -> Key {
    concat(&[&[1], &ino.0.to_be_bytes()])
}

/// `2 ‖ device ‖ host inode`: key of the inode number given to a file of the base.
pub fn base_index(device: u64, host_ino: u64) -> Key {
    concat(&[&[2], &device.to_be_bytes(), &host_ino.to_be_bytes()])
}

/// `3 ‖ path`: key of what was last applied to that path of the base.
pub fn base_applied(path: &[u8]) -> Key {
    concat(&[&[3], path])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_layers_sort_first() {
        let thing = block(Ino(7), BlockIndex(3));
        assert!(versioned(&thing, LayerId(9)) < versioned(&thing, LayerId(8)));
        assert_eq!(
            layer_of(Table::Map, &versioned(&thing, LayerId(9))).unwrap(),
            LayerId(9)
        );
    }

    #[test]
    fn names_that_are_prefixes_of_each_other_keep_their_versions_apart() {
        let hash = NameHash(99);
        let short = versioned(&dentry(Ino(1), hash, b"a"), LayerId(5));
        let long = versioned(&dentry(Ino(1), hash, b"a\x01"), LayerId(5));
        assert!(!long.starts_with(&dentry(Ino(1), hash, b"a")));
        assert!(short < long);
        let thing = dentry(Ino(1), hash, b"a");
        let (parent, parsed, name) = parse_dentry(&thing).unwrap();
        assert_eq!((parent, parsed, name), (Ino(1), hash, &b"a"[..]));
    }

    #[test]
    fn keys_are_as_the_format_document_says() {
        assert_eq!(inode(Ino(0x0102)).as_slice(), [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(
            versioned(&[], LayerId(1)).as_slice(),
            [255, 255, 255, 255, 255, 255, 255, 254]
        );
        assert_eq!(
            change(LayerId(2), ChangeOf::Dentry, b"x").as_slice(),
            [0, 0, 0, 0, 0, 0, 0, 2, 2, b'x']
        );
        assert_eq!(
            NameHash::of(HashKey(1, 2), b"name"),
            NameHash::of(HashKey(1, 2), b"name")
        );
        assert!(NameHash::of(HashKey(0, 0), b"").0 < 1 << 63);
    }

    #[test]
    fn malformed_keys_are_errors() {
        assert!(layer_of(Table::Map, b"short").is_err());
        assert!(parse_dentry(&[0; 16]).is_err());
        assert!(parse_dentry(&[1; 20]).is_err());
        assert!(parse_change(&[0; 8]).is_err());
        assert!(parse_change(&[0, 0, 0, 0, 0, 0, 0, 1, 77]).is_err());
        assert!(parse_run(&[0; 31]).is_err());
    }
}
