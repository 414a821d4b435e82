//! inotify: what programs do through the mount is told to those who watch.

use std::fs;
use std::io::Read;

use branchpoint_tests::rig::Rig;
use branchpoint_tests::sys::watch;

#[test]
fn watchers_hear_of_creation_change_and_removal() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir(rig.path("d")).unwrap();
    let mask = libc::IN_CREATE | libc::IN_CLOSE_WRITE | libc::IN_DELETE | libc::IN_MOVED_TO;
    let mut events = watch(&rig.path("d"), mask).unwrap();
    fs::write(rig.path("d/f"), "x").unwrap();
    fs::rename(rig.path("d/f"), rig.path("d/g")).unwrap();
    fs::remove_file(rig.path("d/g")).unwrap();
    let mut bytes = vec![0; 4096];
    let count = events.read(&mut bytes).unwrap();
    let mut seen = Vec::new();
    let mut at = 0;
    while at < count {
        let word = |n: usize| u32::from_le_bytes(bytes[at + n..at + n + 4].try_into().unwrap());
        seen.push(word(4));
        at += 16 + usize::try_from(word(12)).unwrap();
    }
    let expected = [
        libc::IN_CREATE,
        libc::IN_CLOSE_WRITE,
        libc::IN_MOVED_TO,
        libc::IN_DELETE,
    ];
    assert_eq!(seen, expected);
}
