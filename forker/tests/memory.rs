//! Memory alone: a guest's address space is copied out and comes to be again in another process, with the
//! plainest tracer that can be (one call at a time), so that what fails here is memory and nothing else.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use branchpoint_forker::memory::calls::{Argument, Call, Calls, Expect};
use branchpoint_forker::memory::copy::{Source, copy_out};
use branchpoint_forker::memory::fill::{Target, Twins, fill};
use branchpoint_forker::memory::finish::finish;
use branchpoint_forker::memory::place::{self, Specials};
use branchpoint_forker::memory::plan::{self, Hand, Opening};
use branchpoint_forker::memory::scan::scan;
use branchpoint_forker::memory::shared::{self, Pieces, SharedMemory};
use branchpoint_forker::memory::space::{AddressSpace, ObjectId, Run, SharedKey};
use branchpoint_forker::memory::store::{InMemory, MemoryStore};
use branchpoint_forker::memory::sysv::{self, KeptSegment};
use branchpoint_forker::proc::maps;
use branchpoint_forker::sys::pidfd;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use support::{Scene, guests, wait_until};

/// Where the runner of this test lies: one page of code, the others for data.
const RUNNER_PAGES: u64 = 64;

/// A process under this test's control, killed at the end.
struct Traced {
    child: Child,
    pid: Pid,
}

impl Traced {
    /// Starts a program in an IPC namespace of its own and stops it once `settled` holds.
    fn start(program: &[&str], scene: &Scene, settled: impl Fn(u32) -> bool) -> Self {
        let child = Command::new("unshare")
            .args(["--ipc", "--"])
            .args(program)
            .current_dir(scene.path())
            // Only the kernel could tell a process that its rseq area is to be elsewhere.
            .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let traced = Self { child, pid };
        wait_until("a program to settle", || settled(traced.child.id()));
        ptrace::attach(pid).unwrap();
        let stopped = waitpid(pid, Some(WaitPidFlag::__WALL)).unwrap();
        assert!(
            matches!(stopped, WaitStatus::Stopped(_, Signal::SIGSTOP)),
            "{stopped:?}"
        );
        traced
    }

