//! What every engine must do, run over each of them.
//!
//! Some engines have more to check (durability, filters on disk); that is beside their code.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Batch, Durability, Key, Kv, Step, Table};
use crate::error::{Error, Result};

/// Makes a new, empty engine.
pub(super) type Make<'a> = &'a mut dyn FnMut() -> Box<dyn Kv>;

/// Runs every check, each on an engine of its own.
pub(super) fn run_all(make: Make<'_>) {
    gets_what_was_put(make().as_ref());
    tables_are_apart(make().as_ref());
    batches_apply_in_order(make().as_ref());
    ranges_are_half_open(make().as_ref());
    empty_ranges_remove_nothing(make().as_ref());
    seek_lands_on_the_first_of_its_prefix(make().as_ref());
    seek_can_ask_for_a_longer_prefix(make().as_ref());
    scan_visits_in_order_and_jumps(make().as_ref());
    scan_shows_the_state_of_the_call(make().as_ref());
    scan_returns_the_visitors_error(make().as_ref());
    get_many_keeps_the_order(make().as_ref());
    large_values_come_back(make().as_ref());
    batches_are_atomic_to_readers(make().as_ref());
    agrees_with_a_simple_model(make().as_ref());
}

/// Writes one entry.
pub(super) fn put(kv: &dyn Kv, table: Table, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(table, key, value.to_vec());
    kv.write(&batch, Durability::Process).unwrap();
}

/// Returns all entries of `table` from `from` on.
pub(super) fn entries(kv: &dyn Kv, table: Table, from: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    kv.scan(table, from, &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        Ok(Step::Next)
    })
    .unwrap();
    found
}

/// Returns a key of `Inodes`' shape: an eight-byte prefix and a version.
pub(super) fn versioned(thing: u64, version: u64) -> Key {
    let mut key = Key::new();
    key.extend_from_slice(&thing.to_be_bytes());
    key.extend_from_slice(&version.to_be_bytes());
    key
}

fn keys_of(kv: &dyn Kv, table: Table) -> Vec<Vec<u8>> {
    entries(kv, table, b"")
        .into_iter()
        .map(|(key, _)| key)
        .collect()
}

fn gets_what_was_put(kv: &dyn Kv) {
    assert_eq!(kv.get(Table::Meta, b"a").unwrap(), None);
    put(kv, Table::Meta, b"a", b"1");
    put(kv, Table::Meta, b"empty", b"");
    assert_eq!(kv.get(Table::Meta, b"a").unwrap(), Some(b"1".to_vec()));
    assert_eq!(kv.get(Table::Meta, b"empty").unwrap(), Some(Vec::new()));
    put(kv, Table::Meta, b"a", b"2");
    assert_eq!(kv.get(Table::Meta, b"a").unwrap(), Some(b"2".to_vec()));
    let mut batch = Batch::new();
    batch.delete(Table::Meta, &b"a"[..]);
    batch.delete(Table::Meta, &b"never"[..]);
    kv.write(&batch, Durability::Disk).unwrap();
    assert_eq!(kv.get(Table::Meta, b"a").unwrap(), None);
    kv.write(&Batch::new(), Durability::Disk).unwrap();
    kv.sync().unwrap();
}

fn tables_are_apart(kv: &dyn Kv) {
    let mut batch = Batch::new();
    for table in Table::ALL {
        batch.put(table, &[7; 24][..], table.name().as_bytes().to_vec());
    }
    kv.write(&batch, Durability::Process).unwrap();
    for table in Table::ALL {
        assert_eq!(
            entries(kv, table, b""),
            [(vec![7; 24], table.name().as_bytes().to_vec())]
        );
    }
}

fn batches_apply_in_order(kv: &dyn Kv) {
    let mut batch = Batch::new();
    batch.put(Table::Meta, &b"a"[..], b"1".to_vec());
    batch.delete(Table::Meta, &b"a"[..]);
    batch.put(Table::Meta, &b"b"[..], b"1".to_vec());
    batch.put(Table::Meta, &b"b"[..], b"2".to_vec());
    batch.put(Table::Meta, &b"c"[..], b"1".to_vec());
    batch.delete_range(Table::Meta, &b"c"[..], &b"d"[..]);
    batch.put(Table::Meta, &b"cc"[..], b"1".to_vec());
    kv.write(&batch, Durability::Process).unwrap();
    let expected = [
        (b"b".to_vec(), b"2".to_vec()),
        (b"cc".to_vec(), b"1".to_vec()),
    ];
    assert_eq!(entries(kv, Table::Meta, b""), expected);
}

fn ranges_are_half_open(kv: &dyn Kv) {
    for key in [b"a", b"b", b"c", b"d"] {
        put(kv, Table::Changes, key, b"");
    }
    let mut batch = Batch::new();
    batch.delete_range(Table::Changes, &b"b"[..], &b"d"[..]);
    kv.write(&batch, Durability::Process).unwrap();
    assert_eq!(keys_of(kv, Table::Changes), [b"a".to_vec(), b"d".to_vec()]);
    put(kv, Table::Changes, b"b", b"again");
    assert_eq!(
        kv.get(Table::Changes, b"b").unwrap(),
        Some(b"again".to_vec())
    );
}

