//! Which kind a description is, and what of it is kept.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use super::capture::{Taken, Work};
use super::event::Event;
use super::model::Kind;
use super::place::Source;
use super::process::Process;
use super::signal::Signal;
use super::trouble::{Trouble, way};
use super::{device, epoll, inotify, memfd, pipe, regular, socket, terminal, timer};
use crate::proc::fdinfo::Detail;

/// Classifies all descriptions, those included that turn up in queues meanwhile. `None` for one that
/// the report refuses.
pub(super) fn all(work: &mut Work, source: &dyn Source) -> Vec<Option<Kind>> {
    let mut kinds = Vec::new();
    let mut network = None;
    while let Some(taken) = work.taken.get(kinds.len()) {
        let (index, name) = (kinds.len(), name(taken));
        let result = if is_socket(taken) {
            socket::capture(work, index, &mut network).map(Some)
        } else {
            kind(taken, source)
        };
        kinds.push(match result {
            // `None` for what is settled when all others are known.
            Ok(kind) => kind,
            Err(trouble) => {
                work.trouble(index, &name, trouble);
                None
            }
        });
    }
    socket::unix::settle(work, &mut kinds, source);
    socket::tcp::complete(work, &mut kinds);
    pipes(work, source, &mut kinds);
    terminals(work, source, &mut kinds);
    epolls(work, &mut kinds);
    kinds
}

/// How a report names what is refused.
fn name(taken: &Taken) -> String {
    let link = String::from_utf8_lossy(&taken.link);
    let inner = link
        .strip_prefix("anon_inode:")
        .map(|name| name.trim_matches(['[', ']']));
    inner.unwrap_or(&link).to_owned()
}

fn is_format(taken: &Taken, format: u32) -> bool {
    taken.stat.st_mode & libc::S_IFMT == format
}

/// Not so for the file of a bound socket, opened with `O_PATH`.
fn is_socket(taken: &Taken) -> bool {
    is_format(taken, libc::S_IFSOCK) && taken.info.flags & libc::O_PATH == 0
}

fn kind(taken: &Taken, source: &dyn Source) -> Result<Option<Kind>, Trouble> {
    let whole = |kind| Ok(Some(kind));
    if taken.link.starts_with(b"anon_inode:") {
        return anonymous(taken, source);
    }
    if taken.info.flags & libc::O_PATH != 0 {
        return whole(Kind::Regular(regular::capture(source, taken)?));
    }
    if is_format(taken, libc::S_IFIFO) {
        return Ok(None);
    }
    if taken.link.first() != Some(&b'/') {
        return Err(Trouble::refuse(
            "this kind of descriptor cannot be kept",
            way("close it before the checkpoint"),
        ));
    }
    if is_format(taken, libc::S_IFCHR) && terminal::recognise(taken)?.is_some() {
        return Ok(None);
    }
    if is_format(taken, libc::S_IFCHR) || is_format(taken, libc::S_IFBLK) {
        return whole(Kind::Device(device::capture(source, taken)?));
    }
    if memfd::name(taken)?.is_some() {
        return Ok(None);
    }
    whole(Kind::Regular(regular::capture(source, taken)?))
}

fn anonymous(taken: &Taken, source: &dyn Source) -> Result<Option<Kind>, Trouble> {
    let kind = match (&taken.info.detail, taken.link.as_slice()) {
        (Detail::Event { count, semaphore }, _) => Kind::Event(Event {
            count: *count,
            semaphore: *semaphore,
        }),
        (Detail::Signal(mask), _) => Kind::Signal(Signal { mask: *mask }),
        (Detail::Timer(timer), _) => Kind::Timer(timer::capture(timer)?),
        (Detail::Inotify(watches), _) => Kind::Inotify(inotify::capture(source, watches)?),
        (_, b"anon_inode:inotify") => Kind::Inotify(inotify::capture(source, &[])?),
        (_, b"anon_inode:[eventpoll]") => return Ok(None),
        (Detail::Pid(pid), _) => {
            return Ok(Some(Kind::Process(Process { pid: Some(*pid) })));
        }
        (_, b"anon_inode:[io_uring]") => {
            return Err(Trouble::refuse(
                "the kernel shows no way to read the state of an io_uring",
                way("run the program without io_uring (for node: UV_USE_IO_URING=0)"),
            ));
        }
        _ => {
            return Err(Trouble::refuse(
                "the kernel shows no way to read its state",
                way("close it before the checkpoint"),
            ));
        }
    };
    Ok(Some(kind))
}

