//! Memory files, and tables with many descriptors.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sys::uio::{pread, pwrite};
use nix::unistd::{Whence, ftruncate, lseek64};

use super::super::{Kind, sys};
use super::{Guest, Here, description, rebuilt};

#[test]
fn memory_files_with_holes_and_seals() {
    let _turn = super::turn();
    let file = sys::memfd(b"a name (deleted)\n", 3).unwrap();
    let size = 5 << 20;
    ftruncate(&file, size).unwrap();
    pwrite(&file, b"begin", 0).unwrap();
    pwrite(&file, &[7; 5000], 3 << 20).unwrap();
    lseek64(&file, 99, Whence::SeekSet).unwrap();
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
    sys::fcntl(&file, libc::F_ADD_SEALS, seals).unwrap();
    let guest = Guest::new(&[(10, &file)]);
    let captured = guest.taken(&Here::new());
    let kept: usize = captured.memfds[0]
        .content
        .iter()
        .map(|(_, bytes)| bytes.len())
        .sum();
    assert!(kept < 1 << 20, "holes were kept: {kept}");
    let (files, _) = rebuilt(&captured, &Here::new());
    let again = &files[&10];
    assert_eq!(sys::fcntl(again, libc::F_GET_SEALS, 0).unwrap(), seals);
    assert_eq!(lseek64(again, 0, Whence::SeekCur).unwrap(), 99);
    assert_eq!(nix::sys::stat::fstat(again).unwrap().st_size, size);
    let mut bytes = [0; 5002];
    pread(again, &mut bytes, (3 << 20) - 1).unwrap();
    assert_eq!((bytes[0], bytes[1], bytes[5000], bytes[5001]), (0, 7, 7, 0));
    let link =
        |file: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    assert_eq!(link(again), link(&file));
}

#[test]
fn many_descriptors_that_look_alike() {
    let _turn = super::turn();
    let events: Vec<OwnedFd> = (0..300)
        .map(|_| sys::eventfd(libc::EFD_CLOEXEC).unwrap())
        .collect();
    let mut slots: Vec<(i32, &dyn AsFd)> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let index = i32::try_from(index).unwrap();
        slots.push((10 + index, event));
        slots.push((400 + index, event));
    }
    let captured = Guest::new(&slots).taken(&Here::new());
    let events = captured
        .descriptions
        .iter()
        .filter(|one| matches!(one.kind, Kind::Event(_)));
    assert_eq!(events.count(), 300);
    let slots = &captured.tables[0].slots;
    let of = |fd| slots.iter().find(|slot| slot.fd == fd).unwrap().description;
    for index in 0..300 {
        assert_eq!(of(10 + index), of(400 + index));
    }
    assert_eq!(description(&captured, 10).seen.1, 10);
}