    fn raw(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Lets it go on and returns whether it ended well.
    fn finish(mut self, scene: &Scene) -> String {
        ptrace::detach(self.pid, None).unwrap();
        let status = self.child.wait().unwrap();
        scene
            .verdict()
            .unwrap_or_else(|| format!("no verdict: {status}, signal {:?}", status.signal()))
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a process call the kernel through one `syscall` instruction.
struct Injector<'a> {
    traced: &'a Traced,
    saved: libc::user_regs_struct,
    instruction: u64,
}

impl Injector<'_> {
    fn call(&self, number: i64, arguments: [u64; 6]) -> u64 {
        let mut registers = self.saved;
        registers.rip = self.instruction;
        registers.orig_rax = u64::MAX;
        registers.rax = number.cast_unsigned();
        [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ] = arguments;
        ptrace::setregs(self.traced.pid, registers).unwrap();
        ptrace::step(self.traced.pid, None).unwrap();
        let stopped = waitpid(self.traced.pid, Some(WaitPidFlag::__WALL)).unwrap();
        assert!(
            matches!(stopped, WaitStatus::Stopped(_, Signal::SIGTRAP)),
            "{stopped:?}"
        );
        ptrace::getregs(self.traced.pid).unwrap().rax
    }

    fn run(&self, calls: &Calls, data_address: u64) {
        write(self.traced.pid, data_address, &calls.data);
        let mut results: Vec<u64> = Vec::new();
        for Call {
            number,
            arguments,
            expect,
            what,
        } in &calls.list
        {
            let values = arguments.map(|argument| match argument {
                Argument::Value(value) => value,
                Argument::Result(index) => results[index],
            });
            let result = self.call(*number, values);
            let good = match expect {
                Expect::Success => result < u64::MAX - 4095,
                Expect::Exactly(wanted) => result == *wanted,
                Expect::Anything => true,
            };
            assert!(
                good,
                "{what}: call {number}{values:x?} = {result:x}, not {expect:x?}"
            );
            results.push(result);
        }
    }
}

fn write(pid: Pid, address: u64, bytes: &[u8]) {
    let memory = File::options()
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .unwrap();
    memory.write_all_at(bytes, address).unwrap();
}

/// The address of a `syscall` instruction in the vdso of a process.
fn syscall_instruction(pid: i32) -> u64 {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap();
    let maps = maps::parse(&text).unwrap();
    let vdso = maps.iter().find(|map| map.path == b"[vdso]").unwrap();
    let mut bytes = vec![0; usize::try_from(vdso.end - vdso.start).unwrap()];
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    memory.read_exact_at(&mut bytes, vdso.start).unwrap();
    vdso.start
        + bytes
            .windows(2)
            .position(|pair| pair == [0x0f, 0x05])
            .unwrap() as u64
}

fn word(value: i32) -> u64 {
    u64::from(value.cast_unsigned())
}

/// Everything that this test captures.
struct Captured {
    space: AddressSpace,
    directory: PathBuf,
    object: ObjectId,
    runs: Vec<Run>,
    shared: Vec<SharedMemory>,
    segments: Vec<KeptSegment>,
    deleted: HashMap<u64, File>,
    registers: libc::user_regs_struct,
}

fn capture(guest: &Traced, store: &dyn MemoryStore) -> Captured {
    let pid = guest.raw();
    // A page of the tracer's own shows what the program asked for memory to come.
    let saved = ptrace::getregs(guest.pid).unwrap();
    let injector = Injector {
        traced: guest,
        saved,
        instruction: syscall_instruction(guest.raw()),
    };
    let protection = word(libc::PROT_READ);
    let flags = word(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let scratch = injector.call(libc::SYS_mmap, [0, 4096, protection, flags, u64::MAX, 0]);
    let scratch_page = scratch..scratch + 4096;
    let (space, report) = scan(pid, pid, std::slice::from_ref(&scratch_page)).unwrap();
    assert_eq!(
        injector.call(libc::SYS_munmap, [scratch, 4096, 0, 0, 0, 0]),
        0
    );
    ptrace::setregs(guest.pid, saved).unwrap();
    assert_eq!(report.lines, []);
    let object = ObjectId::of_process(pid);
    let content = copy_out(&[Source {
        pid,
        object,
        space: &space,
    }])
    .unwrap();
    let kept = content.write_to(store).unwrap();
    let runs = kept.into_iter().flat_map(|(_, runs)| runs).collect();
    let mut pieces = Pieces::new();
    pieces.add_mapped(pid, &space).unwrap();
    let shared = pieces.capture(store).unwrap();
    let namespace = File::open(format!("/proc/{pid}/ns/ipc")).unwrap();
    let segments = sysv::capture(namespace.as_fd(), store).unwrap();
    let openings = plan::openings(&space);
    let deleted = openings
        .into_iter()
        .filter(|opening| opening.file.deleted)
        .map(|opening| {
            let mapping = space.mappings.iter().find(|mapping| {
                format!("{:?}", mapping.backing).contains(&format!("ino: {}", opening.file.ino))
            });
            let mapping = mapping.unwrap();
            let path = format!(
                "/proc/{pid}/map_files/{:x}-{:x}",
                mapping.start, mapping.end
            );
            (
                opening.file.ino,
                File::options()
                    .read(true)
                    .write(opening.write)
                    .open(path)
                    .unwrap(),
            )
        });
    let deleted = deleted.collect();
    let mut registers = ptrace::getregs(guest.pid).unwrap();
    let restarts = (-516..=-512).contains(&registers.rax.cast_signed());
    if registers.orig_rax.cast_signed() >= 0 && restarts {
        // It waits in a call, which is made again from the start.
        registers.rip -= 2;
        registers.rax = registers.orig_rax;
        registers.orig_rax = u64::MAX;
    }
    let directory = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    Captured {
        directory,
        space,
        object,
        runs,
        shared,
        segments,
        deleted,
        registers,
    }
}

/// Turns a sleeping process into the captured one.
fn become_captured(seed: &Traced, captured: &Captured, scene: &Scene, store: &dyn MemoryStore) {
    let space = &captured.space;
    let text = fs::read(format!("/proc/{}/maps", seed.raw())).unwrap();
    let current = maps::parse(&text).unwrap();
    let specials: Specials = current
        .iter()
        .filter(|map| [&b"[vdso]"[..], b"[vvar]", b"[vvar_vclock]"].contains(&&map.path[..]))
        .map(|map| {
            (
                String::from_utf8(map.path.clone()).unwrap(),
                map.start..map.end,
            )
        })
        .collect();
    let segments = sysv::sizes(&captured.segments);
    let mut taken = place::footprint(space, &segments);
    taken.extend(current.iter().map(|map| map.start..map.end));
    let runner = place::free_range(&taken, RUNNER_PAGES * 4096).unwrap();

    let saved = ptrace::getregs(seed.pid).unwrap();
    let mut injector = Injector {
        traced: seed,
        saved,
        instruction: syscall_instruction(seed.raw()),
    };
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
    );
    let length = runner.end - runner.start;
    let mapped = injector.call(
        libc::SYS_mmap,
        [
            runner.start,
            length,
            word(protection),
            word(flags),
            u64::MAX,
            0,
        ],
    );
    assert_eq!(mapped, runner.start);
    write(seed.pid, runner.start, &[0x0f, 0x05, 0xcc]);
    injector.instruction = runner.start;
    let own_pid = u64::from(std::process::id());
    let tracer = injector.call(libc::SYS_pidfd_open, [own_pid, 0, 0, 0, 0, 0]);
    let tracer = i32::try_from(tracer).unwrap();

    let hold = Held::open(captured, scene, store);
    let namespace = File::open(format!("/proc/{}/ns/ipc", seed.raw())).unwrap();
    sysv::create(namespace.as_fd(), &captured.segments, store).unwrap();
    let data = runner.start + 4096;
    let (files, shared_files) = hold.numbers();
    let hand = Hand {
        tracer,
        free: 99,
        files: &files,
        shared: &shared_files,
        segments: &segments,
        exe: hold.exe.as_raw_fd(),
    };
    let keep: [Range<u64>; 1] = [runner.clone()];
    let calls = plan::lay_out(space, &specials, &keep, &hand, data).unwrap();
    injector.run(&calls, data);
    let pidfd = pidfd::open(seed.raw()).unwrap();
    let target = Target {
        pid: seed.raw(),
        pidfd: pidfd.as_fd(),
        object: captured.object,
        space,
        runs: &captured.runs,
    };
    fill(&[target], Twins::None, store).unwrap();
    injector.run(&finish(space, data), data);
    sysv::mark(namespace.as_fd(), &captured.segments).unwrap();
    for (piece, file) in captured.shared.iter().zip(&hold.shared) {
        shared::seal(piece, &file.1).unwrap();
    }
    injector.call(libc::SYS_close, [word(tracer), 0, 0, 0, 0, 0]);

    // The runner goes by an instruction of the vdso, which is where it was.
    injector.instruction = syscall_instruction(seed.raw());
    assert_eq!(
        injector.call(libc::SYS_munmap, [runner.start, length, 0, 0, 0, 0]),
        0
    );
    ptrace::setregs(seed.pid, captured.registers).unwrap();
}

/// What the tracer holds open for the process.
struct Held {
    files: Vec<(Opening, File)>,
    shared: Vec<(SharedKey, File)>,
    exe: File,
}

impl Held {
    fn open(captured: &Captured, scene: &Scene, store: &dyn MemoryStore) -> Self {
        let path = |bytes: &[u8]| {
            let path = Path::new(std::str::from_utf8(bytes).unwrap());
            // A file of the guest's own: the restored one has another of the same name.
            match path.strip_prefix(&captured.directory) {
                Ok(name) => scene.path().join(name),
                Err(_) => path.to_owned(),
            }
        };
        let files = plan::openings(&captured.space).into_iter().map(|opening| {
            let file = match captured.deleted.get(&opening.file.ino) {
                Some(file) => file.try_clone().unwrap(),
                None => File::options()
                    .read(true)
                    .write(opening.write)
                    .open(path(&opening.file.path))
                    .unwrap(),
            };
            (opening, file)
        });
        let shared = captured.shared.iter().map(|piece| {
            let file = shared::create(piece, store).unwrap();
            (piece.key, file)
        });
        Self {
            files: files.collect(),
            shared: shared.collect(),
            exe: File::open(path(&captured.space.exe.path)).unwrap(),
        }
    }