/// Descriptions of pipes and FIFOs, by device and inode number.
fn pipes(work: &mut Work, source: &dyn Source, kinds: &mut [Option<Kind>]) {
    let mut ends: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
    for (index, taken) in work.taken.iter().enumerate() {
        let path = taken.info.flags & libc::O_PATH != 0;
        if is_format(taken, libc::S_IFIFO) && !path {
            let id = (taken.stat.st_dev, taken.stat.st_ino);
            ends.entry(id).or_default().push(index);
        }
    }
    for indices in ends.into_values() {
        let taken: Vec<&Taken> = indices.iter().map(|&index| &work.taken[index]).collect();
        let result = pipe::capture(source, &taken);
        share(work, kinds, &indices, "pipe", result, |files, pipe| {
            files.pipes.push(pipe);
            let number = files.pipes.len() - 1;
            Box::new(move |_| Kind::Pipe(number))
        });
    }
    memfds(work, kinds);
}

fn memfds(work: &mut Work, kinds: &mut [Option<Kind>]) {
    let mut all: BTreeMap<(u64, u64), (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    for (index, taken) in work.taken.iter().enumerate() {
        if let (None, Ok(Some(name))) = (&kinds[index], memfd::name(taken)) {
            let id = (taken.stat.st_dev, taken.stat.st_ino);
            all.entry(id).or_insert((Vec::new(), name)).0.push(index);
        }
    }
    for (indices, name) in all.into_values() {
        let result = memfd::capture(&work.taken[indices[0]], name).map_err(Trouble::from);
        share(work, kinds, &indices, "memfd", result, |files, memfd| {
            files.memfds.push(memfd);
            let number = files.memfds.len() - 1;
            Box::new(move |_| Kind::Memfd(number))
        });
    }
}

type Make = Box<dyn Fn(usize) -> Kind>;

/// Gives all descriptions of one object their kind, or refuses each.
fn share<T>(
    work: &mut Work,
    kinds: &mut [Option<Kind>],
    indices: &[usize],
    name: &str,
    result: Result<T, Trouble>,
    keep: impl FnOnce(&mut super::Files, T) -> Make,
) {
    match result {
        Ok(object) => {
            let make = keep(&mut work.files, object);
            for &index in indices {
                kinds[index] = Some(make(index));
            }
        }
        // One line says it for all of them.
        Err(trouble) => work.trouble(indices[0], name, trouble),
    }
}

fn terminals(work: &mut Work, source: &dyn Source, kinds: &mut [Option<Kind>]) {
    let mut ends: BTreeMap<u32, Vec<(usize, bool)>> = BTreeMap::new();
    for (index, taken) in work.taken.iter().enumerate() {
        if taken.info.flags & libc::O_PATH != 0 {
            continue;
        }
        if let Ok(Some((number, master))) = terminal::recognise(taken) {
            ends.entry(number).or_default().push((index, master));
        }
    }
    for (number, ends) in ends {
        let indices: Vec<usize> = ends.iter().map(|end| end.0).collect();
        let masters: BTreeMap<usize, bool> = ends.iter().copied().collect();
        let taken: Vec<(&Taken, bool)> = ends
            .iter()
            .map(|&(index, master)| (&work.taken[index], master))
            .collect();
        let result = terminal::capture(source, number, &taken);
        share(work, kinds, &indices, "terminal", result, |files, state| {
            files.terminals.push(state);
            let terminal = files.terminals.len() - 1;
            Box::new(move |index| {
                Kind::Terminal(terminal::End {
                    terminal,
                    master: masters.get(&index).copied().unwrap_or(false),
                })
            })
        });
    }
}

/// epoll sets, whose members are among the other descriptions; what inotify and pidfd know only now.
fn epolls(work: &mut Work, kinds: &mut [Option<Kind>]) {
    for (index, kind) in kinds.iter_mut().enumerate() {
        if work.taken[index].link == b"anon_inode:[eventpoll]" {
            let taken = &work.taken[index];
            let entries = match &taken.info.detail {
                Detail::Epoll(entries) => entries.as_slice(),
                _ => &[],
            };
            match epoll::capture(&work.taken, taken, entries) {
                Ok((set, lost)) => {
                    *kind = Some(Kind::Epoll(set));
                    for entry in lost {
                        let reason = format!(
                            "the file that it watches as number {} is held outside of the box only",
                            entry.fd
                        );
                        let out = "remove it from the set before the checkpoint";
                        work.degraded(index, "epoll", reason, out);
                    }
                }
                Err(error) => work.trouble(index, "epoll", error.into()),
            }
        }
        match kind {
            Some(Kind::Process(process)) => {
                process.pid = process.pid.and_then(|pid| work.pids.inside(pid));
            }
            Some(Kind::Inotify(_)) => {
                let queued = inotify::queued(work.taken[index].file.as_fd()).unwrap_or(0);
                if queued > 0 {
                    let reason = format!("{queued} bytes of events were not read yet and are lost");
                    let out = "have the program rescan what it watches after a rollback";
                    work.degraded(index, "inotify", reason, out);
                }
            }
            _ => {}
        }
    }
}