fn empty_ranges_remove_nothing(kv: &dyn Kv) {
    put(kv, Table::Meta, b"m", b"");
    let mut batch = Batch::new();
    batch.delete_range(Table::Meta, &b"m"[..], &b"m"[..]);
    batch.delete_range(Table::Meta, &b"z"[..], &b"a"[..]);
    batch.put(Table::Meta, &b"n"[..], Vec::new());
    kv.write(&batch, Durability::Process).unwrap();
    assert_eq!(keys_of(kv, Table::Meta), [b"m".to_vec(), b"n".to_vec()]);
}

fn seek_lands_on_the_first_of_its_prefix(kv: &dyn Kv) {
    let prefix = Table::Inodes.prefix_bytes();
    for (thing, version) in [(1, 5), (1, 9), (3, 2)] {
        put(kv, Table::Inodes, &versioned(thing, version), &[0]);
    }
    let seek = |thing, version| {
        let found = kv
            .seek(Table::Inodes, &versioned(thing, version), prefix)
            .unwrap();
        found.map(|(key, value)| {
            assert_eq!(value, [0]);
            key
        })
    };
    assert_eq!(seek(1, 0), Some(versioned(1, 5)));
    assert_eq!(seek(1, 5), Some(versioned(1, 5)));
    assert_eq!(seek(1, 6), Some(versioned(1, 9)));
    assert_eq!(seek(1, 10), None, "the next thing has another prefix");
    assert_eq!(seek(2, 0), None);
    assert_eq!(seek(3, 0), Some(versioned(3, 2)));
    let mut batch = Batch::new();
    batch.delete(Table::Inodes, versioned(1, 5));
    batch.delete_range(Table::Inodes, versioned(3, 0), versioned(4, 0));
    kv.write(&batch, Durability::Process).unwrap();
    assert_eq!(seek(1, 0), Some(versioned(1, 9)));
    assert_eq!(seek(3, 0), None);
}

fn seek_can_ask_for_a_longer_prefix(kv: &dyn Kv) {
    put(kv, Table::Inodes, &versioned(1, 0x0100), b"v");
    assert!(
        kv.seek(Table::Inodes, &versioned(1, 0), 14)
            .unwrap()
            .is_some()
    );
    assert!(
        kv.seek(Table::Inodes, &versioned(1, 0), 15)
            .unwrap()
            .is_none()
    );
    put(kv, Table::Base, b"ab1", b"v");
    put(kv, Table::Base, b"ac1", b"v");
    let seek = |from: &[u8], prefix| {
        kv.seek(Table::Base, from, prefix)
            .unwrap()
            .map(|(key, _)| key.to_vec())
    };
    assert_eq!(seek(b"a", 0), Some(b"ab1".to_vec()));
    assert_eq!(seek(b"ab2", 0), Some(b"ac1".to_vec()));
    assert_eq!(seek(b"ab2", 1), Some(b"ac1".to_vec()));
    assert_eq!(seek(b"ab2", 2), None);
    assert_eq!(seek(b"zz", 0), None);
    put(kv, Table::Base, &[0xff, 0xff], b"last");
    assert_eq!(
        seek(&[0xff], 1),
        Some(vec![0xff, 0xff]),
        "no prefix follows this one"
    );
}

fn scan_visits_in_order_and_jumps(kv: &dyn Kv) {
    // `Inodes` has filters over prefixes: a scan crosses prefixes all the same.
    for thing in [5, 1, 3, 2, 4] {
        put(
            kv,
            Table::Inodes,
            &versioned(thing, 0),
            &thing.to_be_bytes(),
        );
    }
    let things: Vec<u64> = entries(kv, Table::Inodes, &versioned(2, 0))
        .iter()
        .map(|(_, value)| u64::from_be_bytes(value.as_slice().try_into().unwrap()))
        .collect();
    assert_eq!(things, [2, 3, 4, 5]);

    let mut seen = Vec::new();
    kv.scan(Table::Inodes, b"", &mut |key, _| {
        seen.push(Key::from(key));
        Ok(match seen.len() {
            1 => Step::Seek(versioned(2, 1)),
            2 => Step::Next,
            _ => Step::Stop,
        })
    })
    .unwrap();
    assert_eq!(seen, [versioned(1, 0), versioned(3, 0), versioned(4, 0)]);

    let mut seen = 0;
    kv.scan(Table::Inodes, b"", &mut |_, _| {
        seen += 1;
        Ok(Step::Seek(versioned(9, 0)))
    })
    .unwrap();
    assert_eq!(seen, 1, "nothing is left after the jump");
}

