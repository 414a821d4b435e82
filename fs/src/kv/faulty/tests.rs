use super::*;
use crate::kv::{Step, suite};

fn batch(key: u8) -> Batch {
    let mut batch = Batch::new();
    batch.put(Table::Meta, &[key][..], vec![key]);
    batch
}

fn plan(at: At, fault: Fault, then: Then) -> Option<Plan> {
    Some(Plan { at, fault, then })
}

fn keys(kv: &dyn Kv) -> Vec<u8> {
    suite::entries(kv, Table::Meta, b"")
        .into_iter()
        .map(|(key, _)| key[0])
        .collect()
}

#[test]
fn without_a_plan_it_is_the_inner_engine() {
    suite::run_all(&mut || Box::new(FaultyKv::new(MemoryKv::new(), None)));
}

#[test]
fn crash_engine_keeps_the_promises_of_the_trait() {
    suite::run_all(&mut || Box::new(CrashKv::new()));
}

#[test]
fn the_nth_write_fails_and_leaves_nothing() {
    let kv = FaultyKv::new(
        MemoryKv::new(),
        plan(At::Write(2), Fault::NoSpace, Then::GoOn),
    );
    kv.write(&batch(1), Durability::Process).unwrap();
    kv.sync().unwrap();
    let failed = kv.write(&batch(2), Durability::Process);
    assert!(
        matches!(failed, Err(Error::Engine { no_space: true, .. })),
        "{failed:?}"
    );
    kv.write(&batch(3), Durability::Process).unwrap();
    assert_eq!(keys(&kv), [1, 3]);
    assert_eq!((kv.writes(), kv.syncs(), kv.fired()), (3, 1, true));
}

#[test]
fn the_nth_sync_fails_alone() {
    let kv = FaultyKv::new(CrashKv::new(), plan(At::Sync(1), Fault::Io, Then::GoOn));
    kv.write(&batch(1), Durability::Process).unwrap();
    assert!(matches!(
        kv.sync(),
        Err(Error::Engine {
            no_space: false,
            ..
        })
    ));
    assert_eq!(kv.inner().unsynced(), 1);
    kv.sync().unwrap();
    assert_eq!(kv.inner().unsynced(), 0);
}

#[test]
fn after_a_cut_nothing_works_but_the_inner_engine() {
    let kv = FaultyKv::cut_at(MemoryKv::new(), 3);
    kv.write(&batch(1), Durability::Process).unwrap();
    kv.sync().unwrap();
    assert!(!kv.fired());
    assert!(kv.write(&batch(2), Durability::Process).is_err());
    assert!(kv.fired());
    assert!(kv.write(&batch(3), Durability::Process).is_err());
    assert!(kv.sync().is_err());
    assert!(kv.get(Table::Meta, &[1]).is_err());
    assert!(kv.get_many(Table::Meta, &[]).is_err());
    assert!(kv.seek(Table::Meta, &[1], 0).is_err());
    assert!(
        kv.scan(Table::Meta, b"", &mut |_, _| Ok(Step::Next))
            .is_err()
    );
    assert!(kv.size_bytes(Table::Meta, b"", b"z").is_err());
    assert_eq!(keys(kv.inner()), [1]);
    assert_eq!(keys(&kv.into_inner()), [1]);
}

#[test]
fn a_plan_can_be_made_later() {
    let kv = FaultyKv::new(MemoryKv::new(), None);
    kv.write(&batch(1), Durability::Process).unwrap();
    kv.set_plan(plan(At::Write(2), Fault::Io, Then::GoOn));
    assert!(kv.write(&batch(2), Durability::Process).is_err());
    kv.set_plan(None);
    kv.write(&batch(3), Durability::Process).unwrap();
    assert_eq!(keys(&kv), [1, 3]);
}

#[test]
fn a_power_cut_keeps_a_prefix_of_what_was_not_synced() {
    let kv = CrashKv::new();
    kv.write(&batch(1), Durability::Process).unwrap();
    assert!(keys(&kv.image(0).unwrap()).is_empty());
    kv.sync().unwrap();
    kv.write(&batch(2), Durability::Process).unwrap();
    kv.write(&batch(3), Durability::Process).unwrap();
    assert_eq!(kv.unsynced(), 2);
    let images: Vec<_> = (0..=3).map(|kept| keys(&kv.image(kept).unwrap())).collect();
    assert_eq!(images, [vec![1], vec![1, 2], vec![1, 2, 3], vec![1, 2, 3]]);
    assert_eq!(keys(&kv.live_image()), [1, 2, 3]);
}

#[test]
fn a_durable_write_takes_everything_before_it_along() {
    let kv = CrashKv::new();
    kv.write(&batch(1), Durability::Process).unwrap();
    kv.write(&batch(2), Durability::Disk).unwrap();
    assert_eq!((kv.unsynced(), kv.synced()), (0, 1));
    assert_eq!(keys(&kv.image(0).unwrap()), [1, 2]);
}

#[test]
fn images_are_apart_from_what_goes_on() {
    let kv = CrashKv::new();
    kv.write(&batch(1), Durability::Disk).unwrap();
    let image = kv.image(0).unwrap();
    let next = CrashKv::on(image.clone());
    next.write(&batch(2), Durability::Disk).unwrap();
    kv.write(&batch(3), Durability::Disk).unwrap();
    assert_eq!(keys(&image), [1]);
    assert_eq!(keys(&next), [1, 2]);
    assert_eq!(keys(&kv), [1, 3]);
}
