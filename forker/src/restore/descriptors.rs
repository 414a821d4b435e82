//! Gives every process its descriptors.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;

use super::maker::Made;
use super::tree::Tree;
use crate::error::{Error, Result};
use crate::memory::calls::{Argument as Word, Calls, Expect};
use crate::resource::files::{Argument, Files, InsideCall, Rebuilt, Table};
use crate::sys::task;

/// What a process may have while it is built; it gets its own limit in the end.
const MOST: u64 = 1 << 20;

/// The number under which all processes have the tracer: above all that they want.
pub(super) fn tracer_number(files: &Files) -> i32 {
    let numbers = files
        .tables
        .iter()
        .flat_map(|table| &table.slots)
        .map(|slot| slot.fd);
    numbers.max().unwrap_or(2).max(2) + 1
}

/// Lifts the limit on numbers of descriptors.
pub(super) fn lift_limit(pid: i32, highest: i32) -> Result<()> {
    let wanted = u64::from(highest.unsigned_abs()) + 64;
    let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
        .unwrap_or((0, MOST));
    let limit = wanted.max(1024).max(hard.min(MOST));
    task::set_limit(pid, libc::RLIMIT_NOFILE, limit, limit)
        .map_err(|errno| Error::trace(pid, "lifting the limit of descriptors", errno))
}

/// Lets each process fetch its descriptors.
pub(super) fn give(tree: &Tree, files: &Files, rebuilt: &Rebuilt, tracer: i32) -> Result<()> {
    for table in &files.tables {
        for pid in &table.pids {
            if let Some(made) = tree.made.get(pid) {
                fetch(tree, made, table, rebuilt, tracer)?;
            }
        }
    }
    for call in &rebuilt.inside {
        let made = tree.made.get(&call.pid);
        let made = made.ok_or_else(|| Error::Image(format!("process {} is missing", call.pid)))?;
        run_inside(tree, made, call, rebuilt, tracer)?;
    }
    Ok(())
}

fn word(number: i32) -> Word {
    Word::from(number)
}

/// Adds the fetching of a descriptor of the tracer.
fn add_fetch(calls: &mut Calls, tracer: i32, file: i32) -> usize {
    let arguments = [word(tracer), word(file), word(0)];
    calls.add(
        "fetch a descriptor",
        libc::SYS_pidfd_getfd,
        arguments,
        Expect::Success,
    )
}

fn fetch(tree: &Tree, made: &Made, table: &Table, rebuilt: &Rebuilt, tracer: i32) -> Result<()> {
    let mut calls = Calls::new(tree.region.data());
    let mut taken = BTreeSet::from([tracer]);
    let mut slots = table.slots.clone();
    slots.sort_by_key(|slot| slot.fd);
    for slot in &slots {
        let file = rebuilt.files.get(slot.description);
        let file = file.ok_or_else(|| Error::Image("a descriptor refers to nothing".to_owned()))?;
        let fetched = Word::Result(add_fetch(&mut calls, tracer, file.as_raw_fd()));
        // The kernel gives the lowest free number; the wanted one is free and not below it.
        let lowest = (0..).find(|number| !taken.contains(number)).unwrap_or(0);
        let flags = if slot.cloexec { libc::O_CLOEXEC } else { 0 };
        if lowest == slot.fd {
            let flags = if slot.cloexec { libc::FD_CLOEXEC } else { 0 };
            let arguments = [fetched, word(libc::F_SETFD), word(flags)];
            calls.add(
                "set up a descriptor",
                libc::SYS_fcntl,
                arguments,
                Expect::Success,
            );
        } else {
            let arguments = [fetched, word(slot.fd), word(flags)];
            calls.add(
                "number a descriptor",
                libc::SYS_dup3,
                arguments,
                Expect::Success,
            );
            calls.add(
                "close a descriptor",
                libc::SYS_close,
                [fetched],
                Expect::Success,
            );
        }
        taken.insert(slot.fd);
    }
    made.run(&tree.region, &calls).map(drop)
}

fn run_inside(
    tree: &Tree,
    made: &Made,
    call: &InsideCall,
    rebuilt: &Rebuilt,
    tracer: i32,
) -> Result<()> {
    let mut calls = Calls::new(tree.region.data());
    let file = call.file.map(|index| {
        let file = rebuilt.files.get(index);
        file.ok_or_else(|| Error::Image("a call refers to nothing".to_owned()))
    });
    let lent = file
        .transpose()?
        .map(|file| add_fetch(&mut calls, tracer, file.as_raw_fd()));
    let mut arguments = [Word::Value(0); 6];
    for (place, argument) in arguments.iter_mut().zip(&call.arguments) {
        *place = match argument {
            Argument::Number(number) => Word::Value(*number),
            Argument::Bytes(bytes) => Word::Value(calls.place(bytes)),
            Argument::File => Word::Result(lent.unwrap_or(0)),
        };
    }
    calls.add(call.what, call.number, arguments, Expect::Success);
    if let Some(lent) = lent {
        calls.add(
            "close a descriptor",
            libc::SYS_close,
            [Word::Result(lent)],
            Expect::Success,
        );
    }
    made.run(&tree.region, &calls).map(drop)
}

/// Closes the descriptor of the tracer.
pub(super) fn forget_tracer(calls: &mut Calls, tracer: i32) {
    calls.add(
        "close a descriptor",
        libc::SYS_close,
        [word(tracer)],
        Expect::Success,
    );
}