fn scan_shows_the_state_of_the_call(kv: &dyn Kv) {
    for key in [b"a", b"b", b"c"] {
        put(kv, Table::Meta, key, b"old");
    }
    let mut seen = Vec::new();
    kv.scan(Table::Meta, b"", &mut |key, value| {
        let mut batch = Batch::new();
        batch.put(Table::Meta, &b"bb"[..], b"new".to_vec());
        batch.put(Table::Meta, &b"c"[..], b"new".to_vec());
        kv.write(&batch, Durability::Process)?;
        assert_eq!(kv.get(Table::Meta, b"c")?, Some(b"new".to_vec()));
        seen.push((key.to_vec(), value.to_vec()));
        Ok(Step::Next)
    })
    .unwrap();
    let old = |key: &[u8]| (key.to_vec(), b"old".to_vec());
    assert_eq!(seen, [old(b"a"), old(b"b"), old(b"c")]);
    assert_eq!(keys_of(kv, Table::Meta).len(), 4);
}

fn scan_returns_the_visitors_error(kv: &dyn Kv) {
    put(kv, Table::Meta, b"a", b"");
    put(kv, Table::Meta, b"b", b"");
    let mut calls = 0;
    let result: Result<()> = kv.scan(Table::Meta, b"", &mut |_, _| {
        calls += 1;
        Err(Error::Unsupported { what: "this entry" })
    });
    assert!(matches!(
        result,
        Err(Error::Unsupported { what: "this entry" })
    ));
    assert_eq!(calls, 1);
}

fn get_many_keeps_the_order(kv: &dyn Kv) {
    put(kv, Table::Inodes, &versioned(1, 0), b"1");
    put(kv, Table::Inodes, &versioned(2, 0), b"2");
    let keys = [
        versioned(2, 0),
        versioned(9, 0),
        versioned(1, 0),
        versioned(2, 0),
    ];
    let values = kv.get_many(Table::Inodes, &keys).unwrap();
    assert_eq!(
        values,
        [
            Some(b"2".to_vec()),
            None,
            Some(b"1".to_vec()),
            Some(b"2".to_vec())
        ]
    );
    assert!(kv.get_many(Table::Inodes, &[]).unwrap().is_empty());
}

fn large_values_come_back(kv: &dyn Kv) {
    let value: Vec<u8> = (0..65536u32)
        .map(|i| u8::try_from(i * 31 % 251).unwrap())
        .collect();
    put(kv, Table::Data, b"run", &value);
    put(kv, Table::Data, b"small", &value[..100]);
    assert_eq!(
        kv.get(Table::Data, b"run").unwrap().as_deref(),
        Some(&value[..])
    );
    assert_eq!(
        kv.get(Table::Data, b"small").unwrap().as_deref(),
        Some(&value[..100])
    );
    let both = kv.get_many(
        Table::Data,
        &[Key::from(&b"run"[..]), Key::from(&b"small"[..])],
    );
    assert_eq!(
        both.unwrap(),
        [Some(value.clone()), Some(value[..100].to_vec())]
    );
}

fn batches_are_atomic_to_readers(kv: &dyn Kv) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..500u32 {
                let mut batch = Batch::new();
                for key in 0..8u8 {
                    batch.put(Table::Meta, &[key][..], round.to_be_bytes().to_vec());
                }
                kv.write(&batch, Durability::Process).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let all = entries(kv, Table::Meta, b"");
                assert!(all.is_empty() || all.len() == 8, "half a batch is visible");
                assert!(
                    all.windows(2).all(|pair| pair[0].1 == pair[1].1),
                    "two batches mixed"
                );
            }
        });
    });
}

/// A few thousand operations of a small key space, against a sorted vector.
fn agrees_with_a_simple_model(kv: &dyn Kv) {
    let mut model: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for round in 0..3000u32 {
        let (a, b) = (
            versioned(random(6), random(5)),
            versioned(random(6), random(5)),
        );
        let mut batch = Batch::new();
        match random(8) {
            0 => {
                batch.delete(Table::Inodes, a.clone());
                model.retain(|(key, _)| key[..] != a[..]);
            }
            1 => {
                batch.delete_range(Table::Inodes, a.clone(), b.clone());
                model.retain(|(key, _)| key[..] < a[..] || key[..] >= b[..]);
            }
            _ => {
                let value = round.to_be_bytes().to_vec();
                batch.put(Table::Inodes, a.clone(), value.clone());
                model.retain(|(key, _)| key[..] != a[..]);
                model.push((a.to_vec(), value));
                model.sort();
            }
        }
        kv.write(&batch, Durability::Process).unwrap();
        let first = model.iter().find(|(key, _)| key[..] >= b[..]);
        let expected = first.filter(|(key, _)| key[..8] == b[..8]).cloned();
        let found = kv.seek(Table::Inodes, &b, 8).unwrap();
        assert_eq!(
            found.map(|(key, value)| (key.to_vec(), value)),
            expected,
            "round {round}"
        );
        if round % 16 == 0 {
            assert_eq!(entries(kv, Table::Inodes, b""), model, "round {round}");
        }
    }
}
