//! A small ext4 disk in a file, for what happens when a disk is full.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::guard::{Guard, Leftover};
use crate::rig::Scratch;

/// A mounted loop disk; unmounted and removed at the end.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    // In this order: the mount goes first, then the device, then the file.
    _mount: Guard,
    _device: Guard,
    _scratch: Scratch,
}

impl Disk {
    /// Makes a disk of `mebibytes`; `None`, loudly, where loop devices cannot be had.
    pub fn new(mebibytes: u64) -> Option<Self> {
        let scratch = Scratch::new();
        let image = scratch.path().join("image");
        std::fs::File::create(&image)
            .unwrap()
            .set_len(mebibytes << 20)
            .unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0"])
            .arg(&image)
            .output();
        if !made.is_ok_and(|output| output.status.success()) {
            return skip("mkfs.ext4 does not work");
        }
        let output = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(&image)
            .output()
            .unwrap();
        if !output.status.success() {
            return skip("there are no loop devices");
        }
        let device = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        let device_guard = Guard::new(Leftover::Loop(device.clone()));
        let dir = scratch.dir("disk");
        let mounted = Command::new("mount")
            .args(["-t", "ext4"])
            .arg(&device)
            .arg(&dir)
            .output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            return skip("ext4 cannot be mounted");
        }
        let mount = Guard::new(Leftover::Mount(dir.clone()));
        Some(Self {
            dir,
            _mount: mount,
            _device: device_guard,
            _scratch: scratch,
        })
    }

    /// Returns where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Fills it up; removing the file that is returned frees the space again.
    pub fn fill(&self, leave_kibibytes: u64) -> PathBuf {
        let ballast = self.dir.join("ballast");
        let file = std::fs::File::create(&ballast).unwrap();
        let stat = nix::sys::statvfs::statvfs(&self.dir).unwrap();
        let free = stat.blocks_available() * stat.fragment_size();
        let size = free.saturating_sub(leave_kibibytes << 10);
        let size = i64::try_from(size).unwrap();
        nix::fcntl::fallocate(&file, nix::fcntl::FallocateFlags::empty(), 0, size).unwrap();
        ballast
    }
}

fn skip(why: &str) -> Option<Disk> {
    println!("SKIP full disk: {why}");
    eprintln!("SKIP full disk: {why}");
    None
}