    fn numbers(&self) -> (HashMap<Opening, i32>, HashMap<SharedKey, i32>) {
        let files = self
            .files
            .iter()
            .map(|(opening, file)| (opening.clone(), file.as_raw_fd()));
        let shared = self
            .shared
            .iter()
            .map(|(key, file)| (*key, file.as_raw_fd()));
        (files.collect(), shared.collect())
    }
}

/// The contract of a guest: what is captured changes nothing in the original, and comes to be again
/// with the files as they were, twice side by side.
fn contract(guest: &str) {
    let scene = Scene::new();
    let program = guests().to_str().unwrap();
    let traced = Traced::start(&[program, guest], &scene, |_| scene.has("ready"));
    let store = InMemory::new();
    let captured = capture(&traced, &store);
    let copies = [scene.copy(), scene.copy()];
    scene.go();
    assert_eq!(traced.finish(&scene), "ok", "{guest}, the original");
    let seeds: Vec<Traced> = copies
        .iter()
        .map(|copy| {
            let settled = |pid| {
                fs::read(format!("/proc/{pid}/wchan"))
                    .is_ok_and(|name| name == b"hrtimer_nanosleep")
            };
            let seed = Traced::start(&["sleep", "1000"], copy, settled);
            become_captured(&seed, &captured, copy, &store);
            seed
        })
        .collect();
    for (seed, copy) in seeds.into_iter().zip(&copies) {
        copy.go();
        let verdict = seed.finish(copy);
        for layout in ["layout.before", "layout.after"] {
            // What the guest says about a difference.
            if let Ok(text) = fs::read_to_string(copy.path().join(layout)) {
                println!("{layout}:\n{text}");
            }
        }
        assert_eq!(verdict, "ok", "{guest}, restored");
    }
}

macro_rules! contracts {
    ($($guest:ident)*) => {
        $(#[test]
        fn $guest() {
            contract(stringify!($guest));
        })*
    };
}

contracts! {
    memory_private
    memory_guards
    memory_sparse
    memory_advice
    memory_locked
    memory_droppable
    memory_file_private
    memory_file_shared
    memory_layout
    memory_vdso
    memory_brk
    memory_description
    memory_shared_twice
    memory_memfd_mapped
    memory_sysv
}
